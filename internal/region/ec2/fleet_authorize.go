// SPDX-License-Identifier: Apache-2.0

package ec2

import (
	sdk "github.com/aws/aws-sdk-go/service/ec2"

	"github.com/slipway-k8s/slipway/internal/region/sdkshape"
	"github.com/slipway-k8s/slipway/internal/region/wire"
)

// fleetChecks returns what IAM is asked for a request for a fleet: about the fleet and what the request names, and about its
// launches as if the caller had run the instances. AWS reports the latter in the answer, as errors of the launches; the
// region refuses the request.
func (s *Service) fleetChecks(in *sdk.CreateFleetInput, tree map[string]any) []wire.AccessCheck {
	s.store.Lock()
	defer s.store.Unlock()
	const action = "ec2:CreateFleet"
	tags := tagSpecificationContexts(tree)
	out := []wire.AccessCheck{{Action: action, Resource: s.cfg.wildcardARN("fleet"), Context: tags["fleet"]}}
	if own := tags["fleet"]; own != nil {
		out = append(out, s.createTagsCheck("fleet", own, "CreateFleet"))
	}

	delete(tags, "fleet")
	target := in.TargetCapacitySpecification
	isSpot := target != nil && str(target.DefaultTargetCapacityType) == sdk.DefaultTargetCapacityTypeSpot

	for _, c := range in.LaunchTemplateConfigs {
		spec := c.LaunchTemplateSpecification
		if spec == nil {
			continue // the call fails anyway
		}

		l := instanceLaunch{
			tags:   tags,
			isSpot: isSpot,
			named:  overriddenResources(c.Overrides),
		}
		if !s.findTemplateOf(&l, spec.LaunchTemplateId, spec.LaunchTemplateName, str(spec.Version)) {
			continue
		}

		for _, id := range append([]string{str(l.template.LaunchTemplateId)}, l.named...) {
			context := map[string][]string{}
			sdkshape.AddResourceTags(context, s.st.Tags[id])
			out = append(out, wire.AccessCheck{Action: action, Resource: s.cfg.resourceARN(id), Context: context})
		}

		out = append(out, s.launchChecks(l)...)
	}

	return out
}

// overriddenResources returns the ids of the images and subnets of overrides.
func overriddenResources(overrides []*sdk.FleetLaunchTemplateOverridesRequest) []string {
	ids := map[string]bool{}
	for _, o := range overrides {
		ids[str(o.ImageId)] = true
		ids[str(o.SubnetId)] = true
	}

	delete(ids, "")

	return sortedKeys(ids)
}
