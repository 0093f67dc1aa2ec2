// SPDX-License-Identifier: Apache-2.0

package cli_test

import (
	"fmt"
	"path/filepath"
	"strings"
	"testing"

	sdk "github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/ec2"
	elb "github.com/aws/aws-sdk-go-v2/service/elasticloadbalancingv2"

	"github.com/slipway-k8s/slipway/internal/region/fault"
	"github.com/slipway-k8s/slipway/internal/region/iam"
	"github.com/slipway-k8s/slipway/internal/region/regiontest"
)

// createLoadBalancers creates load balancers that belong to no cluster.
func createLoadBalancers(t *testing.T, r regiontest.Region, n int) {
	t.Helper()
	subnets, err := ec2.NewFromConfig(r.AWSConfig()).DescribeSubnets(t.Context(), &ec2.DescribeSubnetsInput{})
	if err != nil {
		t.Fatal(err)
	}
	api := elb.NewFromConfig(r.AWSConfig())
	for i := range n {
		if _, err := api.CreateLoadBalancer(t.Context(), &elb.CreateLoadBalancerInput{
			Name: sdk.String(fmt.Sprintf("other-%d", i)), Type: "network", Scheme: "internal", Subnets: []string{*subnets.Subnets[i%len(subnets.Subnets)].SubnetId},
		}); err != nil {
			t.Fatal(err)
		}
	}
}

// TestAccountQuotas: plan and preflight refuse more IAM roles, instance profiles and load balancers than the account may have,
// before anything is created. The cluster's own do not count twice, and a missing permission is a warning.
func TestAccountQuotas(t *testing.T) {
	small := regiontest.Options{IAMQuotas: iam.Quotas{Roles: 1, InstanceProfiles: 1}}
	exact := regiontest.Options{IAMQuotas: iam.Quotas{Roles: 4, InstanceProfiles: 4}}
	for _, tc := range []struct {
		name string
		regiontest.Options
		plan, preflight int // exit codes
		balancers       int // of others
		want            []string
	}{
		{"too small", small, 1, 1, 49, []string{
			`the quota "Roles per account" is 1, and other resources use 0`,
			`the quota "Instance profiles per account" is 1, and other resources use 0`,
			`the quota "Network Load Balancers per Region" is 50, and other resources use 49`,
			"--region us-east-1 --service-code iam --quota-code L-FE177D64 --desired-value 4",
			"--service-code elasticloadbalancing --quota-code L-69A177A2 --desired-value 51",
		}},
		{"just enough", exact, 2, 0, 48, nil},
	} {
		t.Run(tc.name, func(t *testing.T) {
			r := regiontest.StartWith(t, tc.Options)
			createLoadBalancers(t, r, tc.balancers)
			s := newShell(t, r)
			s.must("state", "init", "--yes")
			s.must("create", "-f", filepath.Join("..", "..", "examples", "public.yaml"), "--yes", "-q")
			for command, code := range map[string]int{"plan": tc.plan, "preflight": tc.preflight} {
				got, out, errs := s.run(command, "public")
				if got != code {
					t.Errorf("%s: exit %d, want %d\n%s%s", command, got, code, out, errs)
				}
				for _, want := range tc.want {
					if !strings.Contains(out+errs, want) {
						t.Errorf("%s does not say %q:\n%s%s", command, want, out, errs)
					}
				}
			}
			if tc.plan == 1 {
				if calls := r.CallCounts(); calls["iam:CreateRole"] > 0 {
					t.Errorf("created: %v", calls)
				}
				return
			}
			for range 2 { // the second time the cluster's own use all of the quotas
				s.must("apply", "public", "--yes", "-q")
				if code, out, errs := s.run("preflight", "public"); code != 0 {
					t.Errorf("preflight after apply: exit %d\n%s%s", code, out, errs)
				}
			}
			if _, err := r.Faults.AddRule(fault.Rule{Service: "iam", Action: "GetAccountSummary", Effect: fault.EffectFail, Code: "AccessDenied", Count: -1}); err != nil {
				t.Fatal(err)
			}
			code, out, errs := s.run("preflight", "public")
			if code != 2 || !strings.Contains(out+errs, "could not all be checked") || !strings.Contains(out+errs, "iam:GetAccountSummary") {
				t.Errorf("without the permission: exit %d\n%s%s", code, out, errs)
			}
		})
	}
}
