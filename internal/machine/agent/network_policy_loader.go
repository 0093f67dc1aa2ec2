// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"strings"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/slipway-k8s/slipway/api/v1alpha1"
	"github.com/slipway-k8s/slipway/internal/machine/kube"
	"github.com/slipway-k8s/slipway/internal/machine/netpolicy"
	"github.com/slipway-k8s/slipway/internal/machine/nft"
)

const (
	// policyFile is the ruleset that nft loads.
	policyFile = "/run/slipway/network-policy.nft"
	// policyCheckInterval is how soon rules that somebody has deleted are loaded again.
	policyCheckInterval = 30 * time.Second
)

// PolicyRules are the rules of NetworkPolicies in the kernel.
type PolicyRules interface {
	// Load replaces them.
	Load(ctx context.Context, ruleset string) error
	// Exist reports whether there are any.
	Exist(ctx context.Context) (bool, error)
}

// kernelPolicyRules loads rules with nft.
type kernelPolicyRules struct {
	root    *HostFS
	program *nft.Program
}

// Load implements [PolicyRules].
func (k kernelPolicyRules) Load(ctx context.Context, ruleset string) error {
	if _, err := k.root.Write(File{Path: policyFile, Body: []byte(ruleset), Mode: 0o600}); err != nil {
		return err
	}

	_, err := k.program.Run(ctx, "-f", policyFile)

	return err
}

// Exist implements [PolicyRules].
func (k kernelPolicyRules) Exist(ctx context.Context) (bool, error) {
	tables, err := k.program.Run(ctx, "list", "tables", "inet")

	return strings.Contains(tables, "table inet "+netpolicy.Table+"\n"), err
}

// policyLoader loads the rules of this machine's node.
type policyLoader struct {
	agent *Agent
	api   kube.Client
	rules PolicyRules

	loaded  string // empty: unknown
	checkAt time.Time
}

func newPolicyLoader(a *Agent) *policyLoader {
	api := a.newNodeClient()
	if a.doc.Role == v1alpha1.RoleControlPlane {
		api = a.newAdminClient()
	}

	return &policyLoader{agent: a, api: api, rules: a.PolicyRules}
}

// run loads the rules after each change until ctx ends. While the API does not answer, the kernel keeps those it has.
func (l *policyLoader) run(ctx context.Context) error {
	if l.rules == nil || l.agent.doc.HasNetworkOfChannel() {
		<-ctx.Done()
		return ctx.Err()
	}

	group, ctx := errgroup.WithContext(ctx)
	changes := make(chan struct{}, 1)
	mirror := &kube.Mirror[policyMap]{
		Client: l.api,
		Path:   policyMapsPath + "?fieldSelector=" + url.QueryEscape("metadata.name="+l.agent.instance.Name),
		Changed: func() {
			select {
			case changes <- struct{}{}:
			default:
			}
		},
		Wait: l.agent.Wait,
	}
	group.Go(func() error { return mirror.Run(ctx) })
	group.Go(func() error { return l.follow(ctx, changes, mirror) })

	return group.Wait()
}

// follow loads the rules when they have changed, and when they are no longer in the kernel.
func (l *policyLoader) follow(ctx context.Context, changes <-chan struct{}, mirror *kube.Mirror[policyMap]) error {
	a := l.agent
	failures := failureLog{agent: a, task: "network policy rules"}
	for {
		isDue := !a.Now().Before(l.checkAt)
		select {
		case <-changes:
			isDue = true
		default:
		}

		if maps, isRead := mirror.Objects(); isDue && isRead {
			failures.note(l.load(ctx, maps))
			l.checkAt = a.Now().Add(policyCheckInterval)
		}

		if err := a.Wait(ctx, policyInterval); err != nil {
			return err
		}
	}
}

// load loads the rules of the node's ConfigMap, or removes all without one. Rules that cannot be read change nothing.
func (l *policyLoader) load(ctx context.Context, maps []policyMap) error {
	var rules netpolicy.NodeRules
	for _, m := range maps {
		parsed, err := netpolicy.ParseNodeRules([]byte(m.Data[policyRulesKey]))
		if err != nil {
			return fmt.Errorf("ConfigMap %s/%s: %w", policyNamespace, m.Metadata.Name, err)
		}

		rules = parsed
	}

	ruleset := rules.Ruleset()
	exist, err := l.rules.Exist(ctx)
	wanted := ruleset != netpolicy.Remove

	switch {
	case err != nil:
		return err
	case !wanted && !exist, wanted && exist && ruleset == l.loaded:
		l.loaded = ruleset
		return nil
	}

	if err := l.rules.Load(ctx, ruleset); err != nil {
		return errors.Join(errors.New("load the rules of network policies"), err)
	}

	l.loaded = ruleset

	return nil
}
