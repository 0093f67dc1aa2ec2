// SPDX-License-Identifier: Apache-2.0

package ec2

import (
	"context"
	"maps"
	"slices"

	sdk "github.com/aws/aws-sdk-go/service/ec2"

	"github.com/slipway-k8s/slipway/internal/region/sdkshape"
	"github.com/slipway-k8s/slipway/internal/region/wire"
)

func (s *Service) launchOps() []wire.Op {
	return []wire.Op{
		writeOperation(s, "RunInstances", s.runInstances),
	}
}

// RunInstances launches instances, as the operation of that name does. It is meant for Auto Scaling.
func (s *Service) RunInstances(_ context.Context, in *sdk.RunInstancesInput) (*sdk.Reservation, error) {
	return runWrite(s, s.runInstances, in)
}

// mergeLaunchTemplate is a request with its launch template's data below it.
func (s *Service) mergeLaunchTemplate(in *sdk.RunInstancesInput) (*sdk.RunInstancesInput, error) {
	if in.LaunchTemplate == nil {
		return in, nil
	}

	t, err := s.findLaunchTemplate(in.LaunchTemplate.LaunchTemplateId, in.LaunchTemplate.LaunchTemplateName)
	if err != nil {
		return nil, err
	}

	v, err := s.findTemplateVersion(t, str(in.LaunchTemplate.Version))
	if err != nil {
		return nil, err
	}

	tree, err := sdkshape.ShapeToMap(v.LaunchTemplateData)
	if err != nil {
		return nil, err
	}

	request, err := sdkshape.ShapeToMap(in)
	if err != nil {
		return nil, err
	}

	tagsBelow, _ := tree["TagSpecifications"].([]any)
	tagsAbove, _ := request["TagSpecifications"].([]any)
	_, faces := tree["NetworkInterfaces"].([]any)
	subnet, hasSubnet := request["SubnetId"].(string)
	maps.Copy(tree, request)
	tree["TagSpecifications"] = append(slices.Clone(tagsBelow), tagsAbove...)
	out, err := structFromFields[sdk.RunInstancesInput](tree)
	if err != nil {
		return nil, err
	}

	if _, own := request["NetworkInterfaces"]; faces && hasSubnet && !own {
		// Auto Scaling names the subnet beside a template that describes the interface.
		out.SubnetId = nil
		for _, f := range out.NetworkInterfaces {
			f.SubnetId = &subnet
		}
	}

	return out, nil
}

// launchRequest is a checked request.
type launchRequest struct {
	in              *sdk.RunInstancesInput
	count           int64
	image           Image
	instanceType    string // instance type
	subnet          *sdk.Subnet
	groups          []string
	publicIP        bool
	profile         *Profile
	metadataOptions *sdk.InstanceMetadataOptionsResponse
	tags            map[string]map[string]string // by resource type
	privateIP       string
}

func (s *Service) runInstances(in *sdk.RunInstancesInput) (*sdk.Reservation, error) {
	if ids, err := s.idempotentResult("RunInstances", in.ClientToken, in); err != nil {
		return nil, err
	} else if len(ids) > 0 {
		return s.buildReservation(ids), nil
	}

	l, err := s.checkLaunchRequest(in)
	if err != nil {
		return nil, err
	}

	reservation := s.newID("r")
	ids := []string{}

	for n := range l.count {
		id, err := s.launchInstance(l, reservation, n)
		if err != nil {
			// AWS gives as many as fit if MinCount is reached.
			if n >= *in.MinCount {
				break
			}

			for _, made := range ids {
				s.discardInstance(made)
			}

			return nil, err
		}

		ids = append(ids, id)
	}

	for _, id := range ids {
		s.beginLaunch(id)
	}

	s.saveIdempotentResult("RunInstances", in.ClientToken, in, ids...)

	return s.buildReservation(ids), nil
}

