// SPDX-License-Identifier: Apache-2.0

package ec2

import (
	"context"
	"encoding/base64"
	"fmt"
	"log/slog"
	"time"

	sdk "github.com/aws/aws-sdk-go/service/ec2"
)

// changeInstanceState sets the state of an instance and returns the change in the form of answers.
func changeInstanceState(i *sdk.Instance, to string) *sdk.InstanceStateChange {
	was := i.State
	i.State = newInstanceState(to)
	return &sdk.InstanceStateChange{InstanceId: i.InstanceId, PreviousState: was, CurrentState: i.State}
}

// unchangedInstanceState returns the current state of an instance as a change that changes nothing.
func unchangedInstanceState(i *sdk.Instance) *sdk.InstanceStateChange {
	return &sdk.InstanceStateChange{InstanceId: i.InstanceId, PreviousState: i.State, CurrentState: i.State}
}

func (s instanceHandlers) terminateInstances(
	in *sdk.TerminateInstancesInput,
) (*sdk.TerminateInstancesOutput, error) {
	all, err := s.st.findInstances(in.InstanceIds)
	if err != nil {
		return nil, err
	}

	for _, i := range all {
		if s.st.Extra[str(i.InstanceId)].NoTermination {
			return nil, newErrorf(
				codeOperationNotPermitted,
				"The instance '%s' may not be terminated. Modify its 'disableApiTermination' instance attribute and try again.",
				str(i.InstanceId),
			)
		}
	}

	out := &sdk.TerminateInstancesOutput{}

	for _, i := range all {
		if !isLive(i) {
			out.TerminatingInstances = append(out.TerminatingInstances, unchangedInstanceState(i))
			continue
		}

		out.TerminatingInstances = append(
			out.TerminatingInstances,
			changeInstanceState(i, sdk.InstanceStateNameShuttingDown),
		)

		s.setUserInitiated(i)
		s.beginTerminate(str(i.InstanceId))
	}

	return out, nil
}

// setUserInitiated records that a request stops or terminates an instance.
func (s instanceHandlers) setUserInitiated(i *sdk.Instance) {
	at := s.cfg.Now().UTC().Format("2006-01-02 15:04:05 GMT")
	i.StateTransitionReason = new("User initiated (" + at + ")")
	i.StateReason = &sdk.StateReason{
		Code:    new("Client.UserInitiatedShutdown"),
		Message: new("Client.UserInitiatedShutdown: User initiated shutdown"),
	}
}

func (s instanceHandlers) stopInstances(in *sdk.StopInstancesInput) (*sdk.StopInstancesOutput, error) {
	all, err := s.st.findInstances(in.InstanceIds)
	if err != nil {
		return nil, err
	}

	for _, i := range all {
		switch {
		case s.st.Extra[str(i.InstanceId)].NoStop:
			return nil, newErrorf(
				codeOperationNotPermitted,
				"The instance '%s' may not be stopped. Modify its 'disableApiStop' instance attribute and try again.",
				str(i.InstanceId),
			)

		case !isLive(i):
			return nil, newErrorf(
				codeIncorrectInstanceState,
				"The instance '%s' is not in a state from which it can be stopped.",
				str(i.InstanceId),
			)
		}
	}

	out := &sdk.StopInstancesOutput{}

	for _, i := range all {
		if st := str(i.State.Name); st == sdk.InstanceStateNameStopped ||
			st == sdk.InstanceStateNameStopping {
			out.StoppingInstances = append(out.StoppingInstances, unchangedInstanceState(i))
			continue
		}

		out.StoppingInstances = append(
			out.StoppingInstances,
			changeInstanceState(i, sdk.InstanceStateNameStopping),
		)

		s.setUserInitiated(i)
		s.beginStop(str(i.InstanceId))
	}

	return out, nil
}

func (s instanceHandlers) startInstances(in *sdk.StartInstancesInput) (*sdk.StartInstancesOutput, error) {
	all, err := s.st.findInstances(in.InstanceIds)
	if err != nil {
		return nil, err
	}

	for _, i := range all {
		if !isLive(i) || str(i.State.Name) == sdk.InstanceStateNameStopping {
			return nil, newErrorf(
				codeIncorrectInstanceState,
				"The instance '%s' is not in a state from which it can be started.",
				str(i.InstanceId),
			)
		}
	}

	out := &sdk.StartInstancesOutput{}

	for _, i := range all {
		if str(i.State.Name) != sdk.InstanceStateNameStopped {
			out.StartingInstances = append(out.StartingInstances, unchangedInstanceState(i))
			continue
		}

		out.StartingInstances = append(
			out.StartingInstances,
			changeInstanceState(i, sdk.InstanceStateNamePending),
		)

		i.LaunchTime = new(s.cfg.Now().UTC())
		i.StateTransitionReason, i.StateReason = new(""), nil
		s.st.Extra[str(i.InstanceId)].Restarts = true
		s.beginLaunch(str(i.InstanceId))
	}

	return out, nil
}

