// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"context"

	"github.com/slipway-k8s/slipway/api/v1alpha1"
	"github.com/slipway-k8s/slipway/internal/infra/aws/discovery"
	"github.com/slipway-k8s/slipway/internal/infra/awskind"
	"github.com/slipway-k8s/slipway/internal/infra/model"
	"github.com/slipway-k8s/slipway/internal/infra/plan"
)

// keepsSharedRole reports whether the role that an older slipway gave all control-plane machines must stay, because a
// machine has it or a group still launches machines with it. The first apply after the last of them was replaced
// deletes it. A stack replaces its machines itself, and deletes the role after that.
func (session *Session) keepsSharedRole(ctx context.Context, d *Desired, in model.Input) (bool, error) {
	name := model.RoleName(session.Name, session.Config.Region, v1alpha1.RoleControlPlane)

	if !d.ForTerraform { // of which the state store does not know what exists
		if d.ForStack || session.ownRoles == nil || !session.ownership.past.any {
			return false, nil
		}

		<-session.ownRoles.read
		found := session.ownRoles.resources
		if !hasProfile(found, name) {
			return false, nil
		}

		if launchesWith(found, name) {
			return true, nil
		}
	}

	profile := "arn:" + in.Partition + ":iam::" + in.Account + ":instance-profile" +
		model.RolePath(session.Name, session.Config.Region) + name

	return discovery.IsProfileInUse(ctx, session.Config, profile)
}

func hasProfile(found []plan.ActualResource, name string) bool {
	for _, r := range found {
		if p, ok := r.Resource.(awskind.InstanceProfile); ok && p.Name == name {
			return true
		}
	}

	return false
}

// launchesWith reports whether a slot may launch machines with an instance profile: its newest launch template names it,
// or its group has an older version.
func launchesWith(found []plan.ActualResource, profile string) bool {
	newest := map[string]string{}
	for _, r := range found {
		t, ok := r.Resource.(awskind.LaunchTemplate)
		if !ok {
			continue
		}

		if t.Data.Profile.Name.Literal() == profile {
			return true
		}

		newest[r.ID] = r.Attributes["LatestVersionNumber"]
	}

	for _, r := range found {
		g, ok := r.Resource.(awskind.AutoScalingGroup)
		if !ok || g.Tags[awskind.TagSlot] == "" {
			continue
		}

		from := g.LaunchedFrom()
		if version, _ := from.Version.Literal(); version != newest[from.ID.Literal()] {
			return true
		}
	}

	return false
}
