// SPDX-License-Identifier: Apache-2.0

// Package explain adds to the steps of a plan what a reader must know before approving them: the content of
// new rules, policies and records, the settings that differ inside of user data, node documents and policies,
// and what each change does to what is running.
//
// All of it is computed from data; the package reads nothing and changes no step but its explanations.
package explain

import (
	"github.com/slipway-k8s/slipway/internal/infra/graph"
	"github.com/slipway-k8s/slipway/internal/infra/plan"
)

// Input is what the explanations are computed from, besides the steps.
type Input struct {
	// Graph of the desired resources. It may be nil.
	Graph *graph.Graph
	// Document returns the node document with a key in the machine store; false if it is not known.
	Document func(key string) ([]byte, bool)
	// Rolls is set if the provisioner replaces the machines of a changed group, as CloudFormation does.
	Rolls bool
	// Tool and FormerTool are the versions of Slipway that plan and that applied last. FormerTool may be
	// empty.
	Tool, FormerTool string
}

// Steps returns the steps with explanations.
func Steps(steps []plan.Step, in Input) []plan.Step {
	created := map[graph.Addr]string{}
	for _, s := range steps {
		if s.Action == plan.Create {
			created[s.Addr] = s.Kind
		}
	}

	out := make([]plan.Step, 0, len(steps))
	for _, s := range steps {
		s = in.explainContent(s)
		out = append(out, setStepEffect(s, in.Rolls, in.createdKinds(s, created)))
	}

	return out
}

// UserDataProperty is the property of a launch template whose settings are explained.
const UserDataProperty = "LaunchTemplateData.UserData"

// createdKinds returns the kinds of the resources that s refers to and that the plan creates, by address in created.
func (in Input) createdKinds(s plan.Step, created map[graph.Addr]string) []string {
	if in.Graph == nil || in.Graph.Node(s.Addr) == nil {
		return nil
	}

	var out []string
	for _, dep := range in.Graph.Node(s.Addr).Deps {
		if kind, isCreated := created[dep]; isCreated {
			out = append(out, kind)
		}
	}

	return out
}

// explainContent returns s with its content, and its changes with their settings and effects.
func (in Input) explainContent(s plan.Step) plan.Step {
	s.Content = append(describeContent(in.resourceOf(s), s.Action), in.describeAuthority(s)...)
	changes := make([]plan.Change, 0, len(s.Changes))

	for _, c := range s.Changes {
		c = setChangeEffect(c, s, in.Rolls)
		switch {
		case c.Property == UserDataProperty:
			c.Settings = in.userDataSettings(s, c)
			if e, follows := followedEffect(c.Settings); follows && !in.Rolls {
				c.Effect = e.effect
				c.EffectText = e.text
			}

		case isPolicyProperty(c.Property):
			c.Settings = policySettings(c)
		}

		changes = append(changes, c)
	}

	if s.Changes != nil {
		s.Changes = changes
	}

	return s
}

// resourceOf returns the resource that s creates, or the one that it deletes; nil if it is not known.
func (in Input) resourceOf(s plan.Step) graph.Resource {
	if r := s.Desired(); r != nil {
		return r
	}

	if s.Action != plan.Delete && in.Graph != nil {
		if n := in.Graph.Node(s.Addr); n != nil {
			return n.Resource
		}
	}

	return s.Actual()
}
