// SPDX-License-Identifier: Apache-2.0

// Package manifest reads, completes, checks and prints the documents of package v1alpha1. It knows the rules of every
// field, and nothing of how a cluster is built from them.
package manifest

import (
	"cmp"
	"slices"

	"github.com/slipway-k8s/slipway/api/v1alpha1"
)

// Set is one cluster's documents: the cluster and its instance groups, sorted by name.
type Set struct {
	Cluster v1alpha1.Cluster
	Groups  []v1alpha1.InstanceGroup
}

// Group returns the instance group with that name.
func (s Set) Group(name string) (v1alpha1.InstanceGroup, bool) {
	for _, g := range s.Groups {
		if g.Metadata.Name == name {
			return g, true
		}
	}

	return v1alpha1.InstanceGroup{}, false
}

// ControlPlane returns the control plane's group. A valid set has exactly one.
func (s Set) ControlPlane() v1alpha1.InstanceGroup {
	for _, g := range s.Groups {
		if g.Spec.Role == v1alpha1.RoleControlPlane {
			return g
		}
	}

	return v1alpha1.InstanceGroup{}
}

// Workers returns the groups of workers.
func (s Set) Workers() []v1alpha1.InstanceGroup {
	return slices.DeleteFunc(
		slices.Clone(s.Groups),
		func(g v1alpha1.InstanceGroup) bool { return g.Spec.Role != v1alpha1.RoleWorker },
	)
}

// sortedByName returns the set with its groups in the order of their names.
func (s Set) sortedByName() Set {
	s.Groups = slices.Clone(s.Groups)
	slices.SortStableFunc(
		s.Groups,
		func(a, b v1alpha1.InstanceGroup) int { return cmp.Compare(a.Metadata.Name, b.Metadata.Name) },
	)

	return s
}
