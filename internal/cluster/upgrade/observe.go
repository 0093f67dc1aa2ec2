// SPDX-License-Identifier: Apache-2.0

package upgrade

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	"github.com/slipway-k8s/slipway/api/v1alpha1"
	"github.com/slipway-k8s/slipway/internal/lib/diag"
	"github.com/slipway-k8s/slipway/internal/manifest"
)

// groupLabel is the label of a node with the name of its instance group.
const groupLabel = "slipway.dev/group"

// observeGroups returns the groups of the manifests that run Kubernetes. applied is zero if nothing was applied.
func observeGroups(set, applied manifest.Set) ([]Group, error) {
	var out []Group
	for _, g := range set.Groups {
		if g.Spec.Role == v1alpha1.RoleBastion {
			continue
		}

		desired, err := ParseVersion(manifest.GroupVersion(set.Cluster, g))
		if err != nil {
			return nil, fmt.Errorf("instancegroup/%s: %w", g.Metadata.Name, err)
		}

		group := Group{Name: g.Metadata.Name, ControlPlane: g.Spec.Role == v1alpha1.RoleControlPlane, Desired: desired}
		if old, known := applied.Group(g.Metadata.Name); known {
			if group.Applied, err = ParseVersion(manifest.GroupVersion(applied.Cluster, old)); err != nil {
				return nil, fmt.Errorf("the last apply of instancegroup/%s: %w", g.Metadata.Name, err)
			}
		}

		out = append(out, group)
	}

	return out, nil
}

// observeMachines returns the nodes of the cluster's groups with the versions of their kubelets.
func observeMachines(ctx context.Context, client kubernetes.Interface, groups []Group) ([]Machine, error) {
	nodes, err := client.CoreV1().Nodes().List(ctx, metav1.ListOptions{})
	if err != nil {
		return nil, diag.WithHint(
			fmt.Errorf("list nodes: %w", err),
			"an upgrade needs a healthy cluster; slipway validate cluster NAME shows why the API does not answer",
		)
	}

	byName := map[string]Group{}
	for _, g := range groups {
		byName[g.Name] = g
	}

	var out []Machine
	for _, n := range nodes.Items {
		g, known := byName[n.Labels[groupLabel]]
		if !known {
			continue // not of this cluster's groups
		}

		m, err := observeMachine(n, g)
		if err != nil {
			return nil, err
		}

		out = append(out, m)
	}

	return out, nil
}

func observeMachine(n corev1.Node, g Group) (Machine, error) {
	version, err := ParseVersion(n.Status.NodeInfo.KubeletVersion)
	if err != nil {
		return Machine{}, fmt.Errorf("node %s: %w", n.Name, err)
	}

	return Machine{Node: n.Name, Group: g.Name, ControlPlane: g.ControlPlane, Version: version}, nil
}

// otherChanges returns how the manifests differ from what was applied last, besides their versions.
func otherChanges(set, applied manifest.Set) []string {
	if applied.Cluster.Kind == "" {
		return nil
	}

	return manifest.Diff(withoutVersions(applied), withoutVersions(set))
}

// withoutVersions returns the set without versions of Kubernetes.
func withoutVersions(set manifest.Set) manifest.Set {
	set = manifest.Default(set)
	set.Cluster.Spec.KubernetesVersion = ""
	groups := make([]v1alpha1.InstanceGroup, 0, len(set.Groups))
	for _, g := range set.Groups {
		g.Spec.KubernetesVersion = ""
		groups = append(groups, g)
	}

	set.Groups = groups

	return set
}

// withVersions returns the set with the versions of groups. A group of the cluster's own version has no field.
func withVersions(set manifest.Set, versions map[string]Version) manifest.Set {
	groups := make([]v1alpha1.InstanceGroup, len(set.Groups))
	copy(groups, set.Groups)
	for _, g := range groups {
		if v, written := versions[g.Metadata.Name]; written && g.Spec.Role == v1alpha1.RoleControlPlane {
			set.Cluster.Spec.KubernetesVersion = v.String()
		}
	}

	for i := range groups {
		g := &groups[i]
		v, written := versions[g.Metadata.Name]
		if !written || g.Spec.Role == v1alpha1.RoleControlPlane {
			continue
		}

		g.Spec.KubernetesVersion = v.String()
		if g.Spec.KubernetesVersion == set.Cluster.Spec.KubernetesVersion {
			g.Spec.KubernetesVersion = ""
		}
	}

	set.Groups = groups

	return set
}
