// SPDX-License-Identifier: Apache-2.0

package clusterstate

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"

	"github.com/slipway-k8s/slipway/internal/lib/store"
)

// ZonesKey is the key of the list of existing hosted zones in which the cluster may have records. A zone
// that the manifest no longer names stays in the list until an apply without it has succeeded.
func ZonesKey(cluster string) string { return cluster + "/zones.json" }

// ReadZones returns the ids of the zones and the object that they were read from. Both are empty if no
// manifest ever named a zone. With an error, a set ETag means that the object exists and cannot be parsed:
// an apply then overwrites it.
func ReadZones(ctx context.Context, s store.Store, cluster string) ([]string, store.Object, error) {
	o, err := s.Get(ctx, ZonesKey(cluster))
	if errors.Is(err, store.ErrNotFound) {
		return nil, store.Object{}, nil
	}

	if err != nil {
		return nil, o, err
	}

	var zones []string
	if err := json.Unmarshal(o.Body, &zones); err != nil {
		return nil, o, fmt.Errorf("read %s of %s: %w", ZonesKey(cluster), s.URL(), err)
	}

	return zones, o, nil
}
