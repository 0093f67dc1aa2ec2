// SPDX-License-Identifier: Apache-2.0

package permissions

import (
	"context"
	"fmt"
	"slices"
	"strings"

	sdk "github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/iam"

	"github.com/slipway-k8s/slipway/api/v1alpha1"
	"github.com/slipway-k8s/slipway/internal/infra/iampolicy"
	"github.com/slipway-k8s/slipway/internal/lib/diag"
	"github.com/slipway-k8s/slipway/internal/manifest"
)

// addExisting adds the resources of others that a cluster's manifests name by their ids.
func addExisting(in *iampolicy.Input, set manifest.Set) {
	spec := set.Cluster.Spec
	existing := &in.Existing
	existing.VPC = spec.Networking.NetworkID
	needsNAT := slices.ContainsFunc(spec.Networking.Subnets, func(s v1alpha1.Subnet) bool {
		return s.ID == "" && s.Type == v1alpha1.SubnetPrivate
	})

	for _, s := range spec.Networking.Subnets {
		if s.ID != "" {
			existing.Subnets = append(existing.Subnets, s.ID)
			if needsNAT && s.Type != v1alpha1.SubnetPrivate {
				existing.PublicSubnets = append(existing.PublicSubnets, s.ID)
			}
		}

		if strings.HasPrefix(s.Egress, "eipalloc-") {
			existing.Addresses = append(existing.Addresses, s.Egress)
		}
	}

	groups := spec.CloudProvider.AWS.SecurityGroups
	existing.SecurityGroups = named(groups.ControlPlane, groups.Worker)
	var policies []string
	for _, g := range set.Groups {
		policies = append(policies, g.Spec.IAM.Policies...)
	}

	for _, p := range spec.IAM.ServiceAccountExternalPermissions {
		policies = append(policies, p.AWS.PolicyARNs...)
	}

	slices.Sort(policies)
	existing.ManagedPolicies = slices.Compact(policies)
}

// named returns the names that are not empty, each once.
func named(names ...string) []string {
	slices.Sort(names)

	return slices.DeleteFunc(slices.Compact(names), func(name string) bool { return name == "" })
}

// addProfiles adds the instance profiles that a cluster's manifest names, and their roles, which launching a machine passes
// to it.
func addProfiles(ctx context.Context, cfg sdk.Config, in *iampolicy.Input, profiles v1alpha1.Existing) error {
	for _, name := range named(profiles.ControlPlane, profiles.Worker) {
		out, err := iam.NewFromConfig(cfg).GetInstanceProfile(ctx, &iam.GetInstanceProfileInput{InstanceProfileName: &name})
		if err != nil {
			return diag.WithHint(
				fmt.Errorf("read instance profile %s, whose role is in the policies: %w", name, err),
				"create the profile first, and use credentials with iam:GetInstanceProfile",
			)
		}

		in.Existing.Profiles = append(in.Existing.Profiles, sdk.ToString(out.InstanceProfile.Arn))
		for _, role := range out.InstanceProfile.Roles {
			in.Existing.ProfileRoles = append(in.Existing.ProfileRoles, sdk.ToString(role.Arn))
		}
	}

	return nil
}
