// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"fmt"
	"slices"

	"github.com/slipway-k8s/slipway/internal/infra/aws/cleanup"
	"github.com/slipway-k8s/slipway/internal/infra/awskind"
	"github.com/slipway-k8s/slipway/internal/infra/plan"
	"github.com/slipway-k8s/slipway/internal/manifest"
)

// checkDeletionProtection refuses to delete a cluster that its manifest protects, or AWS does: nothing may go before all may.
func checkDeletionProtection(set manifest.Set, name string, have []plan.ActualResource) error {
	if set.Cluster.Spec.DeletionProtection {
		return withHint(
			fmt.Errorf("cluster %s is protected: spec.deletionProtection is true", name),
			"if it may go: set it to false by 'slipway edit cluster "+name+"', run 'slipway apply "+name+" --yes', then delete it",
		)
	}

	for _, a := range have {
		lb, ok := a.Resource.(awskind.LoadBalancer)
		if ok && lb.Attributes["deletion_protection.enabled"] == "true" {
			return withHint(
				fmt.Errorf("cluster %s is protected: AWS does not delete %s (%s)", name, a.Addr, a.ID),
				"if it may go: run 'slipway apply "+name+" --yes' with spec.deletionProtection false; without the manifest: "+
					"aws elbv2 modify-load-balancer-attributes --load-balancer-arn "+a.ID+" --attributes Key=deletion_protection.enabled,Value=false",
			)
		}
	}

	return nil
}

// deletionSet is all that goes with a cluster, and what stays of it.
type deletionSet struct {
	// objects in the stores.
	objects []storeObjects
	// retained is data that stays, and what it cannot be read without.
	retained []plan.ActualResource
	blockers []cleanup.Blocker
}

// selectDeletable splits what exists of a cluster into what goes and what stays.
func (d *deletionSet) selectDeletable(
	have []plan.ActualResource,
	r cleanup.Leftovers,
	destroyData bool,
) []plan.ActualResource {
	d.blockers = r.Blockers
	have = append(have, r.Resources...)
	if destroyData {
		return append(have, r.Data...)
	}

	rest, keys := cleanup.SplitDataKeys(have, r.Data)
	d.retained = slices.Concat(r.Data, keys)

	return rest
}

// printDeletionNotes says what the plan does not: what stays, and what will be in the way.
func (a *app) printDeletionNotes(d deletionSet) {
	for _, k := range d.retained {
		what := k.Resource.Kind().Name
		if v, ok := k.Resource.(awskind.Volume); ok {
			what = fmt.Sprintf("volume, %d GiB", v.Size)
		}

		why := "of " + k.Owner
		if k.Owner == "" {
			why = "that encrypts what is kept"
		}

		a.printMessage("kept: %s (%s %s); --destroy-data removes it", k.ID, what, why)
	}

	for _, b := range d.blockers {
		a.printMessage(
			"%s %s lies in the cluster's network and is not the cluster's: AWS will refuse to delete what it uses",
			a.colorText(a.Stderr, yellow, "warning:"),
			b,
		)
	}
}
