// SPDX-License-Identifier: Apache-2.0

package ec2

import (
	"context"
	"slices"
	"strconv"

	sdk "github.com/aws/aws-sdk-go/service/ec2"

	"github.com/slipway-k8s/slipway/internal/region/wire"
)

func (s *Service) instanceOps() []wire.Op {
	return []wire.Op{
		writeOperation(s, "TerminateInstances", s.terminateInstances),
		writeOperation(s, "StopInstances", s.stopInstances),
		writeOperation(s, "StartInstances", s.startInstances),
		writeOperation(s, "RebootInstances", s.rebootInstances),
		readOperation(s, "DescribeInstances", s.describeInstances),
		readOperation(s, "DescribeInstanceStatus", s.describeInstanceStatus),
		readOperation(s, "DescribeInstanceAttribute", s.describeInstanceAttribute),
		writeOperation(s, "ModifyInstanceAttribute", s.modifyInstanceAttribute),
		writeOperation(s, "ModifyInstanceMetadataOptions", s.modifyInstanceMetadataOptions),
		wire.Operation("GetConsoleOutput", s.getConsoleOutput),
	}
}

func (s *Service) findInstance(id *string) (*sdk.Instance, error) {
	if str(id) == "" {
		return nil, missingParameter("InstanceId")
	}

	i := s.st.Instances[str(id)]
	switch {
	case i != nil:
		return i, nil
	case idPrefix(*id) != "i" || (len(*id) != 10 && len(*id) != 19):
		return nil, wire.Errorf("InvalidInstanceID.Malformed", "Invalid id: \"%s\"", *id)
	}

	return nil, wire.Errorf("InvalidInstanceID.NotFound", "The instance ID '%s' does not exist", *id)
}

// findInstances finds all or none.
func (s *Service) findInstances(ids []*string) ([]*sdk.Instance, error) {
	if len(ids) == 0 {
		return nil, missingParameter("InstanceId")
	}

	var out []*sdk.Instance
	for _, id := range ids {
		i, err := s.findInstance(id)
		if err != nil {
			return nil, err
		}

		out = append(out, i)
	}

	return out, nil
}

// instanceFilterValues gives the values that a filter looks at; it fills in computed fields first.
func (s *Service) instanceFilterValues(i *sdk.Instance, name string) ([]string, bool) {
	if i.InstanceId != nil && i.NetworkInterfaces == nil {
		s.refreshInstance(i)
	}

	if i.InstanceId == nil {
		i.State = &sdk.InstanceState{Code: new(int64(0))}
		i.Placement = &sdk.Placement{}
		i.Monitoring = &sdk.Monitoring{}
	}

	switch name {
	case "instance-id":
		return []string{str(i.InstanceId)}, true
	case "instance-state-name":
		return []string{str(i.State.Name)}, true
	case "vpc-id":
		return []string{str(i.VpcId)}, true
	case "subnet-id":
		return []string{str(i.SubnetId)}, true
	case "private-dns-name":
		return []string{str(i.PrivateDnsName)}, true
	case "private-ip-address":
		return []string{str(i.PrivateIpAddress)}, true
	}

	return s.extendedInstanceFilterValues(i, name)
}

func (s *Service) extendedInstanceFilterValues(i *sdk.Instance, name string) ([]string, bool) {
	var groups, groupNames, volumes, faces []string
	for _, g := range i.SecurityGroups {
		groups = append(groups, str(g.GroupId))
		groupNames = append(groupNames, str(g.GroupName))
	}

	for _, m := range i.BlockDeviceMappings {
		volumes = append(volumes, str(m.Ebs.VolumeId))
	}

	for _, n := range i.NetworkInterfaces {
		faces = append(faces, str(n.NetworkInterfaceId))
	}

	profile := &sdk.IamInstanceProfile{}
	launched := ""
	reservation := ""
	options := &sdk.InstanceMetadataOptionsResponse{}
	if i.IamInstanceProfile != nil {
		profile = i.IamInstanceProfile
	}

	if i.LaunchTime != nil {
		launched = i.LaunchTime.Format("2006-01-02T15:04:05.000Z")
	}

	if x := s.st.Extra[str(i.InstanceId)]; x != nil {
		reservation = x.ReservationID
	}

	if i.MetadataOptions != nil {
		options = i.MetadataOptions
	}

	v, known := map[string][]string{
		"instance-state-code": {strconv.FormatInt(*i.State.Code, 10)}, "availability-zone": {str(i.Placement.AvailabilityZone)},
		"image-id": {str(i.ImageId)}, "instance-type": {str(i.InstanceType)}, "architecture": {str(i.Architecture)},
		"key-name": {str(i.KeyName)}, "dns-name": {str(i.PublicDnsName)}, "ip-address": {str(i.PublicIpAddress)},
		"instance.group-id": groups, "network-interface.group-id": groups, "instance.group-name": groupNames, "group-id": groups,
		"network-interface.network-interface-id": faces, "network-interface.subnet-id": {str(i.SubnetId)},
		"network-interface.vpc-id": {str(i.VpcId)}, "network-interface.addresses.private-ip-address": {str(i.PrivateIpAddress)},
		"block-device-mapping.volume-id": volumes, "root-device-name": {str(i.RootDeviceName)}, "client-token": {str(i.ClientToken)},
		"iam-instance-profile.arn": {str(profile.Arn)}, "iam-instance-profile.id": {str(profile.Id)}, "launch-time": {launched},
		"reservation-id": {reservation}, "owner-id": {s.cfg.Account}, "monitoring-state": {str(i.Monitoring.State)},
		"tenancy": {str(i.Placement.Tenancy)}, "metadata-options.http-tokens": {str(options.HttpTokens)}, "instance-lifecycle": {""},
	}[name]

	return v, known
}

