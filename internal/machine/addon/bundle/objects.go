// SPDX-License-Identifier: Apache-2.0

package bundle

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/yaml"

	"github.com/slipway-k8s/slipway/internal/lib/yamltext"
)

// Reference names an object in a cluster.
type Reference struct {
	// Group and Version of the object's API; the core group is empty.
	Group   string `json:"group,omitempty"`
	Version string `json:"version"`
	// Kind such as Deployment.
	Kind string `json:"kind"`
	// Namespace is empty for kinds without namespaces.
	Namespace string `json:"namespace,omitempty"`
	// Name of the object.
	Name string `json:"name"`
}

// ReferenceOf returns the reference of an object.
func ReferenceOf(o *unstructured.Unstructured) Reference {
	gvk := o.GroupVersionKind()

	return Reference{
		Group:     gvk.Group,
		Version:   gvk.Version,
		Kind:      gvk.Kind,
		Namespace: o.GetNamespace(),
		Name:      o.GetName(),
	}
}

// String returns the reference as kubectl prints objects, such as Deployment kube-system/coredns.
func (r Reference) String() string {
	kind := r.Kind
	if r.Group != "" && strings.Contains(r.Group, ".") && !strings.HasSuffix(r.Group, ".k8s.io") {
		kind += "." + r.Group
	}

	if r.Namespace == "" {
		return kind + " " + r.Name
	}

	return kind + " " + r.Namespace + "/" + r.Name
}

// Unversioned returns the reference without its version. Two versions of an API have the same objects.
func (r Reference) Unversioned() Reference {
	r.Version = ""
	return r
}

// IsProtected reports whether the deletion of the object would delete what no manifest has: the objects of a namespace,
// all objects of a custom kind, or the data of a volume.
func (r Reference) IsProtected() bool {
	return r.IsNamespace() || r.IsVolume() || r.Group == groupExtensions && r.Kind == kindCRD
}

// IsNamespace reports whether the object is a Namespace.
func (r Reference) IsNamespace() bool {
	return r.Group == "" && r.Kind == kindNamespace
}

// IsVolume reports whether the object is a PersistentVolume or a claim of one. With reclaim policy Delete, its deletion
// deletes the disk.
func (r Reference) IsVolume() bool {
	return r.Group == "" && (r.Kind == kindVolume || r.Kind == kindClaim)
}

const (
	kindNamespace   = "Namespace"
	kindCRD         = "CustomResourceDefinition"
	kindVolume      = "PersistentVolume"
	kindClaim       = "PersistentVolumeClaim"
	groupExtensions = "apiextensions.k8s.io"
)

// maxObjects limits the objects of one manifest.
const maxObjects = 5000

// ReadObjects returns the objects of a manifest with YAML or JSON documents. The items of a List are objects of their own.
// All documents that are not valid are reported at once.
func ReadObjects(text []byte) ([]*unstructured.Unstructured, error) {
	var out []*unstructured.Unstructured
	var errs []error

	for n, doc := range yamltext.Split(text) {
		objects, err := readDocument(doc)
		if err != nil {
			errs = append(errs, fmt.Errorf("document %d, line %d: %w", n+1, doc.FirstLine, err))
			continue
		}

		out = append(out, objects...)
	}

	if len(out) > maxObjects {
		errs = append(errs, fmt.Errorf("%d objects are more than the limit of %d", len(out), maxObjects))
	}

	if err := errors.Join(errs...); err != nil {
		return nil, err
	}

	return out, nil
}

// readDocument returns the objects of one document.
func readDocument(doc yamltext.Document) ([]*unstructured.Unstructured, error) {
	text, err := yaml.YAMLToJSONStrict(doc.Text)
	if err != nil {
		return nil, err
	}

	if string(text) == "null" {
		return nil, nil
	}

	var o unstructured.Unstructured
	if err := o.UnmarshalJSON(text); err != nil {
		return nil, fmt.Errorf("not an object of Kubernetes: %w", err)
	}

	if !o.IsList() {
		return []*unstructured.Unstructured{&o}, checkObject(&o)
	}

	var out []*unstructured.Unstructured

	err = o.EachListItem(func(item runtime.Object) error {
		u, ok := item.(*unstructured.Unstructured)
		if !ok {
			return errors.New("an item of the list is not an object")
		}

		out = append(out, u)

		return checkObject(u)
	})

	return out, err
}

// checkObject returns an error if an object cannot be applied.
func checkObject(o *unstructured.Unstructured) error {
	switch {
	case o.GetAPIVersion() == "" || o.GetKind() == "":
		return errors.New("an object has no apiVersion or no kind")
	case o.GetName() == "" && o.GetGenerateName() != "":
		return fmt.Errorf(
			"%s with generateName %q: an object of an add-on needs a name",
			o.GetKind(),
			o.GetGenerateName(),
		)
	case o.GetName() == "":
		return fmt.Errorf("a %s has no metadata.name", o.GetKind())
	}

	if _, _, err := unstructured.NestedStringMap(o.Object, "metadata", "labels"); err != nil {
		return fmt.Errorf("%s %s: metadata.labels: %w", o.GetKind(), o.GetName(), err)
	}

	return nil
}

// kindOrder are the kinds that are applied before all others. Those of lastKinds are applied after them.
func kindOrder() []string {
	return []string{
		kindNamespace, kindCRD, "PriorityClass", "RuntimeClass", "StorageClass", "IngressClass", "ResourceQuota", "LimitRange",
		"NetworkPolicy", "ServiceAccount", "Secret", "ConfigMap", "ClusterRole", "ClusterRoleBinding", "Role", "RoleBinding",
		kindVolume, kindClaim, "Service", "PodDisruptionBudget",
	}
}

// lastKinds are applied last: with them the API server asks workloads of the same add-on.
func lastKinds() []string {
	return []string{"APIService", "ValidatingWebhookConfiguration", "MutatingWebhookConfiguration"}
}

// SortObjects sorts objects in the order in which they are applied. They are deleted in the opposite order.
func SortObjects(objects []*unstructured.Unstructured) {
	slices.SortStableFunc(objects, func(a, b *unstructured.Unstructured) int {
		return CompareReferences(ReferenceOf(a), ReferenceOf(b))
	})
}

// CompareReferences orders references as SortObjects does.
func CompareReferences(a, b Reference) int {
	return cmp.Or(
		cmp.Compare(rankOf(a), rankOf(b)),
		cmp.Compare(a.Kind, b.Kind),
		cmp.Compare(a.Group, b.Group),
		cmp.Compare(a.Namespace, b.Namespace),
		cmp.Compare(a.Name, b.Name),
	)
}

// rankOf returns the position of a kind. Custom kinds are among the workloads.
func rankOf(r Reference) int {
	first := kindOrder()
	builtin := !strings.Contains(r.Group, ".") || strings.HasSuffix(r.Group, ".k8s.io")
	if at := slices.Index(first, r.Kind); at >= 0 && builtin {
		return at
	}

	if at := slices.Index(lastKinds(), r.Kind); at >= 0 {
		return len(first) + 1 + at
	}

	return len(first)
}
