// SPDX-License-Identifier: Apache-2.0

package ec2

import sdk "github.com/aws/aws-sdk-go/service/ec2"

// Stop stops an instance, as StopInstances does. It is meant for Auto Scaling.
func (s *Service) Stop(id string) error {
	_, err := order(s, s.stopInstances, &sdk.StopInstancesInput{InstanceIds: []*string{&id}})
	return err
}

// Start starts an instance, as StartInstances does. It is meant for Auto Scaling.
func (s *Service) Start(id string) error {
	_, err := order(s, s.startInstances, &sdk.StartInstancesInput{InstanceIds: []*string{&id}})
	return err
}

// Aim lets an instance's metadata service tell the lifecycle state that Auto Scaling wants it in.
func (s *Service) Aim(id, state string) error {
	return s.locked(func() error {
		if x := s.st.Extra[id]; x != nil && x.Target != state {
			x.Target = state
			s.changed()
		}
		return nil
	})
}
