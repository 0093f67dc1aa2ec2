// SPDX-License-Identifier: Apache-2.0

package destroy

import (
	"fmt"

	"github.com/slipway-k8s/slipway/internal/infra/awskind"
	"github.com/slipway-k8s/slipway/internal/infra/plan"
	"github.com/slipway-k8s/slipway/internal/lib/diag"
	"github.com/slipway-k8s/slipway/internal/manifest"
)

// checkDeletionProtection returns an error if the manifest or AWS protects the cluster. Nothing is deleted
// unless everything may be deleted.
func checkDeletionProtection(set manifest.Set, name string, have []plan.ActualResource) error {
	if set.Cluster.Spec.DeletionProtection {
		return diag.WithHint(
			fmt.Errorf("cluster %s is protected: spec.deletionProtection is true", name),
			"to delete it: set it to false with 'slipway edit cluster "+name+"', "+
				"run 'slipway apply "+name+" --yes', and rerun",
		)
	}

	for _, a := range have {
		lb, ok := a.Resource.(awskind.LoadBalancer)
		if ok && lb.Attributes["deletion_protection.enabled"] == "true" {
			return diag.WithHint(
				fmt.Errorf("cluster %s is protected: AWS does not delete %s (%s)", name, a.Addr, a.ID),
				"to delete it: run 'slipway apply "+name+" --yes' with spec.deletionProtection false; "+
					"without the manifest: aws elbv2 modify-load-balancer-attributes --load-balancer-arn "+a.ID+
					" --attributes Key=deletion_protection.enabled,Value=false",
			)
		}
	}

	return nil
}
