// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"context"
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	sdkcfn "github.com/aws/aws-sdk-go-v2/service/cloudformation"

	"github.com/slipway-k8s/slipway/internal/infra/awskind"
	"github.com/slipway-k8s/slipway/internal/infra/graph"
	"github.com/slipway-k8s/slipway/internal/infra/plan"
	"github.com/slipway-k8s/slipway/internal/infra/stack"
	render "github.com/slipway-k8s/slipway/internal/infra/target"
	"github.com/slipway-k8s/slipway/internal/infra/target/cloudformation"
	"github.com/slipway-k8s/slipway/internal/lib/store"
)

// stackOptions are the flags of a cluster that CloudFormation makes.
type stackOptions struct {
	parameters []string
	reset      bool
}

// stackName is the name of a cluster's stack.
func stackName(cluster string) string { return "slipway-" + cluster }

// stacked is a cluster as CloudFormation makes it.
type stacked struct {
	*target
	d     *desired
	stack stack.Stack
	show  *progress
	body  []byte
}

// openStack computes a cluster's graph and template. Nothing is written.
func (a *app) openStack(ctx context.Context, d *desired, o targetOptions) (*stacked, error) {
	t, err := a.graphOf(ctx, d, o)
	if err != nil {
		return nil, err
	}
	out := &stacked{target: t, d: d}
	ids, err := cloudformation.LogicalIDs(d.graph)
	if err != nil {
		return nil, err
	}
	names := newNames()
	for i, n := range d.graph.Nodes() {
		names.Addrs[ids[n.Addr]] = n.Addr
		names.Order[n.Addr] = i
	}
	out.stack, out.show = t.newStack(names)
	return out, nil
}

// description of a cluster's template.
func (t *target) description() string {
	return fmt.Sprintf("Kubernetes cluster %s in %s, made by slipway", t.name, t.cfg.Region)
}

// newNames knows our kinds and no address.
func newNames() stack.Names {
	names := stack.Names{Addrs: map[string]graph.Addr{}, Kinds: map[string]string{}, Order: map[graph.Addr]int{}}
	for _, r := range awskind.All() {
		names.Kinds[r.Kind().CloudFormation] = r.Kind().Name
	}
	return names
}

func (t *target) newStack(names stack.Names) (stack.Stack, *progress) {
	show := t.a.newProgress()
	return stack.Stack{
		API: sdkcfn.NewFromConfig(t.cfg), Name: stackName(t.name), Names: names, Now: t.a.Now, Events: show.event,
		Notes: func(s string) { show.clear(); t.a.say("%s", s) },
	}, show
}

// former adds what the stack's present template calls its resources, so that those that go have their addresses.
func (c *stacked) former(ctx context.Context, info stack.Info) (cfnTemplate, error) {
	if stack.PhaseOf(info.Status) != stack.Steady {
		return cfnTemplate{}, nil
	}
	return learnNames(ctx, c.stack)
}

// learnNames adds what a stack's template calls its resources to those of its names that are known, and returns the
// template; the zero one if there is none.
func learnNames(ctx context.Context, s stack.Stack) (cfnTemplate, error) {
	body, err := s.Template(ctx)
	if err != nil || body == "" {
		return cfnTemplate{}, err
	}
	old, err := parseTemplate(body)
	if err != nil {
		return old, fmt.Errorf("read the template of stack %s: %w", s.Name, err)
	}
	for id, addr := range old.addresses(s.Names.Kinds) {
		if _, have := s.Names.Addrs[id]; !have {
			s.Names.Addrs[id] = addr
		}
	}
	return old, nil
}

// proposal is what CloudFormation would do, and what has to be done first.
type proposal struct {
	stack.Proposal
	// info of the stack as it was found, once it stood still.
	info stack.Info
	// again says that the stack can only be deleted and made again: there is no change set yet.
	again    bool
	template stack.Template
}

