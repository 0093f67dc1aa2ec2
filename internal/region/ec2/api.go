// SPDX-License-Identifier: Apache-2.0

package ec2

import (
	"context"

	sdk "github.com/aws/aws-sdk-go/service/ec2"
)

// DescribeInstances is the operation DescribeInstances, for Auto Scaling and load balancing.
func (s *Service) DescribeInstances(
	_ context.Context,
	in *sdk.DescribeInstancesInput,
) (*sdk.DescribeInstancesOutput, error) {
	return runInternalRead(s, instanceHandlers{s}.describeInstances, in)
}

// InstanceInfo is what other services need to know about an instance.
type InstanceInfo struct {
	ID       string
	VPC      string // empty once terminated
	Subnet   string // empty once terminated
	Zone     string // such as us-east-1a
	State    string // such as running
	Type     string // instance type
	Impaired bool   // the machine died although the instance should run
	// Rebalance is set for a spot instance with a rebalance recommendation.
	Rebalance bool
}

// InstanceInfo returns the location and the state of an instance, or false if it does not exist.
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
		if x := s.st.Extra[id]; x != nil {
			f.Rebalance = !x.RebalanceAt.IsZero()
		}

		return nil
	})

	return f, err == nil
}

// StopInstance stops an instance as StopInstances does, for Auto Scaling.
func (s *Service) StopInstance(id string) error {
	in := &sdk.StopInstancesInput{InstanceIds: []*string{&id}}
	_, err := runInternalWrite(s, instanceHandlers{s}.stopInstances, in)

	return err
}

// StartInstance starts an instance as StartInstances does, for Auto Scaling.
func (s *Service) StartInstance(id string) error {
	in := &sdk.StartInstancesInput{InstanceIds: []*string{&id}}
	_, err := runInternalWrite(s, instanceHandlers{s}.startInstances, in)

	return err
}

// SetTargetLifecycleState sets the lifecycle state that an instance finds in its metadata at
// autoscaling/target-lifecycle-state, such as InService. Auto Scaling calls it.
func (s *Service) SetTargetLifecycleState(id, state string) error {
	return s.withLock(func() error {
		if x := s.st.Extra[id]; x != nil && x.Target != state {
			x.Target = state
			s.markChanged()
		}

		return nil
	})
}

// TerminateInstances is the operation TerminateInstances, for Auto Scaling.
func (s *Service) TerminateInstances(
	_ context.Context,
	in *sdk.TerminateInstancesInput,
) (*sdk.TerminateInstancesOutput, error) {
	return runInternalWrite(s, instanceHandlers{s}.terminateInstances, in)
}

// RunInstances launches instances as the operation RunInstances does, for Auto Scaling.
func (s *Service) RunInstances(_ context.Context, in *sdk.RunInstancesInput) (*sdk.Reservation, error) {
	return runWrite(s, launchHandlers{s}.runInstances, in)
}

// RunInstancesWithTags launches instances for another service, such as Auto Scaling. The instances have the
// given tags from the start, and these win over the tags of the launch template. Users may not set such tags,
// for example aws:autoscaling:groupName.
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

// LaunchTemplateInfo describes one version of a launch template.
type LaunchTemplateInfo struct {
	ID           string // of the template
	Name         string // of the template
	Version      int64  // number, also if it was found as $Latest or $Default
	InstanceType string // empty if the template sets none
}

// LaunchTemplateInfo returns a version of a launch template, found by the template's id or name. version is a
// number, $Latest or $Default.
func (s *Service) LaunchTemplateInfo(id, name, version string) (LaunchTemplateInfo, error) {
	var f LaunchTemplateInfo
	err := s.withLock(func() error {
		t, err := s.st.findLaunchTemplate(&id, &name)
		if err != nil {
			return err
		}

		if s.isUnseen(str(t.LaunchTemplateId)) {
			return newMissingTemplateError(str(t.LaunchTemplateId))
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

// HasVPC reports whether a VPC of that id exists and is visible.
func (s *Service) HasVPC(id string) bool {
	s.store.Lock()
	defer s.store.Unlock()
	return s.st.VPCs[id] != nil && !s.isUnseen(id)
}

// Zones returns the names of the region's availability zones, such as us-east-1a.
func (s *Service) Zones() []string { return s.cfg.zoneNames() }
