// SPDX-License-Identifier: Apache-2.0

package ec2

import sdk "github.com/aws/aws-sdk-go/service/ec2"

// StopInstance stops an instance, as StopInstances does. It is meant for Auto Scaling.
func (s *Service) StopInstance(id string) error {
	_, err := runWrite(s, s.stopInstances, &sdk.StopInstancesInput{InstanceIds: []*string{&id}})
	return err
}

// StartInstance starts an instance, as StartInstances does. It is meant for Auto Scaling.
func (s *Service) StartInstance(id string) error {
	_, err := runWrite(s, s.startInstances, &sdk.StartInstancesInput{InstanceIds: []*string{&id}})
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
