// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"context"

	"github.com/slipway-k8s/slipway/internal/infra/aws/discovery"
	"github.com/slipway-k8s/slipway/internal/infra/plan"
	"github.com/slipway-k8s/slipway/internal/infra/quota"
	"github.com/slipway-k8s/slipway/internal/lib/diag"
)

// CheckQuotas compares needs with the quotas of the account. existing are the cluster's resources in AWS. Quotas that
// cannot be read are a warning. Without needs it makes no call.
func (session *Session) CheckQuotas(
	ctx context.Context,
	needs []quota.Requirement,
	existing []plan.ActualResource,
) (fs diag.Findings) {
	if len(needs) == 0 {
		return nil
	}

	own := discovery.OwnResources{OwnsTags: session.ownsTags, Resources: existing}
	limits, used, err := discovery.ReadQuotas(ctx, session.Config, own, needs)
	if err != nil {
		fs.Warnf(
			"aws: quotas",
			"",
			"allow servicequotas:GetServiceQuota and iam:GetAccountSummary",
			"could not all be checked: %s",
			err,
		)
	}

	return append(fs, quota.Check(needs, limits, used)...)
}

// QuotaNeeds returns what the graph uses of each quota. Call BuildGraph first.
func (d *Desired) QuotaNeeds() []quota.Requirement {
	return quota.RequirementsOf(d.Graph, func(machineType string) int {
		t, _ := d.Manifests.FindInstanceType(machineType)
		return t.VCPU
	})
}
