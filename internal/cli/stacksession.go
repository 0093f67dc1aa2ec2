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
	render "github.com/slipway-k8s/slipway/internal/infra/render"
	"github.com/slipway-k8s/slipway/internal/infra/render/cloudformation"
	"github.com/slipway-k8s/slipway/internal/infra/stack"
	"github.com/slipway-k8s/slipway/internal/lib/store"
)

// stackOptions are the flags of a cluster that CloudFormation makes.
type stackOptions struct {
	parameters      []string
	resetParameters bool
}

// stackName is the name of a cluster's stack.
func stackName(cluster string) string { return "slipway-" + cluster }

// stackSession is a cluster as CloudFormation makes it.
type stackSession struct {
	*clusterSession
	desired      *desiredState
	client       stack.Stack
	progress     *progressPrinter
	templateBody []byte
}

// openStack computes a cluster's graph and template. Nothing is written.
func (a *app) openStack(ctx context.Context, d *desiredState, o clusterOptions) (*stackSession, error) {
	t, err := a.newSessionWithGraph(ctx, d, o)
	if err != nil {
		return nil, err
	}

	out := &stackSession{clusterSession: t, desired: d}
	ids, err := cloudformation.LogicalIDs(d.graph)
	if err != nil {
		return nil, err
	}

	names := newStackNames()
	for i, n := range d.graph.Nodes() {
		names.AddrByLogicalID[ids[n.Addr]] = n.Addr
		names.OrderByAddr[n.Addr] = i
	}

	out.client, out.progress = t.newStackClient(names)

	return out, nil
}

// templateDescription of a cluster's template.
func (t *clusterSession) templateDescription() string {
	return fmt.Sprintf("Kubernetes cluster %s in %s, made by slipway", t.name, t.cfg.Region)
}

// newStackNames knows our kinds and no address.
func newStackNames() stack.NameIndex {
	names := stack.NameIndex{
		AddrByLogicalID: map[string]graph.Addr{},
		KindByType:      map[string]string{},
		OrderByAddr:     map[graph.Addr]int{},
	}

	for _, r := range awskind.AllKinds() {
		names.KindByType[r.Kind().CloudFormation] = r.Kind().Name
	}

	return names
}

func (t *clusterSession) newStackClient(names stack.NameIndex) (stack.Stack, *progressPrinter) {
	show := t.app.newProgressPrinter()
	return stack.Stack{
		API:      sdkcfn.NewFromConfig(t.cfg),
		Name:     stackName(t.name),
		Names:    names,
		Now:      t.app.Now,
		OnEvent:  show.handleEvent,
		OnNotice: func(s string) { show.clearLine(); t.app.printMessage("%s", s) },
	}, show
}

// learnFormerNames adds what the stack's present template calls its resources, so that those that go have their addresses.
func (c *stackSession) learnFormerNames(ctx context.Context, info stack.Info) (cfnTemplate, error) {
	if stack.PhaseOf(info.Status) != stack.PhaseUpdatable {
		return cfnTemplate{}, nil
	}

	return addTemplateNames(ctx, c.client)
}

// addTemplateNames adds what a stack's template calls its resources to those of its names that are known, and returns the
// template; the zero one if there is none.
func addTemplateNames(ctx context.Context, s stack.Stack) (cfnTemplate, error) {
	body, err := s.ReadTemplate(ctx)
	if err != nil || body == "" {
		return cfnTemplate{}, err
	}

	old, err := parseTemplate(body)
	if err != nil {
		return old, fmt.Errorf("read the template of stack %s: %w", s.Name, err)
	}

	for id, addr := range old.resourceAddresses(s.Names.KindByType) {
		if _, have := s.Names.AddrByLogicalID[id]; !have {
			s.Names.AddrByLogicalID[id] = addr
		}
	}

	return old, nil
}

// stackProposal is what CloudFormation would do, and what has to be done first.
type stackProposal struct {
	stack.ChangeSet
	// info of the stack as it was found, once it stood still.
	info stack.Info
	// recreate says that the stack can only be deleted and made again: there is no change set yet.
	recreate bool
	template stack.Template
}

