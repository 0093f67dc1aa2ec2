// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"

	"github.com/slipway-k8s/slipway/internal/lib/store"
)

// The ways in which a cluster's resources are made. A cluster has one: two would undo what the other does.
const (
	provisionerDirect = "direct"
	provisionerStack  = "cloudformation"
)

// provisionerRecord is what the state store remembers of how a cluster is made.
type provisionerRecord struct {
	Via string `json:"via"`
}

// provisionerKey is where it lies.
func provisionerKey(name string) string { return name + "/way.json" }

// readProvisioner returns how a cluster is made; empty if nothing has been made yet, or by a slipway that did not note it.
func readProvisioner(ctx context.Context, s store.Store, name string) (string, error) {
	o, err := s.Get(ctx, provisionerKey(name))
	if errors.Is(err, store.ErrNotFound) {
		return "", nil
	}

	if err != nil {
		return "", err
	}

	var w provisionerRecord
	if err := json.Unmarshal(o.Body, &w); err != nil {
		return "", fmt.Errorf("read %s of %s: %w", provisionerKey(name), s.URL(), err)
	}

	return w.Via, nil
}

// ensureProvisioner notes how a cluster is made, before anything of it is.
func ensureProvisioner(ctx context.Context, s store.Store, name, via string) error {
	have, err := readProvisioner(ctx, s, name)
	if err != nil || have == via {
		return err
	}

	_, err = createProvisionerRecord(ctx, s, name, via)

	return err
}

// createProvisionerRecord is [ensureProvisioner] where nothing was noted a moment ago. It returns what it wrote.
func createProvisionerRecord(ctx context.Context, s store.Store, name, via string) (store.Object, error) {
	o := store.Object{Key: provisionerKey(name)}
	var err error
	if o.Body, err = json.Marshal(provisionerRecord{Via: via}); err != nil {
		return o, fmt.Errorf("print %s: %w", o.Key, err)
	}

	if o.ETag, err = s.Create(ctx, o.Key, o.Body); !errors.Is(err, store.ErrConflict) {
		return o, err
	}

	if have, readErr := readProvisioner(ctx, s, name); readErr == nil &&
		have == via { // our own write, whose answer got lost
		return store.Object{}, nil
	}

	return o, fmt.Errorf("somebody else begins to make cluster %s just now: %w", name, err)
}

// usesStack says whether a cluster is made by CloudFormation: as it was begun, else as via says.
func usesStack(ctx context.Context, s store.Store, name, via string) (bool, error) {
	if via != "" && via != provisionerDirect && via != provisionerStack {
		return false, withHint(
			fmt.Errorf("--via %s is no way to make a cluster", via),
			"give --via direct or --via cloudformation",
		)
	}

	have, err := readProvisioner(ctx, s, name)
	if err != nil {
		return false, err
	}

	if have != "" && via != "" && have != via {
		return false, withHint(
			fmt.Errorf(
				"cluster %s is made by way of %s, not %s: each would undo what the other does",
				name,
				have,
				via,
			),
			"leave --via out; to change the way, delete the cluster and make it again",
		)
	}

	return have == provisionerStack || via == provisionerStack, nil
}

// stackManagedError says that a cluster is made by CloudFormation; its manifests are in it, for those that work so.
type stackManagedError struct{ desired *desiredState }

// Error implements error, for whoever works without CloudFormation.
func (e stackManagedError) Error() string {
	return "cluster " + e.desired.manifests.Cluster.Metadata.Name + " is made by CloudFormation; this can not be done with it"
}
