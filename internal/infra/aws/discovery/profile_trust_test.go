// SPDX-License-Identifier: Apache-2.0

package discovery_test

import (
	"slices"
	"testing"

	"github.com/aws/aws-sdk-go-v2/service/iam"

	"github.com/slipway-k8s/slipway/api/v1alpha1"
	"github.com/slipway-k8s/slipway/internal/infra/aws/discovery"
	"github.com/slipway-k8s/slipway/internal/region/regiontest"
)

// TestTrustOfProfiles: of existing instance profiles, those are found whose roles others than EC2 can assume.
func TestTrustOfProfiles(t *testing.T) {
	r := regiontest.Start(t)
	api := iam.NewFromConfig(r.AWSConfig())
	for name, principal := range map[string]string{
		"machines": `{"Service":"ec2.amazonaws.com"}`,
		"open":     `{"Service":["ec2.amazonaws.com","ssm.amazonaws.com"],"AWS":"arn:aws:iam::` + regiontest.AccountID + `:root"}`,
	} {
		trust := `{"Version":"2012-10-17","Statement":[{"Effect":"Allow","Action":"sts:AssumeRole","Principal":` + principal + `}]}`
		if _, err := api.CreateRole(t.Context(), &iam.CreateRoleInput{RoleName: &name, AssumeRolePolicyDocument: &trust}); err != nil {
			t.Fatal(err)
		}
		if _, err := api.CreateInstanceProfile(t.Context(), &iam.CreateInstanceProfileInput{InstanceProfileName: &name}); err != nil {
			t.Fatal(err)
		}
		in := &iam.AddRoleToInstanceProfileInput{InstanceProfileName: &name, RoleName: &name}
		if _, err := api.AddRoleToInstanceProfile(t.Context(), in); err != nil {
			t.Fatal(err)
		}
	}

	var c v1alpha1.Cluster
	c.Spec.CloudProvider.AWS.InstanceProfiles = v1alpha1.Existing{ControlPlane: "machines", Worker: "open"}
	facts, err := discovery.ReadUnmanaged(t.Context(), r.AWSConfig(), c, nil)
	if err != nil {
		t.Fatal(err)
	}

	want := []string{"arn:aws:iam::" + regiontest.AccountID + ":root", "ssm.amazonaws.com"}
	if len(facts.ProfileTrust["machines"]) > 0 || !slices.Equal(facts.ProfileTrust["open"], want) {
		t.Errorf("others that can assume the roles: %q", facts.ProfileTrust)
	}
}
