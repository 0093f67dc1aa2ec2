// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"context"
	"strings"

	"github.com/slipway-k8s/slipway/internal/infra/awskind"
	"github.com/slipway-k8s/slipway/internal/infra/plan"
	"github.com/slipway-k8s/slipway/internal/lib/store"
)

// CheckSealingKey returns an error if the settings of the machine store name another key than that of its bucket. The
// settings go into node documents and into the policies of roles, so whoever can write to the bucket must not choose
// the key. It costs a call of KMS, unless a role of a machine in AWS has the key already, which nobody can change
// through the bucket, or keys are about to be sealed, which compares as well. Call it after BuildGraph.
func (session *Session) CheckSealingKey(ctx context.Context, d *Desired, actual []plan.ActualResource) error {
	settings, err := readStoreSettings(ctx, d.MachineStore)
	if err != nil || settings.KMSKeyARN == "" {
		return err
	}

	if d.sealsKeys || rolesUseKey(actual, settings.KMSKeyARN) {
		return nil
	}

	return store.CheckSealingKey(ctx, d.MachineSealer)
}

// rolesUseKey reports whether the policy of a machine's role names the key.
func rolesUseKey(actual []plan.ActualResource, key string) bool {
	for _, r := range actual {
		policy, ok := r.Resource.(awskind.IAMRolePolicy)
		if ok && policy.Name == "machine" && strings.Contains(string(policy.Document), `"`+key+`"`) {
			return true
		}
	}

	return false
}
