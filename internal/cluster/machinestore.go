// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"context"
	"fmt"
	"strings"

	"github.com/slipway-k8s/slipway/api/v1alpha1"
	"github.com/slipway-k8s/slipway/internal/lib/diag"
	"github.com/slipway-k8s/slipway/internal/lib/store"
)

// OpenMachineStore opens the store that the cluster's machines read: spec.configStore.base, else the state store, which
// then must be on S3. region is where the cluster is.
func (env *Env) OpenMachineStore(
	ctx context.Context,
	c v1alpha1.Cluster,
	region string,
) (store.Store, store.Sealer, error) {
	if base := c.Spec.ConfigStore.Base; base != "" {
		return env.Stores.Open(ctx, base, region)
	}

	s, sealer, err := env.Stores.State(ctx)
	if err != nil {
		return nil, nil, err
	}

	if !strings.HasPrefix(s.URL(), "s3://") {
		return nil, nil, diag.WithHint(
			fmt.Errorf("machines cannot read the state store %s", s.URL()),
			"set spec.configStore.base of the cluster to an s3:// store created by 'slipway state init', "+
				"or keep the state on S3",
		)
	}

	return s, sealer, nil
}