func (s *Service) buildReservation(ids []string) *sdk.Reservation {
	out := &sdk.Reservation{OwnerId: new(s.cfg.Account), Groups: []*sdk.GroupIdentifier{}}
	for _, id := range ids {
		if i := s.st.Instances[id]; i != nil {
			s.refreshInstance(i)
			out.Instances = append(out.Instances, i)
			out.ReservationId = new(s.st.Extra[id].ReservationID)
		}
	}

	return out
}

// checkLaunchRequest refuses a launch that AWS would refuse.
func (s *Service) checkLaunchRequest(in *sdk.RunInstancesInput) (*launchRequest, error) {
	if in.MinCount == nil || in.MaxCount == nil {
		return nil, missingParameter("MinCount and MaxCount")
	}

	if *in.MinCount < 1 || *in.MaxCount < *in.MinCount {
		return nil, invalidParameter(
			"minCount",
			itoa(int(*in.MinCount)),
			"It must be at least 1 and at most maxCount",
		)
	}

	in, err := s.mergeLaunchTemplate(in)
	if err != nil {
		return nil, err
	}

	l := &launchRequest{in: in, count: *in.MaxCount, instanceType: str(in.InstanceType)}

	for _, check := range []func(*launchRequest) error{s.checkLaunchImage, s.resolvePlacement, s.resolveInstanceProfile, s.resolveMetadataOptions, s.parseLaunchTags, s.checkBlockDevices, checkMarketOptions} {
		if err := check(l); err != nil {
			return nil, err
		}
	}

	return l, nil
}

func (s *Service) checkLaunchImage(l *launchRequest) error {
	if l.instanceType == "" {
		l.instanceType = "m1.small"
	}

	if str(l.in.ImageId) == "" {
		return missingParameter("ImageId")
	}

	var ok bool
	if l.image, ok = s.findImage(*l.in.ImageId); !ok {
		return wire.Errorf("InvalidAMIID.NotFound", "The image id '[%s]' does not exist", *l.in.ImageId)
	}

	t, ok := s.instanceTypes[l.instanceType]
	if !ok {
		return wire.Errorf("InvalidParameterValue", "Invalid value '%s' for InstanceType.", l.instanceType)
	}

	if !t.supportsArchitecture(l.image.Architecture) {
		return wire.Errorf(
			"InvalidParameterValue",
			"The architecture '%s' of the specified instance type does not match the architecture '%s' of the specified AMI.",
			t.awsArchitectures(),
			l.image.Architecture,
		)
	}

	if l.image.Unbootable != "" {
		return wire.Errorf(
			"Unsupported",
			"The requested configuration is currently not supported. %s",
			l.image.Unbootable,
		)
	}

	used := int64(0)

	for _, i := range s.st.Instances {
		if isLive(i) {
			used += s.instanceTypes[str(i.InstanceType)].VCPU
		}
	}

	room := (int64(s.cfg.Quotas.VCPUs) - used) / t.VCPU
	if room < *l.in.MinCount {
		return wire.Errorf(
			"VcpuLimitExceeded",
			"You have requested more vCPU capacity than your current vCPU limit of %d allows.",
			s.cfg.Quotas.VCPUs,
		)
	}

	l.count = min(l.count, room)
	if name := str(l.in.KeyName); name != "" && s.findKeyPairID(name) == "" {
		return wire.Errorf("InvalidKeyPair.NotFound", "The key pair '%s' does not exist", name)
	}

	return checkUserData(l.in.UserData)
}

// placementRequest is where a request wants an instance.
type placementRequest struct {
	subnet   *string
	groups   []string
	publicIP *bool
}

