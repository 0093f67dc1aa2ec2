// SPDX-License-Identifier: Apache-2.0

package ec2

import (
	"slices"

	sdk "github.com/aws/aws-sdk-go/service/ec2"

	"github.com/slipway-k8s/slipway/internal/region/sdkshape"
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

	ask := func(arn string, context map[string][]string) wire.AccessCheck {
		context["ec2:LaunchTemplate"] = []string{s.cfg.resourceARN(str(t.LaunchTemplateId))}
		return wire.AccessCheck{Action: "ec2:RunInstances", Resource: arn, Context: context}
	}

	var out []wire.AccessCheck
	data := v.LaunchTemplateData

	named := slices.Concat(
		[]string{str(t.LaunchTemplateId), str(data.ImageId)},
		subnets,
		strs(data.SecurityGroupIds),
	)

	for _, existing := range named {
		c := map[string][]string{}
		sdkshape.AddResourceTags(c, s.st.Tags[existing])
		out = append(out, ask(s.cfg.resourceARN(existing), c))
	}

	if name := str(data.KeyName); name != "" {
		c := map[string][]string{}
		sdkshape.AddResourceTags(c, s.st.Tags[s.st.findKeyPairID(name)])
		out = append(out, ask(s.cfg.keyPairARN(name), c))
	}

	for _, k := range createdKinds()["RunInstances"] {
		out = append(out, ask(s.cfg.wildcardARN(k), templateTagContext(data.TagSpecifications, k)))
	}

	for _, spec := range data.TagSpecifications {
		c := templateTagContext(data.TagSpecifications, str(spec.ResourceType))
		c["ec2:CreateAction"] = []string{"RunInstances"}
		out = append(
			out,
			wire.AccessCheck{Action: "ec2:CreateTags", Resource: s.cfg.wildcardARN(str(spec.ResourceType)), Context: c},
		)
	}

	return append(out, s.cfg.passRoleChecks(data.IamInstanceProfile)...)
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
	if spec == nil || cfg.Profiles == nil {
		return nil
	}

	name := str(spec.Name)
	if name == "" {
		name = str(spec.Arn)
	}

	p, ok := cfg.Profiles.InstanceProfile(name)
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