// DescribeInstances is the operation of that name. It is meant for Auto Scaling and load balancing.
func (s *Service) DescribeInstances(
	_ context.Context,
	in *sdk.DescribeInstancesInput,
) (*sdk.DescribeInstancesOutput, error) {
	return runRead(s, s.describeInstances, in)
}

func (s *Service) describeInstances(in *sdk.DescribeInstancesInput) (*sdk.DescribeInstancesOutput, error) {
	for _, id := range in.InstanceIds {
		if _, err := s.findInstance(id); err != nil {
			return nil, err
		}
	}

	for _, i := range s.st.Instances {
		i.NetworkInterfaces = nil // filters see them anew
	}

	got, next, err := listResources(
		s,
		s.st.Instances,
		describeQuery{in.InstanceIds, in.Filters, in.MaxResults, in.NextToken},
		resourceLister[sdk.Instance]{"InvalidInstanceID.NotFound", "instance ID", s.instanceFilterValues},
	)
	if err != nil {
		return nil, err
	}

	out := &sdk.DescribeInstancesOutput{NextToken: next, Reservations: []*sdk.Reservation{}}
	at := map[string]*sdk.Reservation{}

	for _, i := range got {
		s.refreshInstance(i)
		id := s.st.Extra[str(i.InstanceId)].ReservationID
		r := at[id]
		if r == nil {
			r = &sdk.Reservation{
				ReservationId: new(id),
				OwnerId:       new(s.cfg.Account),
				Groups:        []*sdk.GroupIdentifier{},
			}

			at[id] = r
			out.Reservations = append(out.Reservations, r)
		}

		r.Instances = append(r.Instances, i)
	}

	return out, nil
}

func (s *Service) describeInstanceStatus(
	in *sdk.DescribeInstanceStatusInput,
) (*sdk.DescribeInstanceStatusOutput, error) {
	for _, id := range in.InstanceIds {
		if _, err := s.findInstance(id); err != nil {
			return nil, err
		}
	}

	field := func(i *sdk.Instance, name string) ([]string, bool) {
		id := str(i.InstanceId)
		switch name {
		case "availability-zone", "instance-state-name", "instance-state-code":
			return s.instanceFilterValues(i, name)
		case "instance-status.status", "instance-status.reachability":
			return []string{s.instanceHealth(id)}, true
		case "system-status.status", "system-status.reachability":
			return []string{"ok"}, true
		}

		return nil, false
	}

	shown := map[string]*sdk.Instance{}

	for id, i := range s.st.Instances {
		if isTrue(in.IncludeAllInstances) || str(i.State.Name) == sdk.InstanceStateNameRunning {
			shown[id] = i
		}
	}

	wanted := slices.DeleteFunc(
		slices.Clone(in.InstanceIds),
		func(id *string) bool { return shown[str(id)] == nil },
	)
	if len(in.InstanceIds) > 0 && len(wanted) == 0 {
		return &sdk.DescribeInstanceStatusOutput{InstanceStatuses: []*sdk.InstanceStatus{}}, nil
	}

	got, next, err := listResources(s, shown, describeQuery{wanted, in.Filters, in.MaxResults, in.NextToken},
		resourceLister[sdk.Instance]{"InvalidInstanceID.NotFound", "instance ID", field})
	out := &sdk.DescribeInstanceStatusOutput{NextToken: next, InstanceStatuses: []*sdk.InstanceStatus{}}
	for _, i := range got {
		out.InstanceStatuses = append(out.InstanceStatuses, s.instanceStatus(i))
	}

	return out, err
}

// instanceHealth is the status of an instance's own check.
func (s *Service) instanceHealth(id string) string {
	i := s.st.Instances[id]
	x := s.st.Extra[id]
	switch {
	case i == nil || x == nil || str(i.State.Name) != sdk.InstanceStateNameRunning:
		return "not-applicable"
	case x.Impaired:
		return "impaired"
	}

	return "ok"
}

func (s *Service) instanceStatus(i *sdk.Instance) *sdk.InstanceStatus {
	mine := s.instanceHealth(str(i.InstanceId))
	summary := func(status string) *sdk.InstanceStatusSummary {
		reach := map[string]string{"ok": "passed", "impaired": "failed"}[status]
		out := &sdk.InstanceStatusSummary{Status: new(status)}
		if reach != "" {
			out.Details = []*sdk.InstanceStatusDetails{{Name: new("reachability"), Status: new(reach)}}
		}

		return out
	}

	system := mine
	if mine == "impaired" {
		system = "ok"
	}

	return &sdk.InstanceStatus{
		InstanceId:       i.InstanceId,
		AvailabilityZone: i.Placement.AvailabilityZone,
		InstanceState:    i.State,
		InstanceStatus:   summary(mine),
		SystemStatus:     summary(system),
	}
}

// InstanceInfo are what other services ask about an instance.
type InstanceInfo struct {
	ID, VPC, Subnet, Zone, State, Type string
	Impaired                           bool // its machine died though it should run
}

// InstanceInfo says where an instance is and how it is; false if there is no such instance.
func (s *Service) InstanceInfo(id string) (InstanceInfo, bool) {
	var f InstanceInfo
	err := s.withLock(func() error {
		i, err := s.findInstance(&id)
		if err != nil {
			return err
		}

		f = InstanceInfo{
			ID:       id,
			VPC:      str(i.VpcId),
			Subnet:   str(i.SubnetId),
			Zone:     str(i.Placement.AvailabilityZone),
			State:    str(i.State.Name),
			Type:     str(i.InstanceType),
			Impaired: s.instanceHealth(id) == "impaired",
		}

		return nil
	})

	return f, err == nil
}
