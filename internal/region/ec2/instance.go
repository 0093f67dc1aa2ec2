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
		write(s, "RunInstances", s.runInstances),
		write(s, "TerminateInstances", s.terminateInstances),
		write(s, "StopInstances", s.stopInstances),
		write(s, "StartInstances", s.startInstances),
		write(s, "RebootInstances", s.rebootInstances),
		read(s, "DescribeInstances", s.describeInstances),
		read(s, "DescribeInstanceStatus", s.describeStatus),
		read(s, "DescribeInstanceAttribute", s.describeInstanceAttribute),
		write(s, "ModifyInstanceAttribute", s.modifyInstanceAttribute),
		write(s, "ModifyInstanceMetadataOptions", s.modifyMetadataOptions),
		wire.Operation("GetConsoleOutput", s.console),
	}
}

func (s *Service) instance(id *string) (*sdk.Instance, error) {
	if str(id) == "" {
		return nil, missing("InstanceId")
	}
	i := s.st.Instances[str(id)]
	switch {
	case i != nil:
		return i, nil
	case prefixOf(*id) != "i" || (len(*id) != 10 && len(*id) != 19):
		return nil, wire.Errorf("InvalidInstanceID.Malformed", "Invalid id: \"%s\"", *id)
	}
	return nil, wire.Errorf("InvalidInstanceID.NotFound", "The instance ID '%s' does not exist", *id)
}

// instancesOf finds all or none.
func (s *Service) instancesOf(ids []*string) ([]*sdk.Instance, error) {
	if len(ids) == 0 {
		return nil, missing("InstanceId")
	}
	var out []*sdk.Instance
	for _, id := range ids {
		i, err := s.instance(id)
		if err != nil {
			return nil, err
		}
		out = append(out, i)
	}
	return out, nil
}

// instanceField gives the values that a filter looks at; it fills in computed fields first.
func (s *Service) instanceField(i *sdk.Instance, name string) ([]string, bool) {
	if i.InstanceId != nil && i.NetworkInterfaces == nil {
		s.showInstance(i)
	}
	if i.InstanceId == nil {
		i.State, i.Placement, i.Monitoring = &sdk.InstanceState{Code: new(int64(0))}, &sdk.Placement{}, &sdk.Monitoring{}
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
	return s.rareField(i, name)
}

func (s *Service) rareField(i *sdk.Instance, name string) ([]string, bool) {
	var groups, groupNames, volumes, faces []string
	for _, g := range i.SecurityGroups {
		groups, groupNames = append(groups, str(g.GroupId)), append(groupNames, str(g.GroupName))
	}
	for _, m := range i.BlockDeviceMappings {
		volumes = append(volumes, str(m.Ebs.VolumeId))
	}
	for _, n := range i.NetworkInterfaces {
		faces = append(faces, str(n.NetworkInterfaceId))
	}
	profile, launched, reservation, options := &sdk.IamInstanceProfile{}, "", "", &sdk.InstanceMetadataOptionsResponse{}
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
func (s *Service) DescribeInstances(_ context.Context, in *sdk.DescribeInstancesInput) (*sdk.DescribeInstancesOutput, error) {
	return ask(s, s.describeInstances, in)
}

func (s *Service) describeInstances(in *sdk.DescribeInstancesInput) (*sdk.DescribeInstancesOutput, error) {
	for _, id := range in.InstanceIds {
		if _, err := s.instance(id); err != nil {
			return nil, err
		}
	}
	for _, i := range s.st.Instances {
		i.NetworkInterfaces = nil // filters see them anew
	}
	got, next, err := list(s, s.st.Instances, query{in.InstanceIds, in.Filters, in.MaxResults, in.NextToken},
		lister[sdk.Instance]{"InvalidInstanceID.NotFound", "instance ID", s.instanceField})
	if err != nil {
		return nil, err
	}
	out, at := &sdk.DescribeInstancesOutput{NextToken: next, Reservations: []*sdk.Reservation{}}, map[string]*sdk.Reservation{}
	for _, i := range got {
		s.showInstance(i)
		id := s.st.Extra[str(i.InstanceId)].ReservationID
		r := at[id]
		if r == nil {
			r = &sdk.Reservation{ReservationId: new(id), OwnerId: new(s.cfg.Account), Groups: []*sdk.GroupIdentifier{}}
			at[id] = r
			out.Reservations = append(out.Reservations, r)
		}
		r.Instances = append(r.Instances, i)
	}
	return out, nil
}

func (s *Service) describeStatus(in *sdk.DescribeInstanceStatusInput) (*sdk.DescribeInstanceStatusOutput, error) {
	for _, id := range in.InstanceIds {
		if _, err := s.instance(id); err != nil {
			return nil, err
		}
	}
	field := func(i *sdk.Instance, name string) ([]string, bool) {
		id := str(i.InstanceId)
		switch name {
		case "availability-zone", "instance-state-name", "instance-state-code":
			return s.instanceField(i, name)
		case "instance-status.status", "instance-status.reachability":
			return []string{s.health(id)}, true
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
	wanted := slices.DeleteFunc(slices.Clone(in.InstanceIds), func(id *string) bool { return shown[str(id)] == nil })
	if len(in.InstanceIds) > 0 && len(wanted) == 0 {
		return &sdk.DescribeInstanceStatusOutput{InstanceStatuses: []*sdk.InstanceStatus{}}, nil
	}
	got, next, err := list(s, shown, query{wanted, in.Filters, in.MaxResults, in.NextToken},
		lister[sdk.Instance]{"InvalidInstanceID.NotFound", "instance ID", field})
	out := &sdk.DescribeInstanceStatusOutput{NextToken: next, InstanceStatuses: []*sdk.InstanceStatus{}}
	for _, i := range got {
		out.InstanceStatuses = append(out.InstanceStatuses, s.status(i))
	}
	return out, err
}

// health is the status of an instance's own check.
func (s *Service) health(id string) string {
	i, x := s.st.Instances[id], s.st.Extra[id]
	switch {
	case i == nil || x == nil || str(i.State.Name) != sdk.InstanceStateNameRunning:
		return "not-applicable"
	case x.Impaired:
		return "impaired"
	}
	return "ok"
}

func (s *Service) status(i *sdk.Instance) *sdk.InstanceStatus {
	mine := s.health(str(i.InstanceId))
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
		InstanceId: i.InstanceId, AvailabilityZone: i.Placement.AvailabilityZone, InstanceState: i.State,
		InstanceStatus: summary(mine), SystemStatus: summary(system),
	}
}

// InstanceFacts are what other services ask about an instance.
type InstanceFacts struct {
	ID, VPC, Subnet, Zone, State, Type string
	Impaired                           bool // its machine died though it should run
}

// Instance says where an instance is and how it is; false if there is no such instance.
func (s *Service) Instance(id string) (InstanceFacts, bool) {
	var f InstanceFacts
	err := s.locked(func() error {
		i, err := s.instance(&id)
		if err != nil {
			return err
		}
		f = InstanceFacts{
			ID: id, VPC: str(i.VpcId), Subnet: str(i.SubnetId), Zone: str(i.Placement.AvailabilityZone), State: str(i.State.Name),
			Type: str(i.InstanceType), Impaired: s.health(id) == "impaired",
		}
		return nil
	})
	return f, err == nil
}
