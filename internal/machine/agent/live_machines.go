// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strings"

	"github.com/slipway-k8s/slipway/internal/machine/join"
	"github.com/slipway-k8s/slipway/internal/machine/kube"
	"github.com/slipway-k8s/slipway/internal/machine/node"
)

// The ConfigMap slipway-live-machines holds the instance id of each live worker by the name of its node. An admission
// policy lets a kubelet create a Node only with a name in it, and only with the certificate of that instance. So the
// certificate of a terminated machine, which is valid for some more hours, registers no node.
const (
	liveMachinesName = "slipway-live-machines"
	configMapsPath   = "/api/v1/namespaces/kube-system/configmaps"
	liveMachinesPath = configMapsPath + "/" + liveMachinesName
)

type liveMachinesMap struct {
	Data map[string]string `json:"data"`
}

// announceMachine adds a worker that gets a certificate. The list is created by [recordLiveMachines], which knows all
// machines; until then the policy allows every name.
func announceMachine(ctx context.Context, api kube.Client, m join.Machine) error {
	patch := liveMachinesMap{Data: map[string]string{strings.ToLower(m.Name): m.ID}}
	if err := api.MergePatch(ctx, liveMachinesPath, patch); err != nil && !errors.Is(err, kube.ErrNotFound) {
		return fmt.Errorf("announce machine %s: %w", m.ID, err)
	}

	return nil
}

// readLiveMachines returns the list, and whether it exists.
func readLiveMachines(ctx context.Context, api kube.Client) (map[string]string, bool, error) {
	var have liveMachinesMap
	err := api.Get(ctx, liveMachinesPath, &have)
	if errors.Is(err, kube.ErrNotFound) {
		return nil, false, nil
	}

	if err != nil {
		return nil, false, fmt.Errorf("read the list of live machines: %w", err)
	}

	return have.Data, true, nil
}

// recordLiveMachines changes the list, or creates it with the values of changes.
func recordLiveMachines(ctx context.Context, api kube.Client, exists bool, changes map[string]any) error {
	if !exists {
		return createLiveMachines(ctx, api, changes)
	}

	if len(changes) == 0 {
		return nil
	}

	if err := api.MergePatch(ctx, liveMachinesPath, map[string]any{"data": changes}); err != nil {
		return fmt.Errorf("record live machines: %w", err)
	}

	return nil
}

// liveWorkers returns the ids of the live workers by the names of their nodes.
func liveWorkers(machines []Machine) map[string]string {
	out := map[string]string{}
	for _, m := range machines {
		if m.Name != "" && !m.isTerminated() && m.Role == node.RoleTagWorker {
			out[strings.ToLower(m.Name)] = m.ID
		}
	}

	return out
}

// diffLiveMachines returns the merge patch that makes have into want.
func diffLiveMachines(have, want map[string]string) map[string]any {
	changes := map[string]any{}
	for name, id := range want {
		if have[name] != id {
			changes[name] = id
		}
	}

	for name := range have {
		if want[name] == "" {
			changes[name] = nil
		}
	}

	return changes
}

func createLiveMachines(ctx context.Context, api kube.Client, data map[string]any) error {
	body, err := json.Marshal(map[string]any{
		"apiVersion": "v1",
		"kind":       "ConfigMap",
		"metadata":   map[string]string{"name": liveMachinesName},
		"data":       data,
	})
	if err != nil {
		return fmt.Errorf("record live machines: %w", err)
	}

	_, err = api.Do(ctx, http.MethodPost, configMapsPath, "application/json", body)
	if err != nil && !errors.Is(err, kube.ErrConflict) { // another control-plane machine was faster
		return fmt.Errorf("record live machines: %w", err)
	}

	return nil
}