// proposeChange asks CloudFormation for a plan. An operation that goes on is waited for.
func (c *stackSession) proposeChange(ctx context.Context, o stackOptions) (stackProposal, error) {
	info, err := c.client.WaitForOperation(ctx)
	c.progress.endLine()
	if err != nil {
		return stackProposal{}, err
	}

	p := stackProposal{info: info}

	switch stack.PhaseOf(info.Status) {
	case stack.PhaseRollbackFailed:
		return p, nil
	case stack.PhaseDeleteOnly:
		p.recreate, p.Steps = true, createSteps(c.desired.graph)
	case stack.PhaseAbsent:
		if err := c.refuseDirectResources(ctx); err != nil {
			return p, err
		}

	default: // it can be changed
	}

	old, err := c.learnFormerNames(ctx, info)
	if err != nil {
		return p, err
	}

	c.templateBody, err = cloudformation.Render(
		c.desired.graph,
		cloudformation.Options{Description: c.templateDescription(), EarlierVersions: old.Mappings.Versions},
	)
	if err != nil {
		return p, err
	}

	if p.template, err = c.buildTemplate(o, old, info.Parameters); err != nil || p.recreate {
		return p, err
	}

	p.ChangeSet, err = c.createChangeSet(ctx, p.template, info)

	return p, err
}

// createChangeSet makes a change set. A template that is too large to be given goes by way of the store, and stays there no longer
// than it takes to read it.
func (c *stackSession) createChangeSet(
	ctx context.Context,
	t stack.Template,
	info stack.Info,
) (stack.ChangeSet, error) {
	if len(t.Body) <= cloudformation.MaxBodySize {
		return c.client.CreateChangeSet(ctx, t, info)
	}

	key := c.name + "/cloudformation/" + t.Name + "-" + rand.Text() + ".json" // another run may offer the same
	if _, err := c.desired.machineStore.Put(ctx, key, c.templateBody); err != nil {
		return stack.ChangeSet{}, err
	}

	defer c.deleteTemplate(context.WithoutCancel(ctx), key)
	place, err := store.ParseURL(c.desired.machineStore.URL())
	if err != nil {
		return stack.ChangeSet{}, err
	}

	t.Body, t.URL = "", c.templateURL(place.Bucket, strings.TrimPrefix(place.Prefix+"/"+key, "/"))

	return c.client.CreateChangeSet(ctx, t, info)
}

// deleteTemplate deletes a template from the store. It is in nobody's way: a failure is only told.
func (c *stackSession) deleteTemplate(ctx context.Context, key string) {
	ctx, cancel := context.WithTimeout(ctx, 30*time.Second)
	defer cancel()
	if err := c.desired.machineStore.Delete(ctx, key); err != nil {
		c.app.printMessage("the template stays in %s: %v", c.desired.machineStore.URL(), err)
	}
}

func (c *stackSession) templateURL(bucket, object string) string {
	if c.cfg.BaseEndpoint != nil {
		return strings.TrimSuffix(*c.cfg.BaseEndpoint, "/") + "/" + bucket + "/" + object
	}

	return fmt.Sprintf("https://%s.s3.%s.%s/%s", bucket, c.cfg.Region, awsDNSSuffix(c.cfg.Region), object)
}

// createSteps are the steps that make all of a graph.
func createSteps(g *graph.Graph) []plan.Step {
	var out []plan.Step
	for _, n := range g.Nodes() {
		out = append(out, plan.Step{Action: plan.Create, Addr: n.Addr, Kind: n.Resource.Kind().Name})
	}

	return out
}

// refuseDirectResources refuses a cluster that was made in another way before ways were noted.
func (c *stackSession) refuseDirectResources(ctx context.Context) error {
	if have, err := readProvisioner(ctx, c.desired.stateView, c.name); err != nil || have != "" {
		return err
	}

	found, err := c.cloud.Read(ctx)
	if err != nil || len(found) == 0 {
		return err
	}

	return withHint(
		fmt.Errorf(
			"cluster %s has %d resources that no stack made, such as %s (%s)",
			c.name,
			len(found),
			found[0].Addr,
			found[0].ID,
		),
		"go on with: slipway apply "+c.name+"; to change the way, delete the cluster and make it again",
	)
}

