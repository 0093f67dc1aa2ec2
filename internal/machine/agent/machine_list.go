// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"context"
	"sync"
	"time"
)

// machineListAge is how long a list of machines is used without a reason to read it again. An idle machine so makes
// one DescribeInstances call a minute: all machines of an account and region share one budget of requests to EC2.
const machineListAge = time.Minute

// machineList keeps the machines of the cluster as EC2 listed them last. The zero value is ready to use. Its methods may
// be called concurrently; their result is shared and must not be changed.
type machineList struct {
	mu       sync.Mutex
	listedAt time.Time
	machines []Machine
	ended    map[string]time.Time // when machines were first listed as terminated, by id
}

// listRecent returns the machines as EC2 listed them within machineListAge.
func (l *machineList) listRecent(ctx context.Context, client EC2Client, now time.Time) ([]Machine, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if !l.listedAt.IsZero() && now.Sub(l.listedAt) < machineListAge {
		return l.machines, nil
	}

	return l.read(ctx, client, now)
}

// listNow returns the machines as EC2 lists them now.
func (l *machineList) listNow(ctx context.Context, client EC2Client, now time.Time) ([]Machine, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.read(ctx, client, now)
}

// read reads the list. The caller holds the lock.
func (l *machineList) read(ctx context.Context, client EC2Client, now time.Time) ([]Machine, error) {
	machines, err := client.ListMachines(ctx)
	if err != nil {
		return nil, err
	}

	l.listedAt = now
	l.machines = machines
	l.rememberEnded(now)

	return machines, nil
}

// rememberEnded adds to each terminated machine when it was first listed as such. It forgets machines that EC2 forgets.
func (l *machineList) rememberEnded(now time.Time) {
	before := l.ended
	l.ended = map[string]time.Time{}

	for i, m := range l.machines {
		if !m.isTerminated() {
			continue
		}

		since, known := before[m.ID]
		if !known {
			since = now
		}

		l.ended[m.ID] = since
		l.machines[i].EndedSince = since
	}
}

// listSlotMachines returns the machines of the control plane, and possibly others. The last list will do while the
// members of all other slots answer and each slot has one machine: nothing can have changed that matters.
func listSlotMachines(ctx context.Context, a *Agent) ([]Machine, error) {
	client := a.ec2Client()
	if !a.peersAnswer.Load() {
		return client.ListControlPlane(ctx)
	}

	machines, err := a.machines.listRecent(ctx, client, a.Now())
	if err != nil || !hasSlotTwice(machines) {
		return machines, err
	}

	return client.ListControlPlane(ctx)
}
