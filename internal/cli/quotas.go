// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"context"

	"github.com/slipway-k8s/slipway/internal/infra/aws/discovery"
	"github.com/slipway-k8s/slipway/internal/infra/quota"
	"github.com/slipway-k8s/slipway/internal/lib/diag"
	"github.com/slipway-k8s/slipway/internal/manifest"
)

// checkQuotas finds the account's limits that the cluster would run into. A plan asks only about what it makes more of,
// so that one with nothing to do makes no call for it.
func (t *clusterSession) checkQuotas(ctx context.Context, needs []quota.Requirement) (fs diag.Findings) {
	if len(needs) == 0 {
		return nil
	}

	limits, used, err := discovery.ReadQuotas(ctx, t.cfg, t.name, needs)
	if err != nil {
		fs.Warnf(
			"aws: quotas",
			"",
			"allow servicequotas:GetServiceQuota",
			"could not all be checked: %s",
			err,
		)
	}

	return append(fs, quota.Check(needs, limits, used)...)
}

// quotaNeeds is what the cluster takes of the account's limits.
func (d *desiredState) quotaNeeds() []quota.Requirement {
	return quota.RequirementsOf(d.graph, func(machineType string) int {
		t, _ := manifest.FindInstanceType(machineType)
		return t.VCPU
	})
}
