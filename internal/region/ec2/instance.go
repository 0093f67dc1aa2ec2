// SPDX-License-Identifier: Apache-2.0

package ec2

import (
	"cmp"
	"slices"
	"strconv"
	"strings"

	sdk "github.com/aws/aws-sdk-go/service/ec2"

	"github.com/slipway-k8s/slipway/internal/region/wire"
)

// instanceHandlers serves instances that exist; [launchHandlers] launches them.
type instanceHandlers struct{ *Service }

func (s instanceHandlers) ops() []wire.Operation {
	return []wire.Operation{
		writeOperation(s.Service, "TerminateInstances", s.terminateInstances),
		writeOperation(s.Service, "StopInstances", s.stopInstances),
		writeOperation(s.Service, "StartInstances", s.startInstances),
		writeOperation(s.Service, "RebootInstances", s.rebootInstances),
		readOperation(s.Service, "DescribeInstances", s.describeInstances),
		readOperation(s.Service, "DescribeInstanceStatus", s.describeInstanceStatus),
		readOperation(s.Service, "DescribeInstanceAttribute", s.describeInstanceAttribute),
		writeOperation(s.Service, "ModifyInstanceAttribute", s.modifyInstanceAttribute),
		writeOperation(s.Service, "ModifyInstanceMetadataOptions", s.modifyInstanceMetadataOptions),
		wire.NewOperation("GetConsoleOutput", s.getConsoleOutput),
	}
}

func (st *serviceState) findInstance(id *string) (*sdk.Instance, error) {
	if str(id) == "" {
		return nil, missingParameter("InstanceId")
	}

	i := st.Instances[str(id)]
	switch {
	case i != nil:
		return i, nil
	case idPrefix(*id) != "i" || (len(*id) != 10 && len(*id) != 19):
		return nil, newErrorf(codeInvalidInstanceIDMalformed, "Invalid id: \"%s\"", *id)
	}

	return nil, newErrorf(codeInvalidInstanceIDNotFound, "The instance ID '%s' does not exist", *id)
}

// checkInstancesExist refuses several ids of instances that do not exist, in EC2's words; one such id is the
// business of findInstance.
func (st *serviceState) checkInstancesExist(ids []string) error {
	missing := slices.DeleteFunc(slices.Clone(ids), func(id string) bool { return st.Instances[id] != nil })
	if len(missing) < 2 {
		return nil
	}

	return newErrorf(
		codeInvalidInstanceIDNotFound,
		"The instance IDs '%s' do not exist",
		strings.Join(missing, ", "),
	)
}

// findInstances returns all instances of the ids, or the error of the first one that does not exist.
func (st *serviceState) findInstances(ids []*string) ([]*sdk.Instance, error) {
	if len(ids) == 0 {
		return nil, missingParameter("InstanceId")
	}

	if err := st.checkInstancesExist(strs(ids)); err != nil {
		return nil, err
	}

	var out []*sdk.Instance
	for _, id := range ids {
		i, err := st.findInstance(id)
		if err != nil {
			return nil, err
		}

		out = append(out, i)
	}

	return out, nil
}

