// SPDX-License-Identifier: Apache-2.0

package e2e_test

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/iam"

	"github.com/slipway-k8s/slipway/internal/infra/model"
	"github.com/slipway-k8s/slipway/internal/region/regiontest"
)

// listIAM returns the roles and instance profiles of a cluster. They are below /slipway/, and the
// cluster's name is one part of their path.
func listIAM(ctx context.Context, client *iam.Client, cluster string) ([]string, error) {
	prefix := aws.String("/slipway/")
	var found []string
	add := func(kind, path, name string) {
		if strings.Contains(path, "/"+cluster+"/") {
			found = append(found, kind+" "+name)
		}
	}

	roles := iam.NewListRolesPaginator(client, &iam.ListRolesInput{PathPrefix: prefix})
	for roles.HasMorePages() {
		page, err := roles.NextPage(ctx)
		if err != nil {
			return nil, fmt.Errorf("list roles: %w", err)
		}
		for _, r := range page.Roles {
			add("role", aws.ToString(r.Path), aws.ToString(r.RoleName))
		}
	}

	profiles := iam.NewListInstanceProfilesPaginator(client, &iam.ListInstanceProfilesInput{PathPrefix: prefix})
	for profiles.HasMorePages() {
		page, err := profiles.NextPage(ctx)
		if err != nil {
			return nil, fmt.Errorf("list instance profiles: %w", err)
		}
		for _, p := range page.InstanceProfiles {
			add("instance profile", aws.ToString(p.Path), aws.ToString(p.InstanceProfileName))
		}
	}

	return found, nil
}

// TestLeftoverRolesAreFound checks listIAM itself: it finds a role and a profile at the path that
// Slipway gives them, and ignores those of another cluster. It needs neither root nor machines,
// unlike the other tests of this package.
func TestLeftoverRolesAreFound(t *testing.T) {
	client := iam.NewFromConfig(regiontest.Start(t).AWSConfig())
	trust := `{"Version":"2012-10-17","Statement":[{"Effect":"Allow","Principal":{"Service":"ec2.amazonaws.com"},` +
		`"Action":"sts:AssumeRole"}]}`

	for _, cluster := range []string{clusterName, "another"} {
		path := aws.String(model.RolePath(cluster, region))
		name := aws.String(cluster + ".worker")
		if _, err := client.CreateRole(t.Context(), &iam.CreateRoleInput{
			RoleName:                 name,
			Path:                     path,
			AssumeRolePolicyDocument: &trust,
		}); err != nil {
			t.Fatal(err)
		}
		if _, err := client.CreateInstanceProfile(t.Context(), &iam.CreateInstanceProfileInput{
			InstanceProfileName: name,
			Path:                path,
		}); err != nil {
			t.Fatal(err)
		}
	}

	got, err := listIAM(t.Context(), client, clusterName)
	want := []string{"role e2e.worker", "instance profile e2e.worker"}
	if err != nil || !slices.Equal(got, want) {
		t.Errorf("got %s, %v, want %s", strings.Join(got, ", "), err, strings.Join(want, ", "))
	}
}
