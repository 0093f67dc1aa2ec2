// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"time"

	"github.com/slipway-k8s/slipway/internal/machine/kube"
)

// leasesPath is where the leases of elections are.
const leasesPath = "/apis/coordination.k8s.io/v1/namespaces/kube-system/leases"

// microTime is the format of times in leases.
const microTime = "2006-01-02T15:04:05.000000Z"

// election elects one machine of the control plane, as client-go does: the leader renews a Lease, and another machine
// takes it over when it has not seen it change for the lease's duration. Clocks of machines are not compared.
type election struct {
	api kube.Client
	// name of the Lease.
	name string
	// holder is this machine's id.
	holder   string
	duration time.Duration
	now      func() time.Time

	seen   string    // holder and renewal that were seen last
	seenAt time.Time // when they were seen first
}

// leaseRecord holds the fields of a Lease that an election reads.
type leaseRecord struct {
	Metadata struct {
		ResourceVersion string `json:"resourceVersion"`
	} `json:"metadata"`
	Spec struct {
		HolderIdentity string `json:"holderIdentity"`
		RenewTime      string `json:"renewTime"`
	} `json:"spec"`
}

// lead takes or renews the lease, and reports whether this machine is the leader until the lease's duration ends.
func (e *election) lead(ctx context.Context) (bool, error) {
	var have leaseRecord
	err := e.api.Get(ctx, leasesPath+"/"+e.name, &have)
	if errors.Is(err, kube.ErrNotFound) {
		return e.write(ctx, http.MethodPost, leasesPath, "application/json", "")
	}

	if err != nil {
		return false, err
	}

	now := e.now()
	if seen := have.Spec.HolderIdentity + " " + have.Spec.RenewTime; seen != e.seen {
		e.seen = seen
		e.seenAt = now
	}

	isHeld := have.Spec.HolderIdentity != "" && have.Spec.HolderIdentity != e.holder
	if isHeld && now.Sub(e.seenAt) < e.duration {
		return false, nil
	}

	path := leasesPath + "/" + e.name

	return e.write(ctx, http.MethodPatch, path, "application/merge-patch+json", have.Metadata.ResourceVersion)
}

// write writes the lease with this machine as its holder. It returns false if another machine was faster.
func (e *election) write(ctx context.Context, method, path, kind, version string) (bool, error) {
	meta := map[string]string{"name": e.name, "namespace": "kube-system"}
	if version != "" {
		meta["resourceVersion"] = version
	}

	body, err := json.Marshal(map[string]any{
		"apiVersion": "coordination.k8s.io/v1",
		"kind":       "Lease",
		"metadata":   meta,
		"spec": map[string]any{
			"holderIdentity":       e.holder,
			"leaseDurationSeconds": int(e.duration.Seconds()),
			"renewTime":            e.now().UTC().Format(microTime),
		},
	})
	if err != nil {
		return false, fmt.Errorf("encode lease %s: %w", e.name, err)
	}

	_, err = e.api.Do(ctx, method, path, kind, body)
	if errors.Is(err, kube.ErrConflict) {
		return false, nil
	}

	return err == nil, err
}
