// SPDX-License-Identifier: Apache-2.0

package ec2

import (
	"context"

	sdk "github.com/aws/aws-sdk-go/service/ec2"
)

// DescribeInstances is the operation of that name. It is meant for Auto Scaling and load balancing.
func (s *Service) DescribeInstances(
	_ context.Context,
	in *sdk.DescribeInstancesInput,
) (*sdk.DescribeInstancesOutput, error) {
	return runRead(s, instanceHandlers{s}.describeInstances, in)
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
		i, err := s.st.findInstance(&id)
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
			Impaired: s.st.instanceHealth(id) == "impaired",
		}

		return nil
	})

	return f, err == nil
}

// StopInstance stops an instance, as StopInstances does. It is meant for Auto Scaling.
func (s *Service) StopInstance(id string) error {
	in := &sdk.StopInstancesInput{InstanceIds: []*string{&id}}
	_, err := runWrite(s, instanceHandlers{s}.stopInstances, in)

	return err
}

// StartInstance starts an instance, as StartInstances does. It is meant for Auto Scaling.
func (s *Service) StartInstance(id string) error {
	in := &sdk.StartInstancesInput{InstanceIds: []*string{&id}}
	_, err := runWrite(s, instanceHandlers{s}.startInstances, in)

	return err
}

// SetTargetLifecycleState lets an instance's metadata service tell the lifecycle state that Auto Scaling wants it in.
func (s *Service) SetTargetLifecycleState(id, state string) error {
	return s.withLock(func() error {
		if x := s.st.Extra[id]; x != nil && x.Target != state {
			x.Target = state
			s.markChanged()
		}

		return nil
	})
}

// TerminateInstances is the operation of that name. It is meant for Auto Scaling.
func (s *Service) TerminateInstances(
	_ context.Context,
	in *sdk.TerminateInstancesInput,
) (*sdk.TerminateInstancesOutput, error) {
	return runWrite(s, instanceHandlers{s}.terminateInstances, in)
}

// RunInstances launches instances, as the operation of that name does. It is meant for Auto Scaling.
func (s *Service) RunInstances(_ context.Context, in *sdk.RunInstancesInput) (*sdk.Reservation, error) {
	return runWrite(s, launchHandlers{s}.runInstances, in)
}

// RunInstancesWithTags launches instances for another service, such as Auto Scaling, with tags that users may not set
// (aws:autoscaling:groupName) there from the first moment on. They win over those of the launch template.
func (s *Service) RunInstancesWithTags(
	in *sdk.RunInstancesInput,
	tags map[string]string,
) (*sdk.Reservation, error) {
	return runWrite(s, func(in *sdk.RunInstancesInput) (*sdk.Reservation, error) {
		out, err := launchHandlers{s}.runInstances(in)
		if err != nil {
			return nil, err
		}

		for _, i := range out.Instances {
			s.st.setTags(str(i.InstanceId), tags)
			i.Tags = s.st.tagList(str(i.InstanceId))
		}

		return out, nil
	}, in)
}

// LaunchTemplateInfo name one version of a launch template.
type LaunchTemplateInfo struct {
	ID, Name     string
	Version      int64
	InstanceType string
}

// LaunchTemplateInfo finds a version of a launch template by the template's id or name; version may be $Latest or $Default.
func (s *Service) LaunchTemplateInfo(id, name, version string) (LaunchTemplateInfo, error) {
	var f LaunchTemplateInfo
	err := s.withLock(func() error {
		t, err := s.st.findLaunchTemplate(&id, &name)
		if err != nil {
			return err
		}

		v, err := s.st.findTemplateVersion(t, version)
		if err != nil {
			return err
		}

		f = LaunchTemplateInfo{
			str(t.LaunchTemplateId),
			str(t.LaunchTemplateName),
			*v.VersionNumber,
			str(v.LaunchTemplateData.InstanceType),
		}

		return nil
	})

	return f, err
}

// HasVPC says whether there is a VPC of that id.
func (s *Service) HasVPC(id string) bool {
	s.store.Lock()
	defer s.store.Unlock()
	return s.st.VPCs[id] != nil
}

// Zones returns the names of the region's availability zones, such as us-east-1a.
func (s *Service) Zones() []string { return s.cfg.zoneNames() }