func (s instanceHandlers) rebootInstances(in *sdk.RebootInstancesInput) (*sdk.RebootInstancesOutput, error) {
	all, err := s.st.findInstances(in.InstanceIds)
	if err != nil {
		return nil, err
	}

	for _, i := range all {
		if str(i.State.Name) != sdk.InstanceStateNameRunning {
			return nil, newErrorf(
				codeIncorrectState,
				"Instance '%s' is not in a state from which it can be rebooted.",
				str(i.InstanceId),
			)
		}
	}

	for _, i := range all {
		id := str(i.InstanceId)
		if s.cfg.Machines == nil {
			continue
		}

		s.enqueueJob(id, func(ctx context.Context) {
			if err := s.cfg.Machines.Reboot(ctx, id); err != nil {
				s.cfg.Log.ErrorContext(
					ctx,
					"failed to reboot an instance",
					slog.String("instance", id),
					slog.Any("error", err),
				)
			}
		})
	}

	return &sdk.RebootInstancesOutput{}, nil
}

// beginLaunch starts the boot of an instance that is pending.
func (s instanceHandlers) beginLaunch(id string) {
	if s.cfg.Machines == nil {
		s.scheduleTransition(transitionInstanceRunning, id)
		return
	}

	s.enqueueJob(
		id,
		func(ctx context.Context) { s.completeJob(ctx, transitionInstanceRunning, id, s.bootInstance(ctx, id)) },
	)
}

// beginTerminate starts the removal of the machine of an instance that is shutting down.
func (s instanceHandlers) beginTerminate(id string) {
	if s.cfg.Machines == nil {
		s.scheduleTransition(transitionInstanceTerminated, id)
		return
	}

	s.enqueueJob(id, func(ctx context.Context) {
		err := s.endMachine(ctx, id, sdk.InstanceStateNameShuttingDown, s.cfg.Machines.Terminate)
		s.completeJob(ctx, transitionInstanceTerminated, id, err)
	})
}

// beginStop starts to end the machine of an instance that is stopping. Its root disk stays, and what was in
// memory is lost.
func (s instanceHandlers) beginStop(id string) {
	if s.cfg.Machines == nil {
		s.scheduleTransition(transitionInstanceStopped, id)
		return
	}

	s.enqueueJob(id, func(ctx context.Context) {
		err := s.endMachine(ctx, id, sdk.InstanceStateNameStopping, s.cfg.Machines.Stop)
		s.completeJob(ctx, transitionInstanceStopped, id, err)
	})
}

// bootInstance creates the machine of an instance: its network first, then the machine, then its volumes.
func (s instanceHandlers) bootInstance(ctx context.Context, id string) error {
	if err := s.ensureNetworkSynced(ctx); err != nil {
		return err
	}

	m, disks, ok := s.machineSpec(id)
	if !ok {
		return nil // terminated while the job waited
	}

	if err := s.cfg.Machines.Launch(ctx, m); err != nil {
		return fmt.Errorf("launch %s: %w", id, err)
	}

	for _, d := range disks {
		if err := s.cfg.Machines.CreateVolume(ctx, d.volume); err != nil {
			return fmt.Errorf("create %s of %s: %w", d.volume.ID, id, err)
		}

		if err := s.cfg.Machines.Attach(ctx, d.volume.ID, id, d.device); err != nil {
			return fmt.Errorf("attach %s to %s: %w", d.volume.ID, id, err)
		}
	}

	return nil
}

// terminatedRetention is how long a terminated instance stays visible, as in AWS.
const terminatedRetention = time.Hour

// applyInstanceTransition applies a transition of an instance. Arg is the error if the job failed.
func (s instanceHandlers) applyInstanceTransition(t transition) {
	i := s.st.Instances[t.ID]
	if i == nil {
		return
	}

	switch t.Kind {
	case transitionInstanceRunning:
		s.completeLaunch(i, t.Arg)
	case transitionInstanceStopped:
		if str(i.State.Name) == sdk.InstanceStateNameStopping {
			i.State = newInstanceState(sdk.InstanceStateNameStopped)
		}

	case transitionInstanceTerminated:
		s.completeTermination(i)
	case transitionInstanceInterrupted:
		s.interruptInstance(i)
	case transitionInstanceExpired:
		s.st.removeTags(t.ID)
		s.jobLocks.removeKey(t.ID)
		delete(s.st.Instances, t.ID)
		delete(s.st.Extra, t.ID)
	}

	s.requestNotification()
}

