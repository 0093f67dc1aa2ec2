// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"strconv"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/slipway-k8s/slipway/internal/machine/addon/applier"
	"github.com/slipway-k8s/slipway/internal/machine/kube"
)

// objectClient makes the requests of package applier. With client-go's dynamic client the agent would be 13 MB larger.
type objectClient struct {
	api kube.Client
}

// Resource implements [applier.Client].
func (c objectClient) Resource(resource schema.GroupVersionResource, namespace string) applier.Resource {
	path := "/apis/" + resource.Group + "/" + resource.Version
	if resource.Group == "" {
		path = "/api/" + resource.Version
	}

	if namespace != "" {
		path += "/namespaces/" + url.PathEscape(namespace)
	}

	return objectResource{api: c.api, path: path + "/" + resource.Resource}
}

// objectResource implements [applier.Resource]. It has no subresources.
type objectResource struct {
	api  kube.Client
	path string
}

// request sends a request for the object with a name, or for all without one.
func (r objectResource) request(ctx context.Context, method, name string, query url.Values, body any) ([]byte, error) {
	path := r.path
	if name != "" {
		path += "/" + url.PathEscape(name)
	}

	if len(query) > 0 {
		path += "?" + query.Encode()
	}

	var encoded []byte
	if body != nil {
		var err error
		if encoded, err = json.Marshal(body); err != nil {
			return nil, fmt.Errorf("encode the request to %s: %w", path, err)
		}
	}

	kind := "application/json"
	if method == http.MethodPatch {
		kind = "application/apply-patch+yaml"
	}

	answer, err := r.api.Do(ctx, method, path, kind, encoded)

	return answer, apiError(err)
}

// one decodes an answer with one object.
func one(answer []byte, err error) (*unstructured.Unstructured, error) {
	if err != nil {
		return nil, err
	}

	var out unstructured.Unstructured

	return &out, out.UnmarshalJSON(answer)
}

// Get implements [applier.Resource].
func (r objectResource) Get(ctx context.Context, name string, _ metav1.GetOptions, _ ...string) (*unstructured.Unstructured, error) {
	return one(r.request(ctx, http.MethodGet, name, nil, nil))
}

// List implements [applier.Resource].
func (r objectResource) List(ctx context.Context, o metav1.ListOptions) (*unstructured.UnstructuredList, error) {
	query := url.Values{}
	if o.LabelSelector != "" {
		query.Set("labelSelector", o.LabelSelector)
	}

	if o.Limit > 0 {
		query.Set("limit", strconv.FormatInt(o.Limit, 10))
	}

	answer, err := r.request(ctx, http.MethodGet, "", query, nil)
	if err != nil {
		return nil, err
	}

	var out unstructured.UnstructuredList

	return &out, out.UnmarshalJSON(answer)
}

// Apply implements [applier.Resource].
func (r objectResource) Apply(
	ctx context.Context,
	name string,
	object *unstructured.Unstructured,
	o metav1.ApplyOptions,
	_ ...string,
) (*unstructured.Unstructured, error) {
	query := writeQuery(o.FieldManager, o.DryRun)
	query.Set("force", strconv.FormatBool(o.Force))

	return one(r.request(ctx, http.MethodPatch, name, query, object))
}

// Create implements [applier.Resource].
func (r objectResource) Create(
	ctx context.Context,
	object *unstructured.Unstructured,
	o metav1.CreateOptions,
	_ ...string,
) (*unstructured.Unstructured, error) {
	return one(r.request(ctx, http.MethodPost, "", writeQuery(o.FieldManager, o.DryRun), object))
}

// Update implements [applier.Resource].
func (r objectResource) Update(
	ctx context.Context,
	object *unstructured.Unstructured,
	o metav1.UpdateOptions,
	_ ...string,
) (*unstructured.Unstructured, error) {
	query := writeQuery(o.FieldManager, o.DryRun)
	return one(r.request(ctx, http.MethodPut, object.GetName(), query, object))
}

// Delete implements [applier.Resource].
func (r objectResource) Delete(ctx context.Context, name string, o metav1.DeleteOptions, _ ...string) error {
	o.Kind = "DeleteOptions"
	o.APIVersion = "v1"
	_, err := r.request(ctx, http.MethodDelete, name, nil, o)

	return err
}

// writeQuery returns the parameters of a write.
func writeQuery(manager string, dryRun []string) url.Values {
	query := url.Values{"fieldManager": {manager}}
	if len(dryRun) > 0 {
		query["dryRun"] = dryRun
	}

	return query
}

// apiError returns an error as package k8s.io/apimachinery/pkg/api/errors has it.
func apiError(err error) error {
	var answered *kube.StatusError
	if !errors.As(err, &answered) {
		return err
	}

	var status metav1.Status
	if json.Unmarshal(answered.Body, &status) == nil && status.Kind == "Status" {
		return &apierrors.StatusError{ErrStatus: status}
	}

	return apierrors.NewGenericServerResponse(answered.Code, "", schema.GroupResource{}, "", string(answered.Body), 0, true)
}
