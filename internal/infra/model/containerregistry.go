// SPDX-License-Identifier: Apache-2.0

package model

import (
	"github.com/slipway-k8s/slipway/api/v1alpha1"
	"github.com/slipway-k8s/slipway/internal/lib/ecraddress"
)

// imageStatements allows machines to pull from the cluster's registry, if it is a private one in
// Amazon ECR: from the repositories below the address in the manifest, and from no others. They may
// write nothing.
func imageStatements(assets v1alpha1.Assets) []policyStatement {
	registry, ok := ecraddress.Parse(assets.ContainerRegistry)
	if !ok {
		return nil
	}

	return []policyStatement{
		{ID: "Login", Actions: []string{ecraddress.TokenAction}, Resources: []string{"*"}},
		{
			ID:        "Pull",
			Actions:   ecraddress.PullActions(),
			Resources: []string{registry.RepositoryARNs()},
		},
	}
}
