// SPDX-License-Identifier: Apache-2.0

// Package manifest parses, defaults, validates, encodes and compares the documents of package
// v1alpha1.
//
// A Set is one cluster's documents. Parse reads a Set from YAML, or NewSet creates one from a few
// options. Default fills the unset fields from one table of rules, Validate reports everything that
// is wrong with the result, and EncodeYAML writes it back. All findings are collected, each with
// the path and value of its field and a hint.
//
// The package knows the rules of every field. It calls no API, and does not know how a cluster is
// built from a Set.
package manifest

import (
	"cmp"
	"slices"

	"github.com/slipway-k8s/slipway/api/v1alpha1"
)

// Set is one cluster's documents: the cluster and its instance groups, sorted by name.
type Set struct {
	// Cluster is the Cluster document. Its Kind is empty if the manifest contains none.
	Cluster v1alpha1.Cluster
	// Groups are the InstanceGroup documents, sorted by name.
	Groups []v1alpha1.InstanceGroup
	// DescribedTypes are the machine types that EC2 described because the embedded list does not contain them.
	// They are no part of the documents.
	DescribedTypes []InstanceType
}

// Group returns the instance group called name, and whether the set contains it.
func (s Set) Group(name string) (v1alpha1.InstanceGroup, bool) {
	for _, g := range s.Groups {
		if g.Metadata.Name == name {
			return g, true
		}
	}

	return v1alpha1.InstanceGroup{}, false
}

// ControlPlane returns the group of role ControlPlane, of which a valid set has exactly one. It
// returns a zero group if there is none.
func (s Set) ControlPlane() v1alpha1.InstanceGroup {
	for _, g := range s.Groups {
		if g.Spec.Role == v1alpha1.RoleControlPlane {
			return g
		}
	}

	return v1alpha1.InstanceGroup{}
}

// Workers returns the groups of role Worker, sorted by name.
func (s Set) Workers() []v1alpha1.InstanceGroup {
	return slices.DeleteFunc(
		slices.Clone(s.Groups),
		func(g v1alpha1.InstanceGroup) bool { return g.Spec.Role != v1alpha1.RoleWorker },
	)
}

// sortedByName returns the set with its groups sorted by name.
func (s Set) sortedByName() Set {
	s.Groups = slices.Clone(s.Groups)
	slices.SortStableFunc(
		s.Groups,
		func(a, b v1alpha1.InstanceGroup) int { return cmp.Compare(a.Metadata.Name, b.Metadata.Name) },
	)

	return s
}
