// SPDX-License-Identifier: Apache-2.0

package iam_test

import (
	"strings"
	"testing"

	"github.com/aws/aws-sdk-go-v2/aws"
	awsiam "github.com/aws/aws-sdk-go-v2/service/iam"

	"github.com/slipway-k8s/slipway/internal/region/iam"
	"github.com/slipway-k8s/slipway/internal/region/regiontest"
)

// TestAccountQuotas: the account has as many roles and instance profiles as its quotas allow, and GetAccountSummary says how
// many these are. Service-linked roles count, and are created beyond the quota.
func TestAccountQuotas(t *testing.T) {
	t.Parallel()
	r := regiontest.StartWith(t, regiontest.Options{IAMQuotas: iam.Quotas{Roles: 2, InstanceProfiles: 1}})
	api := awsiam.NewFromConfig(r.AWSConfig())
	createRole := func(name string) error {
		_, err := api.CreateRole(t.Context(), &awsiam.CreateRoleInput{RoleName: &name, AssumeRolePolicyDocument: aws.String(trust)})
		return err
	}
	createProfile := func(name string) error {
		_, err := api.CreateInstanceProfile(t.Context(), &awsiam.CreateInstanceProfileInput{InstanceProfileName: &name})
		return err
	}
	_, linkedErr := api.CreateServiceLinkedRole(t.Context(), &awsiam.CreateServiceLinkedRoleInput{AWSServiceName: aws.String("autoscaling.amazonaws.com")})
	if linkedErr != nil || createRole("a") != nil || createProfile("a") != nil {
		t.Fatal("create what the quotas allow", linkedErr)
	}
	for message, err := range map[string]error{
		"Cannot exceed quota for RolesPerAccount: 2": createRole("b"), "Cannot exceed quota for InstanceProfilesPerAccount: 1": createProfile("b"),
	} {
		if code(err) != "LimitExceeded" || !strings.Contains(err.Error(), message) {
			t.Errorf("%v, want %s", err, message)
		}
	}
	if err := createRole("a"); code(err) != "EntityAlreadyExists" {
		t.Errorf("the name of an existing role: %v", err)
	}
	if _, err := api.CreateServiceLinkedRole(t.Context(), &awsiam.CreateServiceLinkedRoleInput{AWSServiceName: aws.String("spot.amazonaws.com")}); err != nil {
		t.Errorf("a service-linked role beyond the quota: %v", err)
	}
	out, err := api.GetAccountSummary(t.Context(), &awsiam.GetAccountSummaryInput{})
	if err != nil {
		t.Fatal(err)
	}
	for key, want := range map[string]int32{
		"Roles": 3, "RolesQuota": 2, "InstanceProfiles": 1, "InstanceProfilesQuota": 1, "UsersQuota": 5000, "RolePolicySizeQuota": 10240, "Users": 0,
	} {
		if got, has := out.SummaryMap[key]; !has || got != want {
			t.Errorf("%s: %d (%v), want %d", key, got, has, want)
		}
	}
}
