// SPDX-License-Identifier: Apache-2.0

package autoscaling

import (
	sdk "github.com/aws/aws-sdk-go/service/autoscaling"

	"github.com/slipway-k8s/slipway/internal/region/sdkshape"
	"github.com/slipway-k8s/slipway/internal/region/visibility"
	"github.com/slipway-k8s/slipway/internal/region/wire"
)

// SetVisibility delays the visibility of new groups: calls that come too early do not see a new one that they name or would
// list. The group itself works from the start. By default changes are visible at once.
func (s *Service) SetVisibility(d visibility.Delay) { s.unseen.SetDelay(s.cfg.Now, d) }

// unseenRules are how operations treat groups that are not visible yet.
func unseenRules() visibility.Rules {
	return visibility.Rules{
		Named:    namedGroups,
		NotFound: func(_, name string) error { return newNotFoundError(name) },
		Listed: map[string]func(any) string{
			"AutoScalingGroups": visibility.IDsByMember("", "AutoScalingGroupName"),
		},
	}
}

// namedGroups returns the names of the groups that a request needs to see.
func namedGroups(_ string, in any) []string {
	var tags []*sdk.Tag

	switch in := in.(type) {
	case *sdk.CreateAutoScalingGroupInput, *sdk.DescribeScalingActivitiesInput:
		return nil // Terraform's provider reads the activities of a new group at once, and does not try again
	case *sdk.CreateOrUpdateTagsInput:
		tags = in.Tags
	case *sdk.DeleteTagsInput:
		tags = in.Tags
	}

	names := []string{wire.StringMember(in, "AutoScalingGroupName")}
	for _, t := range tags {
		names = append(names, sdkshape.String(t.ResourceId))
	}

	return names
}
