// SPDX-License-Identifier: Apache-2.0

package iampolicy_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/slipway-k8s/slipway/internal/infra/iampolicy"
)

// TestKarpenterPolicySizes: the boundary fits into a managed policy, and the policy of a role into what IAM allows inline, with the
// longest names, and with as many images as the list of launches keeps of two groups.
func TestKarpenterPolicySizes(t *testing.T) {
	const maxInline = 10240
	boundary := iampolicy.BuildKarpenterBoundary(iampolicy.Input{Partition: "aws-us-gov", Account: "123456789012"})
	if boundary.Size() > iampolicy.MaxPolicySize {
		t.Errorf("the boundary has %d characters", boundary.Size())
	}
	in := iampolicy.KarpenterInput{
		Partition: "aws-us-gov",
		Region:    "us-gov-east-1",
		Account:   "123456789012",
		Cluster:   strings.Repeat("c", 40),
		ClusterID: "0123456789abcdef",
		Groups:    []string{strings.Repeat("a", 40), strings.Repeat("b", 40)},
		Role:      "arn:aws-us-gov:iam::123456789012:role/slipway/us-gov-east-1/" + strings.Repeat("c", 90),
		Profile:   "arn:aws-us-gov:iam::123456789012:instance-profile/slipway/us-gov-east-1/" + strings.Repeat("c", 90),
	}
	for i := range 60 {
		in.Images = append(in.Images, fmt.Sprintf("ami-%017d", i))
	}
	policy := iampolicy.BuildKarpenterPolicy(in)
	if policy.Size() > maxInline {
		t.Errorf("the policy has %d characters", policy.Size())
	}
	t.Logf("COUNT characters of the boundary of Karpenter: %d of %d; of its policy with 60 images: %d of %d", boundary.Size(), iampolicy.MaxPolicySize, policy.Size(), maxInline)
}

// TestKarpenterEndsMachinesOnly: without groups, the role can end machines and nothing else.
func TestKarpenterEndsMachinesOnly(t *testing.T) {
	p := iampolicy.BuildKarpenterPolicy(iampolicy.KarpenterInput{Partition: "aws", Region: "us-east-1", Account: "123456789012", Cluster: "demo"})
	for _, action := range iampolicy.AllowedActions([]iampolicy.Policy{p}) {
		if !strings.HasPrefix(action, "ec2:Describe") && !slices.Contains([]string{"ec2:DeleteLaunchTemplate", "ec2:TerminateInstances"}, action) {
			t.Errorf("the policy allows %s", action)
		}
	}
}
