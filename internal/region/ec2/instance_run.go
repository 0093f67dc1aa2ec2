// SPDX-License-Identifier: Apache-2.0

package ec2

import (
	"maps"
	"net/http"
	"slices"
	"strconv"
	"strings"

	sdk "github.com/aws/aws-sdk-go/service/ec2"

	"github.com/slipway-k8s/slipway/internal/region/sdkshape"
	"github.com/slipway-k8s/slipway/internal/region/wire"
)

// launchHandlers serves RunInstances.
type launchHandlers struct{ *Service }

func (s launchHandlers) ops() []wire.Operation {
	return []wire.Operation{
		writeOperation(s.Service, "RunInstances", s.runInstances),
	}
}

// mergeLaunchTemplate merges a request with its launch template; the fields of the request win. It adds the tags that
// EC2 itself gives the instances of a template.
func (s launchHandlers) mergeLaunchTemplate(l *launchRequest) error {
	in := l.in
	if in.LaunchTemplate == nil {
		return nil
	}

	t, err := s.st.findLaunchTemplate(in.LaunchTemplate.LaunchTemplateId, in.LaunchTemplate.LaunchTemplateName)
	if err != nil {
		return err
	}

	v, err := s.st.findTemplateVersion(t, str(in.LaunchTemplate.Version))
	if err != nil {
		return err
	}

	tree, err := sdkshape.ShapeToMap(v.LaunchTemplateData)
	if err != nil {
		return err
	}

	request, err := sdkshape.ShapeToMap(in)
	if err != nil {
		return err
	}

	tagsBelow, _ := tree["TagSpecifications"].([]any)
	tagsAbove, _ := request["TagSpecifications"].([]any)
	_, hasInterfaces := tree["NetworkInterfaces"].([]any)
	subnet, hasSubnet := request["SubnetId"].(string)
	maps.Copy(tree, request)
	tree["TagSpecifications"] = append(slices.Clone(tagsBelow), tagsAbove...)
	out, err := structFromFields[sdk.RunInstancesInput](tree)
	if err != nil {
		return err
	}

	if _, own := request["NetworkInterfaces"]; hasInterfaces && hasSubnet && !own {
		// Auto Scaling sets the subnet in the request although the template describes the interface.
		out.SubnetId = nil
		for _, f := range out.NetworkInterfaces {
			f.SubnetId = &subnet
		}
	}

	l.in = out
	l.templateTags = map[string]string{
		"aws:ec2launchtemplate:id":      str(t.LaunchTemplateId),
		"aws:ec2launchtemplate:version": strconv.FormatInt(*v.VersionNumber, 10),
	}

	return nil
}

// launchRequest is a launch request that was checked, with its references resolved.
type launchRequest struct {
	in              *sdk.RunInstancesInput // merged with the launch template
	count           int64                  // number of instances to launch
	image           Image
	instanceType    string // name
	subnet          *sdk.Subnet
	groups          []string // ids of security groups
	publicIP        bool     // with a public address
	profile         *Profile // nil for none
	metadataOptions *sdk.InstanceMetadataOptionsResponse
	hostname        sdk.PrivateDnsNameOptionsResponse
	tags            map[string]map[string]string // by resource type
	templateTags    map[string]string            // that EC2 gives the instances of a launch template
	privateIP       string                       // empty for any
}

func (s launchHandlers) runInstances(in *sdk.RunInstancesInput) (*sdk.Reservation, error) {
	if ids, err := s.idempotentResult("RunInstances", in.ClientToken, in); err != nil {
		return nil, err
	} else if len(ids) > 0 {
		return s.buildReservation(ids), nil
	}

	l, err := s.checkLaunchRequest(in)
	if err != nil {
		return nil, err
	}

	reservation := s.newID(reservationPrefix)
	ids := []string{}

	for n := range l.count {
		id, err := s.launchInstance(l, reservation, n)
		if err != nil {
			// EC2 launches as many as possible if that is at least MinCount.
			if n >= *in.MinCount {
				break
			}

			for _, launched := range ids {
				s.st.discardInstance(launched)
			}

			return nil, err
		}

		ids = append(ids, id)
	}

	for _, id := range ids {
		instanceHandlers(s).beginLaunch(id)
	}

	s.saveIdempotentResult("RunInstances", in.ClientToken, in, ids...)

	return s.buildReservation(ids), nil
}

func (s launchHandlers) buildReservation(ids []string) *sdk.Reservation {
	out := &sdk.Reservation{OwnerId: new(s.cfg.Account), Groups: []*sdk.GroupIdentifier{}}
	for _, id := range ids {
		if i := s.st.Instances[id]; i != nil {
			s.st.refreshInstance(i)
			out.Instances = append(out.Instances, i)
			out.ReservationId = new(s.st.Extra[id].ReservationID)
		}
	}

	return out
}