// parsePlacement reads a request's place, from its one network interface or from the request itself.
func parsePlacement(l *launchRequest) (placementRequest, error) {
	w := placementRequest{subnet: l.in.SubnetId, groups: strs(l.in.SecurityGroupIds)}
	l.privateIP = str(l.in.PrivateIpAddress)
	if len(l.in.NetworkInterfaces) == 0 {
		return w, nil
	}

	f := l.in.NetworkInterfaces[0]

	switch {
	case w.subnet != nil || len(w.groups) > 0:
		return w, wire.Errorf(
			"InvalidParameterCombination",
			"Network interfaces and an instance-level subnet ID or security groups may not be specified on the same request",
		)

	case len(l.in.NetworkInterfaces) > 1:
		return w, wire.Errorf("UnsupportedOperation", "This region gives an instance one network interface")
	case f.DeviceIndex == nil || *f.DeviceIndex != 0:
		return w, wire.Errorf(
			"InvalidParameterValue",
			"Each network interface requires a device index; the first is 0.",
		)

	case f.PrivateIpAddress != nil:
		l.privateIP = *f.PrivateIpAddress
	}

	return placementRequest{f.SubnetId, strs(f.Groups), f.AssociatePublicIpAddress}, nil
}

// resolvePlacement settles subnet, groups and addresses.
func (s *Service) resolvePlacement(l *launchRequest) error {
	w, err := parsePlacement(l)
	if err != nil {
		return err
	}

	if w.subnet == nil {
		return wire.Errorf("MissingInput", "No subnets found for the default VPC. Please specify a subnet.")
	}

	n, err := s.findSubnet(w.subnet)
	if err != nil {
		return err
	}

	if p := l.in.Placement; p != nil && str(p.AvailabilityZone) != "" &&
		*p.AvailabilityZone != str(n.AvailabilityZone) {
		return wire.Errorf(
			"InvalidParameterValue",
			"The availability zone '%s' does not match the subnet's zone '%s'",
			*p.AvailabilityZone,
			str(n.AvailabilityZone),
		)
	}

	if len(w.groups) == 0 {
		w.groups = []string{s.defaultSecurityGroupID(str(n.VpcId))}
	}

	if _, err := s.resolveSecurityGroups(str(n.VpcId), w.groups, s.cfg.Quotas.GroupsPerENI); err != nil {
		return err
	}

	l.subnet = n
	l.groups = w.groups
	l.publicIP = *n.MapPublicIpOnLaunch
	if w.publicIP != nil {
		l.publicIP = *w.publicIP
	}

	return nil
}

// defaultSecurityGroupID is the id of a VPC's default group.
func (s *Service) defaultSecurityGroupID(vpc string) string {
	for id, g := range s.st.Groups {
		if str(g.VpcId) == vpc && str(g.GroupName) == "default" {
			return id
		}
	}

	return ""
}

func (s *Service) resolveInstanceProfile(l *launchRequest) error {
	p := l.in.IamInstanceProfile
	if p == nil {
		return nil
	}

	name := str(p.Name)
	field := "iamInstanceProfile.name"
	if name == "" {
		name = str(p.Arn)
		field = "iamInstanceProfile.arn"
	}

	if s.cfg.Profiles == nil {
		l.profile = &Profile{
			ARN: "arn:aws:iam::" + s.cfg.Account + ":instance-profile/" + name,
			ID:  "AIPA" + s.randomHex(16),
		}

		return nil
	}

	got, ok := s.cfg.Profiles.InstanceProfile(name)
	if !ok {
		return wire.Errorf(
			"InvalidParameterValue",
			"Value (%s) for parameter %s is invalid. Invalid IAM Instance Profile name",
			name,
			field,
		)
	}

	l.profile = &got

	return nil
}

// resolveMetadataOptions settles the metadata options.
func (s *Service) resolveMetadataOptions(l *launchRequest) error {
	o := &sdk.InstanceMetadataOptionsResponse{
		State:                   new("applied"),
		HttpTokens:              new("optional"),
		HttpEndpoint:            new("enabled"),
		HttpPutResponseHopLimit: new(int64(1)),
		HttpProtocolIpv6:        new("disabled"),
		InstanceMetadataTags:    new("disabled"),
	}

	l.metadataOptions = o
	in := l.in.MetadataOptions
	if in == nil {
		return nil
	}

	return applyMetadataOptions(o, &sdk.ModifyInstanceMetadataOptionsInput{
		HttpTokens:              in.HttpTokens,
		HttpEndpoint:            in.HttpEndpoint,
		HttpPutResponseHopLimit: in.HttpPutResponseHopLimit,
		HttpProtocolIpv6:        in.HttpProtocolIpv6,
		InstanceMetadataTags:    in.InstanceMetadataTags,
	})
}

