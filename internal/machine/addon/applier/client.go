// SPDX-License-Identifier: Apache-2.0

package applier

import (
	"context"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// Client makes requests about objects of any kind. Package dynamicclient has the one of client-go; the agent, which does
// not link that, has its own.
type Client interface {
	// Resource returns the objects of a resource in a namespace. Without one these are all objects of the resource.
	Resource(resource schema.GroupVersionResource, namespace string) Resource
}

// Resource are objects of one kind. Errors are those of package k8s.io/apimachinery/pkg/api/errors. The methods are as
// those of client-go's dynamic.ResourceInterface, which satisfies it.
type Resource interface {
	// Get returns an object.
	Get(ctx context.Context, name string, o metav1.GetOptions, subresources ...string) (*unstructured.Unstructured, error)
	// List returns the objects with a label.
	List(ctx context.Context, o metav1.ListOptions) (*unstructured.UnstructuredList, error)
	// Apply applies an object with server-side apply, and returns it as it is stored then.
	Apply(
		ctx context.Context,
		name string,
		object *unstructured.Unstructured,
		o metav1.ApplyOptions,
		subresources ...string,
	) (*unstructured.Unstructured, error)
	// Create creates an object, which must not exist.
	Create(
		ctx context.Context,
		object *unstructured.Unstructured,
		o metav1.CreateOptions,
		subresources ...string,
	) (*unstructured.Unstructured, error)
	// Update replaces an object.
	Update(
		ctx context.Context,
		object *unstructured.Unstructured,
		o metav1.UpdateOptions,
		subresources ...string,
	) (*unstructured.Unstructured, error)
	// Delete deletes an object.
	Delete(ctx context.Context, name string, o metav1.DeleteOptions, subresources ...string) error
}
