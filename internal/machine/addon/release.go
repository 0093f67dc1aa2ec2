// SPDX-License-Identifier: Apache-2.0

package addon

import (
	"fmt"
	"strings"

	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/slipway-k8s/slipway/api/v1alpha1"
	"github.com/slipway-k8s/slipway/internal/machine/addon/applier"
	"github.com/slipway-k8s/slipway/internal/machine/addon/bundle"
)

// Channel is the name of the channel that the add-ons of every cluster are recorded as.
const Channel = v1alpha1.SystemChannel

// Releases returns the add-ons of every cluster as package applier applies them, in the order of Render. Their version is
// that of Kubernetes that they come with, such as 1.36.3.
func Releases(v Values, version string) ([]applier.Release, error) {
	rendered, err := Render(v)
	if err != nil {
		return nil, err
	}

	var out []applier.Release

	for _, o := range rendered {
		if len(out) == 0 || out[len(out)-1].Addon.Name != o.Addon {
			out = append(out, applier.Release{
				Addon:   v1alpha1.Addon{Name: o.Addon, Version: version},
				Channel: Channel,
				Wave:    1,
			})
		}

		var object unstructured.Unstructured
		if err := object.UnmarshalJSON(o.Body); err != nil {
			return nil, fmt.Errorf("add-on %s: %s: %w", o.Addon, o.Path, err)
		}

		release := &out[len(out)-1]
		release.Objects = append(release.Objects, &object)
	}

	for i := range out {
		out[i].Objects, err = bundle.Prepare(out[i].Addon.Name, out[i].Objects, nil, nil)
		if err != nil {
			return nil, fmt.Errorf("add-on %s: %w", out[i].Addon.Name, err)
		}
	}

	return out, nil
}

// addonOf returns the name of the add-on that a manifest belongs to. The files before kube-proxy's are rules of the API
// server, which are one add-on.
func addonOf(file string) string {
	order, rest, _ := strings.Cut(file, "-")
	if order < "20" {
		return v1alpha1.SystemAddonPrefix + "rules"
	}

	return v1alpha1.SystemAddonPrefix + strings.TrimSuffix(rest, ".yaml")
}

// kind is a kind of the embedded manifests.
type kind struct {
	group, version, name string
	// resource is the kind's name in paths.
	resource   string
	namespaced bool
}

// kinds are those that the manifests have or had in an earlier version: what a cluster still has of these is deleted.
// Those of new add-ons must be added here; none may be removed.
func kinds() []kind {
	const (
		apps      = "apps"
		policy    = "policy"
		admission = "admissionregistration.k8s.io"
		rbac      = "rbac.authorization.k8s.io"
	)

	return []kind{
		{"", "v1", "Namespace", "namespaces", false},
		{"", "v1", "ConfigMap", "configmaps", true},
		{"", "v1", "Service", "services", true},
		{"", "v1", "ServiceAccount", "serviceaccounts", true},
		{apps, "v1", "DaemonSet", "daemonsets", true},
		{apps, "v1", "Deployment", "deployments", true},
		{policy, "v1", "PodDisruptionBudget", "poddisruptionbudgets", true},
		{"networking.k8s.io", "v1", "NetworkPolicy", "networkpolicies", true},
		{rbac, "v1", "ClusterRole", "clusterroles", false},
		{rbac, "v1", "ClusterRoleBinding", "clusterrolebindings", false},
		{rbac, "v1", "Role", "roles", true},
		{rbac, "v1", "RoleBinding", "rolebindings", true},
		{admission, "v1", "ValidatingAdmissionPolicy", "validatingadmissionpolicies", false},
		{admission, "v1", "ValidatingAdmissionPolicyBinding", "validatingadmissionpolicybindings", false},
	}
}

// kindNamed returns a kind of the manifests.
func kindNamed(name string) (kind, bool) {
	for _, k := range kinds() {
		if k.name == name {
			return k, true
		}
	}

	return kind{}, false
}

// NewMapper returns the resources of all kinds that the add-ons of clusters have. It asks no API server.
func NewMapper() meta.ResettableRESTMapper {
	mapper := meta.NewDefaultRESTMapper(nil)
	for _, k := range kinds() {
		scope := meta.RESTScopeRoot
		if k.namespaced {
			scope = meta.RESTScopeNamespace
		}

		group := schema.GroupVersion{Group: k.group, Version: k.version}
		mapper.AddSpecific(group.WithKind(k.name), group.WithResource(k.resource), group.WithResource(strings.ToLower(k.name)), scope)
	}

	return fixedMapper{RESTMapper: mapper}
}

// fixedMapper is a mapper that does not change.
type fixedMapper struct {
	meta.RESTMapper
}

// Reset implements [meta.ResettableRESTMapper].
func (fixedMapper) Reset() {}