func (s instanceHandlers) completeLaunch(i *sdk.Instance, failure string) {
	if str(i.State.Name) != sdk.InstanceStateNamePending {
		return
	}

	if failure != "" {
		s.endFailedLaunch(i, failure)
		return
	}

	i.State = newInstanceState(sdk.InstanceStateNameRunning)
	x := s.st.Extra[str(i.InstanceId)]
	x.Impaired = false
	x.Failures = 0

	for _, m := range i.BlockDeviceMappings {
		if v := s.st.Volumes[str(m.Ebs.VolumeId)]; v != nil {
			s.st.completeAttachments(v)
		}
	}
}

// endFailedLaunch ends an instance that could not be started: a new one is terminated, one that has run is stopped again and keeps its
// root disk.
func (s instanceHandlers) endFailedLaunch(i *sdk.Instance, failure string) {
	id := str(i.InstanceId)
	i.StateReason = &sdk.StateReason{
		Code:    new("Server.InternalError"),
		Message: new("Server.InternalError: " + failure),
	}

	if s.st.Extra[id].Restarts {
		i.State = newInstanceState(sdk.InstanceStateNameStopping)
		s.beginStop(id)

		return
	}

	i.State = newInstanceState(sdk.InstanceStateNameShuttingDown)
	s.beginTerminate(id)
}

// completeTermination releases the resources of a terminated instance.
func (s instanceHandlers) completeTermination(i *sdk.Instance) {
	if str(i.State.Name) == sdk.InstanceStateNameTerminated {
		return
	}

	id := str(i.InstanceId)
	i.State = newInstanceState(sdk.InstanceStateNameTerminated)

	for _, m := range append([]*sdk.InstanceBlockDeviceMapping{}, i.BlockDeviceMappings...) {
		v := s.st.Volumes[str(m.Ebs.VolumeId)]
		if v == nil {
			continue
		}

		deleted := isTrue(m.Ebs.DeleteOnTermination)
		root := str(m.DeviceName) == str(i.RootDeviceName)
		s.st.clearAttachments(v)

		switch {
		case deleted && root:
			s.st.removeTags(str(v.VolumeId))
			delete(s.st.Volumes, str(v.VolumeId))
		case deleted:
			v.State = new(sdk.VolumeStateDeleting)
			volumeHandlers(s).beginDeleteVolume(str(v.VolumeId))
		}
	}

	s.st.releaseInterfaces(id)
	s.st.Extra[id].UserData = ""
	i.PrivateIpAddress = nil
	i.PrivateDnsName = new("")
	i.SubnetId = nil
	i.VpcId = nil
	i.BlockDeviceMappings = []*sdk.InstanceBlockDeviceMapping{}
	s.st.Pending = append(
		s.st.Pending,
		transition{At: s.cfg.Now().Add(terminatedRetention), Kind: transitionInstanceExpired, ID: id},
	)
}

// getConsoleOutput returns the output of the serial console in base64, the newest 64 KiB. It asks the machine
// without holding the lock.
func (s instanceHandlers) getConsoleOutput(
	_ context.Context,
	in *sdk.GetConsoleOutputInput,
) (*sdk.GetConsoleOutputOutput, error) {
	err := s.withLock(func() error {
		_, err := s.st.findInstance(in.InstanceId)
		return err
	})
	if err != nil {
		return nil, err
	}

	out := &sdk.GetConsoleOutputOutput{
		InstanceId: in.InstanceId,
		Timestamp:  new(s.cfg.Now().UTC()),
		Output:     new(""),
	}
	if s.cfg.Machines == nil {
		return out, nil
	}

	text, err := s.cfg.Machines.Console(str(in.InstanceId))
	if err != nil {
		s.cfg.Log.Warn(
			"failed to read a console",
			slog.String("instance", str(in.InstanceId)),
			slog.Any("error", err),
		)

		return out, nil // as AWS does before there is any output
	}

	// AWS keeps the newest 64 KiB.
	out.Output = new(base64.StdEncoding.EncodeToString(text[max(0, len(text)-64<<10):]))

	return out, nil
}