// propose asks CloudFormation for a plan. An operation that goes on is waited for.
func (c *stacked) propose(ctx context.Context, o stackOptions) (proposal, error) {
	info, err := c.stack.Attach(ctx)
	c.show.end()
	if err != nil {
		return proposal{}, err
	}
	p := proposal{info: info}
	switch stack.PhaseOf(info.Status) {
	case stack.Stuck:
		return p, nil
	case stack.Dead:
		p.again, p.Steps = true, creations(c.d.graph)
	case stack.Absent:
		if err := c.unmade(ctx); err != nil {
			return p, err
		}
	default: // it can be changed
	}
	old, err := c.former(ctx, info)
	if err != nil {
		return p, err
	}
	c.body, err = cloudformation.Render(c.d.graph, cloudformation.Options{Description: c.description(), Earlier: old.Mappings.Versions})
	if err != nil {
		return p, err
	}
	if p.template, err = c.template(o, old, info.Parameters); err != nil || p.again {
		return p, err
	}
	p.Proposal, err = c.offer(ctx, p.template, info)
	return p, err
}

// offer makes a change set. A template that is too large to be given goes by way of the store, and stays there no longer
// than it takes to read it.
func (c *stacked) offer(ctx context.Context, t stack.Template, info stack.Info) (stack.Proposal, error) {
	if len(t.Body) <= cloudformation.MaxBody {
		return c.stack.Propose(ctx, t, info)
	}
	key := c.name + "/cloudformation/" + t.Name + "-" + rand.Text() + ".json" // another run may offer the same
	if _, err := c.d.machine.Put(ctx, key, c.body); err != nil {
		return stack.Proposal{}, err
	}
	defer c.drop(context.WithoutCancel(ctx), key)
	place, err := store.ParseURL(c.d.machine.URL())
	if err != nil {
		return stack.Proposal{}, err
	}
	t.Body, t.URL = "", c.urlOf(place.Bucket, strings.TrimPrefix(place.Prefix+"/"+key, "/"))
	return c.stack.Propose(ctx, t, info)
}

// drop deletes a template from the store. It is in nobody's way: a failure is only told.
func (c *stacked) drop(ctx context.Context, key string) {
	ctx, cancel := context.WithTimeout(ctx, 30*time.Second)
	defer cancel()
	if err := c.d.machine.Delete(ctx, key); err != nil {
		c.a.say("the template stays in %s: %v", c.d.machine.URL(), err)
	}
}

func (c *stacked) urlOf(bucket, object string) string {
	if c.cfg.BaseEndpoint != nil {
		return strings.TrimSuffix(*c.cfg.BaseEndpoint, "/") + "/" + bucket + "/" + object
	}
	return fmt.Sprintf("https://%s.s3.%s.%s/%s", bucket, c.cfg.Region, dnsSuffix(c.cfg.Region), object)
}

// creations are the steps that make all of a graph.
func creations(g *graph.Graph) []plan.Step {
	var out []plan.Step
	for _, n := range g.Nodes() {
		out = append(out, plan.Step{Action: plan.Create, Addr: n.Addr, Kind: n.Resource.Kind().Name})
	}
	return out
}

// unmade refuses a cluster that was made in another way before ways were noted.
func (c *stacked) unmade(ctx context.Context) error {
	if have, err := readWay(ctx, c.d.view, c.name); err != nil || have != "" {
		return err
	}
	found, err := c.cloud.Read(ctx)
	if err != nil || len(found) == 0 {
		return err
	}
	return withHint(fmt.Errorf("cluster %s has %d resources that no stack made, such as %s (%s)", c.name, len(found), found[0].Addr, found[0].ID),
		"go on with: slipway apply "+c.name+"; to change the way, delete the cluster and make it again")
}

// template is what CloudFormation is given.
func (c *stacked) template(o stackOptions, old cfnTemplate, current map[string]string) (stack.Template, error) {
	now, err := parseTemplate(string(c.body))
	if err != nil {
		return stack.Template{}, err
	}
	if o.reset {
		current = nil
	}
	values, kept, err := now.parameters(old, current, o.parameters)
	if err != nil {
		return stack.Template{}, err
	}
	for _, k := range slices.Sorted(maps.Keys(current)) {
		if _, still := now.Parameters[k]; !still && current[k] != old.Parameters[k].Default {
			c.a.say("parameter %s was set to %s in CloudFormation; the template no longer has it: what the manifest says counts", k, current[k])
		}
	}
	for _, k := range kept {
		c.a.say("parameter %s stays %s, as it was set in CloudFormation; the manifest says %s (--reset-parameters takes that)", k, values[k], now.Parameters[k].Default)
	}
	tags := maps.Clone(c.d.set.Cluster.Spec.Tags)
	if tags == nil {
		tags = map[string]string{}
	}
	tags[awskind.TagCluster] = c.name
	return stack.Template{Body: string(c.body), Name: hashOf(c.body, values), Parameters: values, Tags: tags}, nil
}

