// SPDX-License-Identifier: Apache-2.0

package stackapply

import (
	"context"
	"fmt"

	sdkcfn "github.com/aws/aws-sdk-go-v2/service/cloudformation"

	"github.com/slipway-k8s/slipway/internal/cluster"
	"github.com/slipway-k8s/slipway/internal/infra/awskind"
	"github.com/slipway-k8s/slipway/internal/infra/graph"
	"github.com/slipway-k8s/slipway/internal/infra/plan"
	"github.com/slipway-k8s/slipway/internal/infra/stack"
)

// stackName is the name of a cluster's stack.
func stackName(name string) string { return "slipway-" + name }

// newStackNames returns an index that has the kinds of resources and no address yet.
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

// newStackClient returns a client of the cluster's stack and the display that its events go to.
func newStackClient(session *cluster.Session, names stack.NameIndex) (stack.Stack, cluster.Progress) {
	show := session.Env.StartProgress()
	return stack.Stack{
		API:      sdkcfn.NewFromConfig(session.Config),
		Name:     stackName(session.Name),
		Names:    names,
		Now:      session.Env.Now,
		OnEvent:  show.OnEvent,
		OnNotice: func(s string) { show.End(); session.Env.Notifyf("%s", s) },
	}, show
}

// addTemplateNames adds the logical ids in the deployed template to the names of s, except known ones. It
// returns the template, or a zero one if there is none.
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

// createSteps returns a plan that creates a whole graph.
func createSteps(g *graph.Graph) []plan.Step {
	var out []plan.Step
	for _, n := range g.Nodes() {
		out = append(out, plan.Step{Action: plan.Create, Addr: n.Addr, Kind: n.Resource.Kind().Name})
	}

	return out
}

// isDataKind reports whether resources of a kind hold data that cannot be recreated, or the key that
// decrypts it.
func isDataKind(kind string) bool {
	return kind == awskind.Volume{}.Kind().Name || kind == awskind.KMSKey{}.Kind().Name ||
		kind == awskind.KMSAlias{}.Kind().Name
}

// Description is the description of a cluster's template.
func Description(session *cluster.Session) string {
	return fmt.Sprintf("Kubernetes cluster %s in %s, made by slipway", session.Name, session.Config.Region)
}
