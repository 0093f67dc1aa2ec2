// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"context"

	"github.com/slipway-k8s/slipway/internal/machine/instancedata"
)

// keepInstanceData serves what the pod network plugin needs of the instance metadata until ctx ends: the guard keeps it away from the
// service itself. Other plugins need nothing.
func keepInstanceData(ctx context.Context, a *Agent) error {
	if !a.doc.HasVPCPods() {
		<-ctx.Done()

		return ctx.Err()
	}

	return keepServing(ctx, a, loopbackServer{
		serves:  "instance metadata to the pod network plugin",
		address: instancedata.Address,
		handler: instancedata.Handler{
			Source: a.Metadata,
			Identity: instancedata.Identity{
				Region:           a.doc.Region,
				AvailabilityZone: a.instance.Zone,
				InstanceID:       a.instance.ID,
				InstanceType:     a.instance.Type,
				PrivateIP:        a.instance.Address.String(),
			},
			Log: a.Log,
		},
	})
}
