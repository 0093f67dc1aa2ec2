// SPDX-License-Identifier: Apache-2.0

package source

import (
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"maps"
	"strings"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/slipway-k8s/slipway/api/v1alpha1"
	"github.com/slipway-k8s/slipway/internal/manifest"
)

// The names of the objects of a namespace, of which it has one each. Role bindings have the name of their ClusterRole.
const (
	quotaName         = "quota"
	limitRangeName    = "containers"
	networkPolicyName = "default"
)

// rbacGroup is the API group of roles.
const rbacGroup = "rbac.authorization.k8s.io"

// namespaceObjects returns the namespaces with the objects that their fields ask for.
func (r Reader) namespaceObjects(
	ctx context.Context,
	namespaces []v1alpha1.AddonNamespace,
) ([]*unstructured.Unstructured, error) {
	var out []*unstructured.Unstructured
	var errs []error

	for _, n := range namespaces {
		out = append(out, namespaceObject(n))
		for _, b := range n.RoleBindings {
			out = append(out, roleBinding(n.Name, b))
		}

		if len(n.ResourceQuota) > 0 {
			quota := newObject("v1", "ResourceQuota", n.Name, quotaName)
			quota.Object["spec"] = map[string]any{"hard": toAnyMap(n.ResourceQuota)}
			out = append(out, quota)
		}

		if limits := limitRange(n); limits != nil {
			out = append(out, limits)
		}

		if n.NetworkPolicy != "" {
			out = append(out, networkPolicy(n))
		}

		for _, name := range n.RegistrySecrets {
			secret, err := r.registrySecret(ctx, n.Name, name)
			if err != nil {
				errs = append(errs, fmt.Errorf("namespace %s: registry secret %s: %w", n.Name, name, err))
				continue
			}

			out = append(out, secret)
		}
	}

	return out, errors.Join(errs...)
}

// registrySecret returns the Secret with which the kubelet pulls images from a private registry.
func (r Reader) registrySecret(ctx context.Context, namespace, name string) (*unstructured.Unstructured, error) {
	if r.ReadSecret == nil {
		return nil, errors.New("there is no state store to read it from")
	}

	text, err := r.ReadSecret(ctx, name)
	if err != nil {
		return nil, err
	}

	o := newObject("v1", "Secret", namespace, name)
	o.Object["type"] = "kubernetes.io/dockerconfigjson"
	o.Object["data"] = map[string]any{".dockerconfigjson": base64.StdEncoding.EncodeToString(text)}

	return o, nil
}

// newObject returns an object without content. namespace is empty for one that is in none.
func newObject(apiVersion, kind, namespace, name string) *unstructured.Unstructured {
	o := &unstructured.Unstructured{Object: map[string]any{}}
	o.SetAPIVersion(apiVersion)
	o.SetKind(kind)
	o.SetName(name)
	o.SetNamespace(namespace)

	return o
}

func namespaceObject(n v1alpha1.AddonNamespace) *unstructured.Unstructured {
	o := newObject("v1", "Namespace", "", n.Name)
	labels := maps.Clone(n.Labels)
	if n.PodSecurity != "" {
		if labels == nil {
			labels = map[string]string{}
		}

		labels[manifest.PodSecurityLabel] = n.PodSecurity
	}

	if len(labels) > 0 {
		o.SetLabels(labels)
	}

	if len(n.Annotations) > 0 {
		o.SetAnnotations(n.Annotations)
	}

	return o
}

// roleBinding returns the binding of a ClusterRole. A ClusterRole cannot be replaced in a binding, so each has its own.
func roleBinding(namespace string, b v1alpha1.AddonRoleBinding) *unstructured.Unstructured {
	o := newObject(rbacGroup+"/v1", "RoleBinding", namespace, b.ClusterRole)
	o.Object["roleRef"] = map[string]any{"apiGroup": rbacGroup, "kind": "ClusterRole", "name": b.ClusterRole}

	var subjects []any
	for _, group := range b.Groups {
		subjects = append(subjects, map[string]any{"apiGroup": rbacGroup, "kind": "Group", "name": group})
	}

	for _, user := range b.Users {
		subjects = append(subjects, map[string]any{"apiGroup": rbacGroup, "kind": "User", "name": user})
	}

	for _, account := range b.ServiceAccounts {
		of, name, isOther := strings.Cut(account, "/")
		if !isOther {
			of, name = namespace, account
		}

		subjects = append(subjects, map[string]any{"kind": "ServiceAccount", "namespace": of, "name": name})
	}

	o.Object["subjects"] = subjects

	return o
}

// limitRange returns the limits of containers, or nil if there are none.
func limitRange(n v1alpha1.AddonNamespace) *unstructured.Unstructured {
	l := n.ContainerLimits
	if l == nil {
		return nil
	}

	item := map[string]any{"type": "Container"}
	for field, amounts := range map[string]map[string]string{
		"defaultRequest": l.DefaultRequests,
		"default":        l.DefaultLimits,
		"max":            l.Max,
	} {
		if len(amounts) > 0 {
			item[field] = toAnyMap(amounts)
		}
	}

	if len(item) == 1 {
		return nil
	}

	o := newObject("v1", "LimitRange", n.Name, limitRangeName)
	o.Object["spec"] = map[string]any{"limits": []any{item}}

	return o
}

// networkPolicy returns a policy of all pods of a namespace for connections to them.
func networkPolicy(n v1alpha1.AddonNamespace) *unstructured.Unstructured {
	spec := map[string]any{"podSelector": map[string]any{}, "policyTypes": []any{"Ingress"}}
	if n.NetworkPolicy == v1alpha1.NetworkPolicySameNamespace {
		spec["ingress"] = []any{map[string]any{"from": []any{map[string]any{"podSelector": map[string]any{}}}}}
	}

	o := newObject("networking.k8s.io/v1", "NetworkPolicy", n.Name, networkPolicyName)
	o.Object["spec"] = spec

	return o
}

// toAnyMap returns a map as objects have it.
func toAnyMap(in map[string]string) map[string]any {
	out := map[string]any{}
	for k, v := range in {
		out[k] = v
	}

	return out
}
