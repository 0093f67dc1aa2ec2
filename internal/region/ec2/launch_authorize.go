// SPDX-License-Identifier: Apache-2.0

package ec2

import (
	"maps"
	"slices"

	sdk "github.com/aws/aws-sdk-go/service/ec2"

	"github.com/slipway-k8s/slipway/internal/region/sdkshape"
	"github.com/slipway-k8s/slipway/internal/region/wire"
)

// instanceLaunch is a launch that IAM is asked about.
type instanceLaunch struct {
	template *sdk.LaunchTemplate // nil for none
	data     *sdk.ResponseLaunchTemplateData
	named    []string                       // ids of the existing resources that the request names
	tags     map[string]map[string][]string // condition keys of the request's tags, by resource type
	isSpot   bool
}

// findTemplateOf finds the template of a launch, and reports whether it exists.
func (s *Service) findTemplateOf(l *instanceLaunch, id, name *string, version string) bool {
	t, err := s.st.findLaunchTemplate(id, name)
	if err != nil {
		return false
	}

	v, err := s.st.findTemplateVersion(t, version)
	if err != nil {
		return false
	}

	l.template = t
	l.data = v.LaunchTemplateData

	return true
}

// runChecks returns what IAM is asked for a request to run instances, with what their launch template says.
func (s *Service) runChecks(in *sdk.RunInstancesInput, tree map[string]any) ([]wire.AccessCheck, error) {
	s.store.Lock()
	defer s.store.Unlock()
	l := instanceLaunch{
		named:  s.st.requestResources("RunInstances", tree),
		tags:   tagSpecificationContexts(tree),
		isSpot: in.InstanceMarketOptions != nil,
	}

	all := map[string]any{}
	t := in.LaunchTemplate
	if t != nil && s.findTemplateOf(&l, t.LaunchTemplateId, t.LaunchTemplateName, str(t.Version)) {
		var err error
		if all, err = sdkshape.ShapeToMap(l.data); err != nil {
			return nil, err
		}
	}

	ofTemplate := all["TagSpecifications"]
	maps.Copy(all, tree)
	delete(all, "TagSpecifications") // l.tags has those of the request
	if ofTemplate != nil {
		all["TagSpecifications"] = ofTemplate
	}

	var err error
	if l.data, err = structFromFields[sdk.ResponseLaunchTemplateData](all); err != nil {
		return nil, err
	}

	return s.launchChecks(l), nil
}

// launchChecks returns what IAM is asked about the right to run instances: about what the template and the request name, what
// is created, its tags, and the role.
func (s *Service) launchChecks(l instanceLaunch) []wire.AccessCheck {
	var out []wire.AccessCheck
	ask := func(resource string, context map[string][]string) {
		if l.template != nil {
			context["ec2:LaunchTemplate"] = []string{s.cfg.resourceARN(str(l.template.LaunchTemplateId))}
		}

		out = append(out, wire.AccessCheck{Action: "ec2:RunInstances", Resource: resource, Context: context})
	}

	for _, id := range l.existing() {
		context := map[string][]string{}
		sdkshape.AddResourceTags(context, s.st.Tags[id])
		ask(s.cfg.resourceARN(id), context)
	}

	if name := str(l.data.KeyName); name != "" {
		context := map[string][]string{}
		sdkshape.AddResourceTags(context, s.st.Tags[s.st.findKeyPairID(name)])
		ask(s.cfg.keyPairARN(name), context)
	}

	created := createdKinds()["RunInstances"]
	if l.isSpot {
		created = append(slices.Clone(created), "spot-instances-request")
	}

	for _, kind := range created {
		context := l.tagContext(kind)
		if len(context) > 0 {
			out = append(out, s.createTagsCheck(kind, context, "RunInstances"))
		}

		context = maps.Clone(context)
		if kind == "instance" {
			s.addInstanceContext(context, l.data)
		}

		ask(s.cfg.wildcardARN(kind), context)
	}

	return append(out, s.cfg.passRoleChecks(l.data.IamInstanceProfile)...)
}

// createTagsCheck returns what IAM is asked about the tags of a resource that an operation creates.
func (s *Service) createTagsCheck(kind string, tags map[string][]string, operation string) wire.AccessCheck {
	context := maps.Clone(tags)
	context["ec2:CreateAction"] = []string{operation}

	return wire.AccessCheck{Action: "ec2:CreateTags", Resource: s.cfg.wildcardARN(kind), Context: context}
}

// existing returns the ids of the existing resources that a launch uses.
func (l *instanceLaunch) existing() []string {
	ids := map[string]bool{}
	if l.template != nil {
		ids[str(l.template.LaunchTemplateId)] = true
	}

	isOverridden := map[string]bool{}
	for _, id := range l.named {
		ids[id] = true
		isOverridden[resourceKind(id)] = true
	}

	if !isOverridden["image"] {
		ids[str(l.data.ImageId)] = true
	}

	for _, id := range strs(l.data.SecurityGroupIds) {
		ids[id] = true
	}

	for _, n := range l.data.NetworkInterfaces {
		for _, id := range strs(n.Groups) {
			ids[id] = true
		}

		if !isOverridden["subnet"] {
			ids[str(n.SubnetId)] = true
		}
	}

	for _, m := range l.data.BlockDeviceMappings {
		if m.Ebs != nil {
			ids[str(m.Ebs.SnapshotId)] = true
		}
	}

	delete(ids, "")

	return sortedKeys(ids)
}

// tagContext returns the condition keys of the tags that new resources of a type get from the template and the request.
func (l *instanceLaunch) tagContext(kind string) map[string][]string {
	context := templateTagContext(l.data.TagSpecifications, kind)
	keys := slices.Concat(context["aws:TagKeys"], l.tags[kind]["aws:TagKeys"])
	maps.Copy(context, l.tags[kind])
	if len(keys) > 0 {
		slices.Sort(keys)
		context["aws:TagKeys"] = slices.Compact(keys)
	}

	return context
}

// addInstanceContext adds the condition keys of the instances of a launch, besides those of their tags.
func (s *Service) addInstanceContext(into map[string][]string, data *sdk.ResponseLaunchTemplateData) {
	tokens := sdk.HttpTokensStateOptional
	if o := data.MetadataOptions; o != nil && o.HttpTokens != nil {
		tokens = *o.HttpTokens
	}

	into["ec2:MetadataHttpTokens"] = []string{tokens}
	if p, ok := s.cfg.findProfile(data.IamInstanceProfile); ok {
		into["ec2:InstanceProfile"] = []string{p.ARN}
	}
}
