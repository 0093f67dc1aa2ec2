// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/slipway-k8s/slipway/internal/machine/kube"
	"github.com/slipway-k8s/slipway/internal/machine/netpolicy"
)

const (
	// policyNamespace has a ConfigMap for each node with rules. Nodes may read it; only the control plane writes it.
	policyNamespace = "slipway-network-policy"
	policyMapsPath  = "/api/v1/namespaces/" + policyNamespace + "/configmaps"
	// policyRulesKey is the key of the rules in a ConfigMap.
	policyRulesKey = "rules.json"

	policyLeaseName = "slipway-network-policy"
	// policyLease is how long the machine that compiles rules may be silent until another one does it. Meanwhile nodes
	// keep their rules, and new pods have none.
	policyLease = 15 * time.Second
	// policyRenewal is the time between two renewals of the lease.
	policyRenewal = 5 * time.Second
	// policyInterval is the time between two looks at whether something has changed. Changes within it are one.
	policyInterval = 250 * time.Millisecond
	// policyRetry is the time between two attempts to be elected, or after a failure.
	policyRetry = 5 * time.Second
)

// policyCompiler writes the rules of NetworkPolicies for all nodes, if this machine of the control plane is elected for it.
type policyCompiler struct {
	agent    *Agent
	api      kube.Client
	election *election

	renewAt time.Time
	// written are the rules in the ConfigMaps by node.
	written map[string]string
}

func newPolicyCompiler(a *Agent, api kube.Client) *policyCompiler {
	return &policyCompiler{agent: a, api: api, election: &election{
		api:      api,
		name:     policyLeaseName,
		holder:   a.instance.ID,
		duration: policyLease,
		now:      a.Now,
	}}
}

// run writes rules whenever this machine is elected, until ctx ends.
func (c *policyCompiler) run(ctx context.Context) error {
	a := c.agent
	failures := failureLog{agent: a, task: "network policies"}
	for {
		var err error
		if a.apiOpen.Load() {
			err = c.serve(ctx)
		}

		if ctx.Err() != nil {
			return ctx.Err()
		}

		failures.note(err)
		if err := a.Wait(ctx, policyRetry); err != nil {
			return err
		}
	}
}

// serve writes rules while this machine is elected. It returns nil if another one is.
func (c *policyCompiler) serve(ctx context.Context) error {
	c.renewAt = time.Time{}
	if elected, err := c.isElected(ctx); err != nil || !elected {
		return err
	}

	if err := c.readWritten(ctx); err != nil {
		return err
	}

	group, ctx := errgroup.WithContext(ctx)
	changes := make(chan struct{}, 1)
	changed := func() {
		select {
		case changes <- struct{}{}:
		default:
		}
	}
	pods := newMirror[netpolicy.Pod](c, "/api/v1/pods", changed)
	namespaces := newMirror[netpolicy.Namespace](c, "/api/v1/namespaces", changed)
	policies := newMirror[netpolicy.Policy](c, "/apis/networking.k8s.io/v1/networkpolicies", changed)
	group.Go(func() error { return pods.Run(ctx) })
	group.Go(func() error { return namespaces.Run(ctx) })
	group.Go(func() error { return policies.Run(ctx) })
	group.Go(func() error {
		return c.follow(ctx, changes, func() (netpolicy.Cluster, bool) {
			var out netpolicy.Cluster
			var isRead [3]bool
			out.Pods, isRead[0] = pods.Objects()
			out.Namespaces, isRead[1] = namespaces.Objects()
			out.Policies, isRead[2] = policies.Objects()

			return out, isRead[0] && isRead[1] && isRead[2]
		})
	})

	err := group.Wait()
	if errors.Is(err, errNotElected) {
		return nil
	}

	return err
}

// errNotElected ends the work of a machine that is no longer elected.
var errNotElected = errors.New("another machine is elected")

func newMirror[T any](c *policyCompiler, path string, changed func()) *kube.Mirror[T] {
	return &kube.Mirror[T]{Client: c.api, Path: path, Changed: changed, Wait: c.agent.Wait}
}

// isElected renews the lease when that is due, and reports whether this machine has it.
func (c *policyCompiler) isElected(ctx context.Context) (bool, error) {
	now := c.agent.Now()
	if now.Before(c.renewAt) {
		return true, nil
	}

	c.renewAt = now.Add(policyRenewal)

	return c.election.lead(ctx)
}

// follow writes rules after each change. It returns errNotElected when another machine has the lease.
func (c *policyCompiler) follow(
	ctx context.Context,
	changes <-chan struct{},
	read func() (netpolicy.Cluster, bool),
) error {
	isDue := false
	for {
		elected, err := c.isElected(ctx)
		if err != nil {
			return err
		}

		if !elected {
			return errNotElected
		}

		select {
		case <-changes:
			isDue = true
		default:
		}

		if cluster, isRead := read(); isDue && isRead {
			if err := c.write(ctx, cluster); err != nil {
				return err
			}

			isDue = false
		}

		if err := c.agent.Wait(ctx, policyInterval); err != nil {
			return err
		}
	}
}

// readWritten reads the rules that an earlier process or another machine has written.
func (c *policyCompiler) readWritten(ctx context.Context) error {
	var list struct {
		Items []policyMap `json:"items"`
	}
	if err := c.api.Get(ctx, policyMapsPath, &list); err != nil {
		return err
	}

	c.written = map[string]string{}
	for _, item := range list.Items {
		if text, found := item.Data[policyRulesKey]; found {
			c.written[item.Metadata.Name] = text
		}
	}

	return nil
}

// policyMap is a ConfigMap with the rules of a node.
type policyMap struct {
	APIVersion string            `json:"apiVersion"`
	Kind       string            `json:"kind"`
	Metadata   policyMapMetadata `json:"metadata"`
	Data       map[string]string `json:"data"`
}

type policyMapMetadata struct {
	Name      string `json:"name"`
	Namespace string `json:"namespace"`
}

// write writes the rules that differ from those in the ConfigMaps, and deletes ConfigMaps of nodes without rules.
func (c *policyCompiler) write(ctx context.Context, cluster netpolicy.Cluster) error {
	nodes, compileErr := netpolicy.Compile(cluster) // what could be compiled is written
	errs := []error{compileErr}

	for _, name := range slices.Sorted(maps.Keys(nodes)) {
		text, err := json.Marshal(nodes[name])
		if err != nil {
			return fmt.Errorf("encode the network policies of node %s: %w", name, err)
		}

		if c.written[name] == string(text) {
			continue
		}

		errs = append(errs, c.writeMap(ctx, name, string(text)))
	}

	for _, name := range slices.Sorted(maps.Keys(c.written)) {
		if _, needed := nodes[name]; needed {
			continue
		}

		err := c.api.Delete(ctx, policyMapsPath+"/"+name)
		if err == nil {
			delete(c.written, name)
		}

		errs = append(errs, err)
	}

	return errors.Join(errs...)
}

// writeMap writes the rules of one node.
func (c *policyCompiler) writeMap(ctx context.Context, name, rules string) error {
	object, err := json.Marshal(policyMap{
		APIVersion: "v1",
		Kind:       "ConfigMap",
		Metadata:   policyMapMetadata{Name: name, Namespace: policyNamespace},
		Data:       map[string]string{policyRulesKey: rules},
	})
	if err != nil {
		return fmt.Errorf("encode the network policies of node %s: %w", name, err)
	}

	if err := c.api.Apply(ctx, policyMapsPath+"/"+name, object); err != nil {
		return fmt.Errorf("write the network policies of node %s: %w", name, err)
	}

	c.written[name] = rules

	return nil
}