// checkLaunchRequest checks a launch request as EC2 does and resolves its references.
func (s launchHandlers) checkLaunchRequest(in *sdk.RunInstancesInput) (*launchRequest, error) {
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

	l := &launchRequest{in: in, count: *in.MaxCount}
	if err := s.mergeLaunchTemplate(l); err != nil {
		return nil, err
	}

	l.instanceType = str(l.in.InstanceType)

	checks := []func(*launchRequest) error{
		s.checkLaunchImage,
		s.resolvePlacement,
		s.checkCapacity,
		resolveHostname,
		s.resolveInstanceProfile,
		resolveMetadataOptions,
		parseLaunchTags,
		s.checkBlockDevices,
		checkMarketOptions,
	}

	for _, check := range checks {
		if err := check(l); err != nil {
			return nil, err
		}
	}

	return l, nil
}

func (s launchHandlers) checkLaunchImage(l *launchRequest) error {
	if l.instanceType == "" {
		l.instanceType = "m1.small"
	}

	if str(l.in.ImageId) == "" {
		return missingParameter("ImageId")
	}

	var err error
	if l.image, err = s.findImage(*l.in.ImageId); err != nil {
		return err
	}

	if err := s.checkInstanceType(l.instanceType); err != nil {
		return err
	}

	t := s.instanceTypes[l.instanceType]
	if !t.supportsArchitecture(l.image.Architecture) {
		return newErrorf(
			codeInvalidParameterValue,
			"The architecture '%s' of the specified instance type does not match the architecture '%s' of the "+
				"specified AMI. Specify an instance type and an AMI that have matching architectures, and try again. "+
				"You can use 'describe-instance-types' or 'describe-images' to discover the architecture of the "+
				"instance type or AMI.",
			strings.Join(t.awsArchitectures(), ","),
			l.image.Architecture,
		)
	}

	if err := s.checkBootable(l.image.ID); err != nil {
		return err
	}

	used := int64(0)

	for _, i := range s.st.Instances {
		if isLive(i) {
			used += s.instanceTypes[str(i.InstanceType)].VCPU
		}
	}

	room := (int64(s.cfg.Quotas.VCPUs) - used) / t.VCPU
	if room < *l.in.MinCount {
		return newErrorf(
			codeVCPULimitExceeded,
			"You have requested more vCPU capacity than your current vCPU limit of %d allows.",
			s.cfg.Quotas.VCPUs,
		)
	}

	l.count = min(l.count, room)
	if name := str(l.in.KeyName); name != "" && s.st.findKeyPairID(name) == "" {
		return newErrorf(codeInvalidKeyPairNotFound, "The key pair '%s' does not exist", name)
	}

	return checkUserData(l.in.UserData)
}

// NoSpotCapacity is the name by which a fault says that there is no capacity for spot instances, whatever their type.
const NoSpotCapacity = "spot"

// checkCapacity refuses a launch for which a fault says that there is no capacity: of a type, or on spot.
func (s launchHandlers) checkCapacity(l *launchRequest) error {
	lacks := s.cfg.LacksCapacity
	isSpot := l.in.InstanceMarketOptions != nil
	if lacks == nil || !lacks(l.instanceType) && (!isSpot || !lacks(NoSpotCapacity)) {
		return nil
	}

	refusal := newErrorf(
		codeInsufficientInstanceCapacity,
		"We currently do not have sufficient %s capacity in the Availability Zone you requested (%s). "+
			"Our system will be working on provisioning additional capacity.",
		l.instanceType,
		str(l.subnet.AvailabilityZone),
	)
	refusal.Status = http.StatusInternalServerError

	return refusal
}

func (s launchHandlers) resolveInstanceProfile(l *launchRequest) error {
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
	if !ok || got.Unseen {
		return newErrorf(
			codeInvalidParameterValue,
			"Value (%s) for parameter %s is invalid. Invalid IAM Instance Profile name",
			name,
			field,
		)
	}

	l.profile = &got

	return nil
}

func parseLaunchTags(l *launchRequest) error {
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
			return newErrorf(codeTagLimitExceeded, "More than 50 tags specified")
		}

		l.tags[kind] = tags
	}

	return nil
}

func (s launchHandlers) checkBlockDevices(l *launchRequest) error {
	seen := map[string]bool{}
	for _, m := range l.in.BlockDeviceMappings {
		name := str(m.DeviceName)
		if name == "" || seen[name] {
			return newErrorf(
				codeInvalidBlockDeviceMapping,
				"Device name '%s' is missing or used twice",
				name,
			)
		}

		seen[name] = true
		if m.Ebs == nil {
			continue
		}

		size := l.image.RootSizeGiB
		if name == l.image.RootDevice && m.Ebs.VolumeSize != nil && *m.Ebs.VolumeSize < size {
			return newErrorf(
				codeInvalidBlockDeviceMapping,
				"Volume of size %dGB is smaller than snapshot, expect size >= %dGB",
				*m.Ebs.VolumeSize,
				size,
			)
		}

		_, err := volumeHandlers(s).newVolume(str(l.subnet.AvailabilityZone), m.Ebs, max(size, 1))
		if err != nil {
			return err
		}
	}

	return nil
}
