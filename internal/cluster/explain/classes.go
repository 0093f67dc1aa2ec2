// SPDX-License-Identifier: Apache-2.0

package explain

import (
	"slices"
	"strings"

	"github.com/slipway-k8s/slipway/internal/infra/plan"
	"github.com/slipway-k8s/slipway/internal/machine/node"
)

// The effects of changed settings of a node document on running machines.
const (
	effectLive    = "live"
	effectReplace = "needs new machines"
)

// addClasses returns the settings of two node documents with how running machines get them. The table is that of the
// agents, which apply them.
func addClasses(settings []plan.Setting, old, now []byte) []plan.Setting {
	before, err := node.ParseDocument(old)
	if err != nil {
		return settings // a document of another version of slipway
	}

	after, err := node.ParseDocument(now)
	if err != nil {
		return settings
	}

	changes, err := node.Compare(before, after)
	if err != nil {
		return settings
	}

	out := slices.Clone(settings)
	for i := range out {
		out[i].Effect = settingEffect(out[i].Setting, changes)
	}

	return out
}

// settingEffect returns the strongest effect of the changes that a shown setting consists of.
func settingEffect(setting string, changes []node.Change) string {
	var restarts []string
	for _, c := range changes {
		if c.Setting != setting && !strings.HasPrefix(c.Setting, setting+".") {
			continue
		}

		if c.NeedsMachine() {
			return effectReplace
		}

		restarts = append(restarts, c.Restarts...)
	}

	if len(restarts) == 0 {
		return effectLive
	}

	return "restarts " + strings.Join(inRestartOrder(restarts), ", ")
}

// inRestartOrder returns the distinct components in the order in which agents restart them.
func inRestartOrder(components []string) []string {
	return slices.DeleteFunc(node.RestartOrder(), func(c string) bool { return !slices.Contains(components, c) })
}

// followedEffect returns the effect of changed user data whose settings running machines apply themselves; false if
// one of the settings needs new machines or is not of the node document.
func followedEffect(settings []plan.Setting) (effect, bool) {
	var restarts []string
	for _, s := range settings {
		components, isRestart := strings.CutPrefix(s.Effect, "restarts ")
		switch {
		case isRestart:
			restarts = append(restarts, strings.Split(components, ", ")...)
		case s.Effect != effectLive:
			return effect{}, false
		}
	}

	switch {
	case len(settings) == 0:
		return effect{}, false
	case len(restarts) == 0:
		return effect{plan.NoEffect, "running machines follow it and restart nothing"}, true
	default:
		return effect{
			plan.NoEffect,
			"running machines follow it and restart " + strings.Join(inRestartOrder(restarts), ", "),
		}, true
	}
}