// hashOf tells a template with its parameters from another.
func hashOf(body []byte, values map[string]string) string {
	h := sha256.New()
	h.Write(body)
	for _, k := range slices.Sorted(maps.Keys(values)) {
		h.Write([]byte("\n" + k + "=" + values[k]))
	}
	return hex.EncodeToString(h.Sum(nil))[:12]
}

func dnsSuffix(region string) string {
	if strings.HasPrefix(region, "cn-") {
		return "amazonaws.com.cn"
	}
	return "amazonaws.com"
}

// withdraw takes back a proposal: nothing of it stays.
func (c *stacked) withdraw(ctx context.Context, p proposal) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), 30*time.Second)
	defer cancel()
	return c.stack.Discard(ctx, p.Proposal)
}

// cfnTemplate is what is read of a template.
type cfnTemplate struct {
	Parameters map[string]struct {
		Default       string
		AllowedValues []string
	}
	Mappings  struct{ Versions cloudformation.Versions }
	Resources map[string]struct {
		Type       string
		Properties struct {
			Tags              json.RawMessage
			TagSpecifications []struct{ Tags json.RawMessage }
		}
	}
}

func parseTemplate(body string) (cfnTemplate, error) {
	var t cfnTemplate
	if err := json.Unmarshal([]byte(body), &t); err != nil {
		return t, fmt.Errorf("is no template of ours: %w", err)
	}
	return t, nil
}

// addresses are those in the tags of a template's resources, by logical id. What bears no tags has the address that its
// logical id was made of, as far as that can be told.
func (t cfnTemplate) addresses(kinds map[string]string) map[string]graph.Addr {
	out := map[string]graph.Addr{}
	for id, r := range t.Resources {
		kind := kinds[r.Type]
		name := strings.ReplaceAll(graph.Snake(strings.TrimPrefix(id, render.Camel(kind))), "_", "-")
		if addr := kind + "/" + name; kind != "" && render.Camel(addr) == id {
			out[id] = graph.Addr(addr)
		}
		lists := []json.RawMessage{r.Properties.Tags}
		for _, s := range r.Properties.TagSpecifications {
			lists = append(lists, s.Tags)
		}
		for _, l := range lists {
			var tags []struct {
				Key   string
				Value any
			}
			if json.Unmarshal(l, &tags) != nil {
				continue // other tags than a list of ours
			}
			for _, tag := range tags {
				if v, ok := tag.Value.(string); ok && tag.Key == awskind.TagAddress {
					out[id] = graph.Addr(v)
				}
			}
		}
	}
	return out
}

// parameters gives each parameter its value: the one that is given, else the one that somebody set in CloudFormation
// (other than the default of its time), else the default. Kept are the names of the second.
func (t cfnTemplate) parameters(old cfnTemplate, current map[string]string, given []string) (values map[string]string, kept []string, err error) {
	values = map[string]string{}
	for name, p := range t.Parameters {
		values[name] = p.Default
		was, had := old.Parameters[name]
		v, set := current[name]
		offered := len(p.AllowedValues) == 0 || slices.Contains(p.AllowedValues, v)
		if had && set && offered && v != was.Default && v != p.Default {
			values[name] = v
			kept = append(kept, name)
		}
	}
	for _, g := range given {
		name, value, err := t.choice(g)
		if err != nil {
			return nil, nil, err
		}
		values[name] = value
		kept = slices.DeleteFunc(kept, func(k string) bool { return k == name })
	}
	slices.Sort(kept)
	return values, kept, nil
}

// choice reads NAME=VALUE.
func (t cfnTemplate) choice(given string) (name, value string, err error) {
	name, value, ok := strings.Cut(given, "=")
	p, known := t.Parameters[name]
	if !ok || !known {
		return "", "", withHint(fmt.Errorf("--parameter %s: the template has no such parameter", given),
			"give NAME=VALUE with one of "+strings.Join(slices.Sorted(maps.Keys(t.Parameters)), ", "))
	}
	if len(p.AllowedValues) > 0 && !slices.Contains(p.AllowedValues, value) {
		return "", "", withHint(fmt.Errorf("--parameter %s: the template has no such choice", given), "give one of "+strings.Join(p.AllowedValues, ", "))
	}
	return name, value, nil
}