// buildTemplate is what CloudFormation is given.
func (c *stackSession) buildTemplate(
	o stackOptions,
	old cfnTemplate,
	current map[string]string,
) (stack.Template, error) {
	now, err := parseTemplate(string(c.templateBody))
	if err != nil {
		return stack.Template{}, err
	}

	if o.resetParameters {
		current = nil
	}

	values, kept, err := now.resolveParameters(old, current, o.parameters)
	if err != nil {
		return stack.Template{}, err
	}

	for _, k := range slices.Sorted(maps.Keys(current)) {
		if _, still := now.Parameters[k]; !still && current[k] != old.Parameters[k].Default {
			c.app.printMessage(
				"parameter %s was set to %s in CloudFormation; the template no longer has it: what the manifest says counts",
				k,
				current[k],
			)
		}
	}

	for _, k := range kept {
		c.app.printMessage(
			"parameter %s stays %s, as it was set in CloudFormation; the manifest says %s (--reset-parameters takes that)",
			k,
			values[k],
			now.Parameters[k].Default,
		)
	}

	tags := maps.Clone(c.desired.manifests.Cluster.Spec.Tags)
	if tags == nil {
		tags = map[string]string{}
	}

	tags[awskind.TagCluster] = c.name

	return stack.Template{
		Body:       string(c.templateBody),
		Name:       templateHash(c.templateBody, values),
		Parameters: values,
		Tags:       tags,
	}, nil
}

// templateHash tells a template with its parameters from another.
func templateHash(body []byte, values map[string]string) string {
	h := sha256.New()
	h.Write(body)
	for _, k := range slices.Sorted(maps.Keys(values)) {
		h.Write([]byte("\n" + k + "=" + values[k]))
	}

	return hex.EncodeToString(h.Sum(nil))[:12]
}

func awsDNSSuffix(region string) string {
	if strings.HasPrefix(region, "cn-") {
		return "amazonaws.com.cn"
	}

	return "amazonaws.com"
}

// discardChangeSet takes back a proposal: nothing of it stays.
func (c *stackSession) discardChangeSet(ctx context.Context, p stackProposal) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), 30*time.Second)
	defer cancel()
	return c.client.DiscardChangeSet(ctx, p.ChangeSet)
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

// resourceAddresses are those in the tags of a template's resources, by logical id. What bears no tags has the address that its
// logical id was made of, as far as that can be told.
func (t cfnTemplate) resourceAddresses(kinds map[string]string) map[string]graph.Addr {
	out := map[string]graph.Addr{}
	for id, r := range t.Resources {
		kind := kinds[r.Type]
		name := strings.ReplaceAll(graph.Snake(strings.TrimPrefix(id, render.CamelCase(kind))), "_", "-")
		if addr := kind + "/" + name; kind != "" && render.CamelCase(addr) == id {
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

// resolveParameters gives each parameter its value: the one that is given, else the one that somebody set in CloudFormation
// (other than the default of its time), else the default. Kept are the names of the second.
func (t cfnTemplate) resolveParameters(
	old cfnTemplate,
	current map[string]string,
	given []string,
) (values map[string]string, kept []string, err error) {
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
		name, value, err := t.parseParameter(g)
		if err != nil {
			return nil, nil, err
		}

		values[name] = value
		kept = slices.DeleteFunc(kept, func(k string) bool { return k == name })
	}

	slices.Sort(kept)

	return values, kept, nil
}

// parseParameter reads NAME=VALUE.
func (t cfnTemplate) parseParameter(given string) (name, value string, err error) {
	name, value, ok := strings.Cut(given, "=")
	p, known := t.Parameters[name]
	if !ok || !known {
		return "", "", withHint(fmt.Errorf("--parameter %s: the template has no such parameter", given),
			"give NAME=VALUE with one of "+strings.Join(slices.Sorted(maps.Keys(t.Parameters)), ", "))
	}

	if len(p.AllowedValues) > 0 && !slices.Contains(p.AllowedValues, value) {
		return "", "", withHint(
			fmt.Errorf("--parameter %s: the template has no such choice", given),
			"give one of "+strings.Join(p.AllowedValues, ", "),
		)
	}

	return name, value, nil
}
