// SPDX-License-Identifier: Apache-2.0

package ec2

import (
	sdk "github.com/aws/aws-sdk-go/service/ec2"

	"github.com/slipway-k8s/slipway/internal/region/wire"
)

// LaunchPermissionChecks returns what IAM is asked about a caller that makes Auto Scaling launch from a
// template. AWS launches as the service, but only if the caller could have run the instances and passed the
// role itself. A template that does not exist has no checks: the call fails anyway.
func (s *Service) LaunchPermissionChecks(id, name, version string, subnets []string) []wire.AccessCheck {
	s.store.Lock()
	defer s.store.Unlock()
	t, err := s.st.findLaunchTemplate(&id, &name)
	if err != nil {
		return nil
	}

	v, err := s.st.findTemplateVersion(t, version)
	if err != nil {
		return nil
	}

	return s.launchChecks(instanceLaunch{
		template: t,
		data:     v.LaunchTemplateData,
		named:    subnets,
	})
}

// templateTagContext returns the condition keys of the tags that a template puts on resources of a type.
func templateTagContext(specs []*sdk.LaunchTemplateTagSpecification, kind string) map[string][]string {
	out := map[string][]string{}
	for _, spec := range specs {
		if str(spec.ResourceType) != kind {
			continue
		}

		for _, t := range spec.Tags {
			out["aws:RequestTag/"+str(t.Key)] = []string{str(t.Value)}
			out["aws:TagKeys"] = append(out["aws:TagKeys"], str(t.Key))
		}
	}

	return out
}

// passRoleChecks asks whether the caller may pass the role of a template's instance profile to EC2.
func (cfg *Config) passRoleChecks(spec *sdk.LaunchTemplateIamInstanceProfileSpecification) []wire.AccessCheck {
	p, ok := cfg.findProfile(spec)
	if !ok || p.RoleARN == "" {
		return nil
	}

	return []wire.AccessCheck{
		{
			Action:   "iam:PassRole",
			Resource: p.RoleARN,
			Context:  map[string][]string{"iam:PassedToService": {"ec2.amazonaws.com"}},
		},
	}
}

// findProfile returns the instance profile of a template, or false if it has none.
func (cfg *Config) findProfile(spec *sdk.LaunchTemplateIamInstanceProfileSpecification) (Profile, bool) {
	if spec == nil || cfg.Profiles == nil {
		return Profile{}, false
	}

	name := str(spec.Name)
	if name == "" {
		name = str(spec.Arn)
	}

	return cfg.Profiles.InstanceProfile(name)
}