func applyMetadataOptions(
	o *sdk.InstanceMetadataOptionsResponse,
	in *sdk.ModifyInstanceMetadataOptionsInput,
) error {
	for _, c := range []struct {
		name    string
		to      **string
		from    *string
		allowed []string
	}{
		{"HttpTokens", &o.HttpTokens, in.HttpTokens, []string{"optional", "required"}},
		{"HttpEndpoint", &o.HttpEndpoint, in.HttpEndpoint, []string{"enabled", "disabled"}},
		{"HttpProtocolIpv6", &o.HttpProtocolIpv6, in.HttpProtocolIpv6, []string{"enabled", "disabled"}},
		{"InstanceMetadataTags", &o.InstanceMetadataTags, in.InstanceMetadataTags, []string{"enabled", "disabled"}},
	} {
		if c.from == nil {
			continue
		}

		if !slices.Contains(c.allowed, *c.from) {
			return invalidParameter(c.name, *c.from, "")
		}

		*c.to = c.from
	}

	if h := in.HttpPutResponseHopLimit; h != nil {
		if *h < 1 || *h > 64 {
			return invalidParameter("HttpPutResponseHopLimit", itoa(int(*h)), "It must be between 1 and 64")
		}

		o.HttpPutResponseHopLimit = h
	}

	return nil
}

func (s *Service) parseLaunchTags(l *launchRequest) error {
	l.tags = map[string]map[string]string{}
	for _, kind := range []string{"instance", "volume", "network-interface"} {
		tags, err := parseTagSpecs(
			l.in.TagSpecifications,
			kind,
			"instance",
			"volume",
			"network-interface",
			"spot-instances-request",
		)
		if err != nil {
			return err
		}

		if len(tags) > 50 {
			return wire.Errorf("TagLimitExceeded", "More than 50 tags specified")
		}

		l.tags[kind] = tags
	}

	return nil
}

func (s *Service) checkBlockDevices(l *launchRequest) error {
	seen := map[string]bool{}
	for _, m := range l.in.BlockDeviceMappings {
		name := str(m.DeviceName)
		if name == "" || seen[name] {
			return wire.Errorf("InvalidBlockDeviceMapping", "Device name '%s' is missing or used twice", name)
		}

		seen[name] = true
		if m.Ebs == nil {
			continue
		}

		size := l.image.RootSizeGiB
		if name == l.image.RootDevice && m.Ebs.VolumeSize != nil && *m.Ebs.VolumeSize < size {
			return wire.Errorf(
				"InvalidBlockDeviceMapping",
				"Volume of size %dGB is smaller than snapshot, expect size >= %dGB",
				*m.Ebs.VolumeSize,
				size,
			)
		}

		if _, err := s.newVolume(str(l.subnet.AvailabilityZone), m.Ebs, max(size, 1)); err != nil {
			return err
		}
	}

	return nil
}

// RunInstancesWithTags launches instances for another service, such as Auto Scaling, with tags that users may not set
// (aws:autoscaling:groupName) there from the first moment on. They win over those of the launch template.
func (s *Service) RunInstancesWithTags(
	in *sdk.RunInstancesInput,
	tags map[string]string,
) (*sdk.Reservation, error) {
	return runWrite(s, func(in *sdk.RunInstancesInput) (*sdk.Reservation, error) {
		out, err := s.runInstances(in)
		if err != nil {
			return nil, err
		}

		for _, i := range out.Instances {
			s.setTags(str(i.InstanceId), tags)
			i.Tags = s.tagList(str(i.InstanceId))
		}

		return out, nil
	}, in)
}