// instanceFilterValues returns the values of an instance that a filter looks at. It computes the derived
// fields first.
func (s instanceHandlers) instanceFilterValues(i *sdk.Instance, name string) ([]string, bool) {
	if i.InstanceId != nil && i.NetworkInterfaces == nil {
		s.st.refreshInstance(i)
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

	if values, known := instanceListFilterValues(i, name); known {
		return values, true
	}

	return s.extendedInstanceFilterValues(i, name)
}

// instanceListFilterValues returns the values of the filters that look at a list of an instance: its security
// groups, volumes and network interfaces.
func instanceListFilterValues(i *sdk.Instance, name string) (values []string, known bool) {
	switch name {
	case "group-id", "instance.group-id", "network-interface.group-id":
		for _, g := range i.SecurityGroups {
			values = append(values, str(g.GroupId))
		}

	case "instance.group-name":
		for _, g := range i.SecurityGroups {
			values = append(values, str(g.GroupName))
		}

	case "block-device-mapping.volume-id":
		for _, m := range i.BlockDeviceMappings {
			values = append(values, str(m.Ebs.VolumeId))
		}

	case "network-interface.network-interface-id":
		for _, n := range i.NetworkInterfaces {
			values = append(values, str(n.NetworkInterfaceId))
		}

	default:
		return nil, false
	}

	return values, true
}

// extendedInstanceFilterValues returns the values of the filters that are used less often.
func (s instanceHandlers) extendedInstanceFilterValues(i *sdk.Instance, name string) ([]string, bool) {
	profile := &sdk.IamInstanceProfile{}
	launched := ""
	reservation := ""
	options := &sdk.InstanceMetadataOptionsResponse{}
	reason := &sdk.StateReason{}
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

	if i.StateReason != nil {
		reason = i.StateReason
	}

	v, known := map[string][]string{
		"instance-state-code":         {strconv.FormatInt(*i.State.Code, 10)},
		"availability-zone":           {str(i.Placement.AvailabilityZone)},
		"image-id":                    {str(i.ImageId)},
		"instance-type":               {str(i.InstanceType)},
		"architecture":                {str(i.Architecture)},
		"key-name":                    {str(i.KeyName)},
		"dns-name":                    {str(i.PublicDnsName)},
		"ip-address":                  {str(i.PublicIpAddress)},
		"network-interface.subnet-id": {str(i.SubnetId)},
		"network-interface.vpc-id":    {str(i.VpcId)},
		"network-interface.addresses.private-ip-address": {str(i.PrivateIpAddress)},
		"root-device-name":             {str(i.RootDeviceName)},
		"client-token":                 {str(i.ClientToken)},
		"iam-instance-profile.arn":     {str(profile.Arn)},
		"iam-instance-profile.id":      {str(profile.Id)},
		"launch-time":                  {launched},
		"reservation-id":               {reservation},
		"owner-id":                     {s.cfg.Account},
		"monitoring-state":             {str(i.Monitoring.State)},
		"tenancy":                      {str(i.Placement.Tenancy)},
		"metadata-options.http-tokens": {str(options.HttpTokens)},
		"instance-lifecycle":           {""},
		"source-dest-check":            {boolText(i.SourceDestCheck)},
		"state-reason-code":            {str(reason.Code)},
		"state-reason-message":         {str(reason.Message)},
	}[name]

	return v, known
}

// minInstancePage is EC2's smallest page of DescribeInstances.
const minInstancePage = 5

// checkDescribedInstances refuses a request for instances that do not exist, and for pages where there are none.
func (s instanceHandlers) checkDescribedInstances(in *sdk.DescribeInstancesInput) error {
	switch {
	case in.MaxResults != nil && len(in.InstanceIds) > 0:
		return newErrorf(
			codeInvalidParameterCombination,
			"The parameter instancesSet cannot be used with the parameter maxResults",
		)

	case in.MaxResults != nil && *in.MaxResults < minInstancePage:
		return newErrorf(
			codeInvalidParameterValue,
			"Value ( %d ) for parameter maxResults is invalid. Expecting a value greater than %d.",
			*in.MaxResults,
			minInstancePage,
		)
	}

	var missing []string
	var first error
	for _, id := range in.InstanceIds {
		if _, err := s.st.findInstance(id); err != nil {
			first = cmp.Or(first, err)
			missing = append(missing, str(id))
		}
	}

	if len(missing) < 2 {
		return first
	}

	return newErrorf(
		codeInvalidInstanceIDNotFound,
		"The instance IDs '%s' do not exist",
		strings.Join(missing, ", "),
	)
}

func (s instanceHandlers) describeInstances(
	in *sdk.DescribeInstancesInput,
) (*sdk.DescribeInstancesOutput, error) {
	if err := s.checkDescribedInstances(in); err != nil {
		return nil, err
	}

	for _, i := range s.st.Instances {
		i.NetworkInterfaces = nil // makes instanceFilterValues compute it again
	}

	got, next, err := listResources(
		s.Service,
		s.st.Instances,
		describeQuery{in.InstanceIds, in.Filters, in.MaxResults, in.NextToken},
		resourceLister[sdk.Instance]{codeInvalidInstanceIDNotFound, "instance ID", s.instanceFilterValues},
	)
	if err != nil {
		return nil, err
	}

	out := &sdk.DescribeInstancesOutput{NextToken: next, Reservations: []*sdk.Reservation{}}
	at := map[string]*sdk.Reservation{}

	for _, i := range got {
		s.st.refreshInstance(i)
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

	for _, r := range out.Reservations {
		slices.SortFunc(r.Instances, func(a, b *sdk.Instance) int { return cmp.Compare(*a.AmiLaunchIndex, *b.AmiLaunchIndex) })
	}

	return out, nil
}

func isTrue(b *bool) bool { return b != nil && *b }

func newInstanceState(name string) *sdk.InstanceState {
	codes := map[string]int64{
		sdk.InstanceStateNamePending:      0,
		sdk.InstanceStateNameRunning:      16,
		sdk.InstanceStateNameShuttingDown: 32,
		sdk.InstanceStateNameTerminated:   48,
		sdk.InstanceStateNameStopping:     64,
		sdk.InstanceStateNameStopped:      80,
	}

	return &sdk.InstanceState{Name: new(name), Code: new(codes[name])}
}

// isLive reports whether an instance counts against quotas and owns resources.
func isLive(i *sdk.Instance) bool {
	state := str(i.State.Name)

	return state != sdk.InstanceStateNameTerminated && state != sdk.InstanceStateNameShuttingDown
}
