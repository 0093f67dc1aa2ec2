// SPDX-License-Identifier: Apache-2.0

package ec2_test

import (
	"context"
	"errors"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	client "github.com/aws/aws-sdk-go-v2/service/ec2"
	"github.com/aws/aws-sdk-go-v2/service/ec2/types"

	"github.com/slipway-k8s/slipway/internal/region/ec2"
	"github.com/slipway-k8s/slipway/internal/region/netspec"
)

// failingMachines fails to launch, stop or terminate as long as the test wants it.
type failingMachines struct {
	*machines
	launches   atomic.Bool
	stops      atomic.Bool
	terminates atomic.Bool
	tried      atomic.Int32
}

func (f *failingMachines) Launch(ctx context.Context, m netspec.Machine) error {
	if f.launches.Load() {
		return errors.New("no memory")
	}
	return f.machines.Launch(ctx, m)
}

func (f *failingMachines) Stop(ctx context.Context, id string) error {
	if f.stops.Load() {
		f.tried.Add(1)
		return errors.New("the machine does not end")
	}
	return f.machines.Stop(ctx, id)
}

func (f *failingMachines) Terminate(ctx context.Context, id string) error {
	if f.terminates.Load() {
		f.tried.Add(1)
		return errors.New("the machine does not end")
	}
	return f.machines.Terminate(ctx, id)
}

// newFailingRegion returns a region with a running instance whose machines can fail.
func newFailingRegion(t *testing.T, more ...func(*ec2.Config)) (region, *failingMachines, string) {
	t.Helper()
	m := &failingMachines{machines: newMachines()}
	r := newRegion(t, append(more, func(c *ec2.Config) { c.Machines, c.Network = m, &network{} })...)
	start(t, r.svc)
	_, subnet := r.createVPCWithSubnet(t)
	id := *r.runInstance(t, subnet).InstanceId
	r.waitForState(t, id, types.InstanceStateNameRunning)
	return r, m, id
}

func (r region) stop(t *testing.T, id string) {
	t.Helper()
	must[*client.StopInstancesOutput](t)(r.StopInstances(t.Context(), &client.StopInstancesInput{InstanceIds: []string{id}}))
}

func (r region) terminate(t *testing.T, id string) {
	t.Helper()
	must[*client.TerminateInstancesOutput](t)(r.TerminateInstances(t.Context(), &client.TerminateInstancesInput{InstanceIds: []string{id}}))
}

// TestSlowEndOfAMachine: a fault that makes instances take long to end had no effect on instances with machines. The machine runs on
// until the time is over or the fault is cleared, as in a zone that is down.
func TestSlowEndOfAMachine(t *testing.T) {
	var delay atomic.Int64
	delay.Store(int64(time.Hour))
	r, m, id := newFailingRegion(t, func(c *ec2.Config) {
		c.ProvisioningDelay = func(kind string, usual time.Duration) time.Duration {
			if kind == "instance-deletion" {
				return time.Duration(delay.Load())
			}
			return usual
		}
	})
	r.terminate(t, id)
	time.Sleep(300 * time.Millisecond) // it would have ended
	if state := r.instance(t, id).State.Name; state != types.InstanceStateNameShuttingDown || !m.Alive(id) {
		t.Errorf("the instance is %s, its machine runs: %t", state, m.Alive(id))
	}
	delay.Store(0)
	r.waitForState(t, id, types.InstanceStateNameTerminated)
	if m.Alive(id) {
		t.Error("its machine runs")
	}
}

// TestFailedStartKeepsTheDisk: an instance that cannot be started is stopped again, with its root volume; the next start succeeds.
func TestFailedStartKeepsTheDisk(t *testing.T) {
	r, m, id := newFailingRegion(t)
	r.stop(t, id)
	r.waitForState(t, id, types.InstanceStateNameStopped)
	root := *r.instance(t, id).BlockDeviceMappings[0].Ebs.VolumeId
	m.launches.Store(true)
	in := &client.StartInstancesInput{InstanceIds: []string{id}}
	must[*client.StartInstancesOutput](t)(r.StartInstances(t.Context(), in))
	waitFor(t, "the end of the start", func() bool { return r.instance(t, id).State.Name != types.InstanceStateNamePending })
	r.waitForState(t, id, types.InstanceStateNameStopped)
	i := r.instance(t, id)
	if len(i.BlockDeviceMappings) == 0 || *i.BlockDeviceMappings[0].Ebs.VolumeId != root || *i.StateReason.Code != "Server.InternalError" {
		t.Errorf("after a failed start the instance is %+v", i)
	}
	if slices.Contains(m.lines(), "terminate") {
		t.Errorf("the machine was removed with its disk: %v", m.lines())
	}

	m.launches.Store(false)
	must[*client.StartInstancesOutput](t)(r.StartInstances(t.Context(), in))
	r.waitForState(t, id, types.InstanceStateNameRunning)
}

// TestFailedLaunchTerminates: an instance that never ran is terminated if it cannot be started.
func TestFailedLaunchTerminates(t *testing.T) {
	m := &failingMachines{machines: newMachines()}
	m.launches.Store(true)
	r := newRegion(t, func(c *ec2.Config) { c.Machines, c.Network = m, &network{} })
	start(t, r.svc)
	_, subnet := r.createVPCWithSubnet(t)
	r.waitForState(t, *r.runInstance(t, subnet).InstanceId, types.InstanceStateNameTerminated)
}

// TestMachineThatDoesNotEnd: an instance is stopped or terminated when its machine has ended, however often that fails. One that
// does not stop can be terminated.
func TestMachineThatDoesNotEnd(t *testing.T) {
	r, m, id := newFailingRegion(t)
	m.stops.Store(true)
	r.stop(t, id)
	waitForTries(t, m, 4)
	if got := r.instance(t, id).State.Name; got != types.InstanceStateNameStopping || !m.Alive(id) {
		t.Fatalf("the instance is %s while its machine runs", got)
	}

	m.terminates.Store(true)
	m.tried.Store(0)
	r.terminate(t, id)
	waitFor(t, "the stop to end", func() bool { return r.instance(t, id).State.Name == types.InstanceStateNameShuttingDown })
	waitForTries(t, m, 4)
	if got := r.instance(t, id).State.Name; got != types.InstanceStateNameShuttingDown || !m.Alive(id) {
		t.Fatalf("the instance is %s while its machine runs", got)
	}

	m.terminates.Store(false)
	r.waitForState(t, id, types.InstanceStateNameTerminated)
	if m.Alive(id) {
		t.Error("the machine of a terminated instance runs")
	}
}

// waitForTries waits until a machine could not be ended n times, at most half a minute.
func waitForTries(t *testing.T, m *failingMachines, n int32) {
	t.Helper()
	for deadline := time.Now().Add(30 * time.Second); m.tried.Load() < n; time.Sleep(10 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("the end of the machine was tried %d times, want %d", m.tried.Load(), n)
		}
	}
}
