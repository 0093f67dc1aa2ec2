// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"bytes"
	"context"
	"encoding/json"
	"maps"
	"net/http"
	"slices"

	"github.com/slipway-k8s/slipway/internal/lib/pki"
	"github.com/slipway-k8s/slipway/internal/machine/kube"
)

// apiReadiness is how far an API server has started.
type apiReadiness int

const (
	// apiStarting answers some requests wrongly.
	apiStarting apiReadiness = iota
	// apiAuthorizes answers requests rightly, but is not in the endpoints of the Service kubernetes yet, or
	// the cluster has no rules for administrators yet.
	apiAuthorizes
	// apiServes has everything.
	apiServes
)

// apiServerCheck checks how far an API server has started.
type apiServerCheck struct {
	// api is a client of the API server that needs no rule of RBAC.
	api kube.Client
	// address of the API server in the endpoints of the Service kubernetes.
	address string
}

// readiness returns how far the API server has started.
func (c apiServerCheck) readiness(ctx context.Context) apiReadiness {
	// Its check informer-sync succeeds when the rules of RBAC were read.
	if _, err := c.api.Do(ctx, http.MethodGet, "/readyz", "", nil); err != nil {
		return apiStarting
	}

	// A rule that every cluster has proves it.
	scheduler := map[string]any{"user": "system:kube-scheduler"}
	if !c.isAllowed(ctx, scheduler, "list", "pods") {
		return apiStarting
	}

	administrators := map[string]any{"user": "slipway", "groups": []string{pki.AdminGroup}}
	if !c.isAllowed(ctx, administrators, "list", "nodes") || !c.isEndpoint(ctx) {
		return apiAuthorizes
	}

	return apiServes
}

// isAllowed asks the API server whether it would authorize a request.
func (c apiServerCheck) isAllowed(ctx context.Context, who map[string]any, verb, resource string) bool {
	spec := map[string]any{"resourceAttributes": map[string]string{"verb": verb, "resource": resource}}
	maps.Copy(spec, who)

	body, err := json.Marshal(map[string]any{
		"apiVersion": "authorization.k8s.io/v1",
		"kind":       "SubjectAccessReview",
		"spec":       spec,
	})
	if err != nil {
		return false
	}

	answer, err := c.api.Do(ctx, http.MethodPost, "/apis/authorization.k8s.io/v1/subjectaccessreviews",
		"application/json", bytes.TrimSpace(body))
	if err != nil {
		return false
	}

	var review struct {
		Status struct {
			Allowed bool `json:"allowed"`
		} `json:"status"`
	}

	return json.Unmarshal(answer, &review) == nil && review.Status.Allowed
}

// isEndpoint reports whether the API server is an endpoint of the Service kubernetes. API servers that stop
// remove themselves; when all restarted, the Service has no endpoint until the first of them is ready.
func (c apiServerCheck) isEndpoint(ctx context.Context) bool {
	var object struct {
		Endpoints []struct {
			Addresses []string `json:"addresses"`
		} `json:"endpoints"`
	}
	path := "/apis/discovery.k8s.io/v1/namespaces/default/endpointslices/kubernetes"
	if err := c.api.Get(ctx, path, &object); err != nil {
		return false
	}

	for _, e := range object.Endpoints {
		if slices.Contains(e.Addresses, c.address) {
			return true
		}
	}

	return false
}
