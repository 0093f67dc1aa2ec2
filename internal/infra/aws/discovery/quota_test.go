// SPDX-License-Identifier: Apache-2.0

package discovery_test

import (
	"testing"

	sdk "github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/iam"
	"github.com/google/go-cmp/cmp"

	"github.com/slipway-k8s/slipway/internal/infra/aws/discovery"
	"github.com/slipway-k8s/slipway/internal/infra/awskind"
	"github.com/slipway-k8s/slipway/internal/infra/graph"
	"github.com/slipway-k8s/slipway/internal/infra/plan"
	"github.com/slipway-k8s/slipway/internal/infra/quota"
	"github.com/slipway-k8s/slipway/internal/region/fault"
	regioniam "github.com/slipway-k8s/slipway/internal/region/iam"
	"github.com/slipway-k8s/slipway/internal/region/regiontest"
)

// TestQuotasOfIAM: one call returns both quotas of IAM, and the cluster's own entities are not those of others. Other quotas are
// read although this call fails.
func TestQuotasOfIAM(t *testing.T) {
	t.Parallel()
	r := regiontest.StartWith(t, regiontest.Options{IAMQuotas: regioniam.Quotas{Roles: 10, InstanceProfiles: 20}})
	api := iam.NewFromConfig(r.AWSConfig())
	for _, name := range []string{"ours", "theirs", "another"} {
		if _, err := api.CreateRole(t.Context(), &iam.CreateRoleInput{
			RoleName: &name, AssumeRolePolicyDocument: sdk.String(`{"Version":"2012-10-17","Statement":{"Effect":"Allow","Principal":{"Service":"ec2.amazonaws.com"},"Action":"sts:AssumeRole"}}`),
		}); err != nil {
			t.Fatal(err)
		}
	}
	g := &graph.Graph{}
	graph.Add(g, "ours", awskind.IAMRole{Name: "ours"})
	graph.Add(g, "ours", awskind.InstanceProfile{Name: "ours"})
	graph.Add(g, "api", awskind.LoadBalancer{Name: "api"})
	needs := quota.RequirementsOf(g, func(string) int { return 0 })
	own := discovery.OwnResources{
		OwnsTags: func(map[string]string) bool { return false }, Resources: []plan.ActualResource{{ID: "ours", Resource: awskind.IAMRole{Name: "ours"}}},
	}
	limits, used, err := discovery.ReadQuotas(t.Context(), r.AWSConfig(), own, needs)
	if err != nil {
		t.Fatal(err)
	}
	wantLimits := map[quota.Code]int{quota.RoleQuota(): 10, quota.InstanceProfileQuota(): 20, quota.LoadBalancerQuota(): 50}
	if diff := cmp.Diff(wantLimits, limits); diff != "" {
		t.Errorf("limits (-want +got):\n%s", diff)
	}
	wantUsed := map[quota.Code]int{quota.RoleQuota(): 2, quota.InstanceProfileQuota(): 0, quota.LoadBalancerQuota(): 0}
	if diff := cmp.Diff(wantUsed, used); diff != "" {
		t.Errorf("used by others (-want +got):\n%s", diff)
	}
	if calls := r.CallCounts(); calls["iam:GetAccountSummary"] != 1 || calls["servicequotas:GetServiceQuota"] != 0 {
		t.Errorf("calls: %v", calls)
	}
	if _, err := r.Faults.AddRule(fault.Rule{Service: "iam", Action: "GetAccountSummary", Effect: fault.EffectFail, Code: "AccessDenied", Count: -1}); err != nil {
		t.Fatal(err)
	}
	limits, _, err = discovery.ReadQuotas(t.Context(), r.AWSConfig(), own, needs)
	if diff := cmp.Diff(map[quota.Code]int{quota.LoadBalancerQuota(): 50}, limits); err == nil || diff != "" {
		t.Errorf("without the permission: %v; limits (-want +got):\n%s", err, diff)
	}
}
