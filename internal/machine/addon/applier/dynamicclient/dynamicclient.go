// SPDX-License-Identifier: Apache-2.0

// Package dynamicclient lets package applier make its requests with client-go's dynamic client. It is apart from it because
// the agent, which applies the add-ons of every cluster, does not link client-go: its binary would be half as large again.
package dynamicclient

import (
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic"

	"github.com/slipway-k8s/slipway/internal/machine/addon/applier"
)

// New returns a client of package applier. It is as safe for concurrent use as the given one.
func New(client dynamic.Interface) applier.Client {
	return adapter{client: client}
}

type adapter struct {
	client dynamic.Interface
}

// Resource implements [applier.Client].
func (a adapter) Resource(resource schema.GroupVersionResource, namespace string) applier.Resource {
	if namespace == "" {
		return a.client.Resource(resource)
	}

	return a.client.Resource(resource).Namespace(namespace)
}
