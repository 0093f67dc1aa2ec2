// SPDX-License-Identifier: Apache-2.0

package etcdadmin

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/slipway-k8s/slipway/internal/cluster"
	"github.com/slipway-k8s/slipway/internal/cluster/operation"
	"github.com/slipway-k8s/slipway/internal/lib/diag"
	"github.com/slipway-k8s/slipway/internal/lib/store"
	"github.com/slipway-k8s/slipway/internal/machine/backup"
)

const (
	// endTimeout is how long the machine in the former zone may take to end, and the one in the new zone to run.
	endTimeout = 5 * time.Minute
	// testTimeout is how long the machine may take to test a backup: it looks for one every minute.
	testTimeout = 5 * time.Minute
)

// MoveRequest says how a planned move is carried out.
type MoveRequest struct {
	// Plan of the move.
	Plan MovePlan
	// LostZone says that machines in other zones cannot end, because their zone is down.
	LostZone bool
	// Timeout is how long the restoration may take.
	Timeout time.Duration
	// Confirm asks whether to move. Nothing is changed before it has returned nil.
	Confirm func() error
	// Apply shows and applies the manifests, planned without the volume that is set aside. It calls the functions that it is given
	// while it holds the lock of the cluster.
	Apply func(context.Context, MovedApply) error
}

// MovedApply is what happens within the application of the manifests.
type MovedApply struct {
	// Approve is called when the plan was shown; not if there is nothing to apply.
	Approve func(context.Context) error
	// Prepare is called right before the first change.
	Prepare func(context.Context) error
	// Undo is called if the plan is not carried out to its end.
	Undo func(context.Context) error
}

// moveSteps are the steps of a move. All but lock want the lock of the cluster to be held.
type moveSteps interface {
	// lock holds the lock of the cluster while it calls a function.
	lock(context.Context, func(context.Context) error) error
	// backUp takes a backup, and waits until it was tested.
	backUp(context.Context) (backup.Backup, error)
	lastBackupSteps

	// setAside takes the volume of the former zone out of the cluster.
	setAside(context.Context, MovePlan) error
	// giveBack undoes setAside, unless the slot has another volume.
	giveBack(context.Context, MovePlan) error
	// check returns an error if the volume is not in the zone of the plan alone.
	check(context.Context, MovePlan) error
	// endMachines ends the machines of other zones, and waits for the one in the zone.
	endMachines(context.Context, MovePlan) error
	// restore restores a backup.
	restore(ctx context.Context, id string) error
}

// lastBackupSteps take the backup with everything.
type lastBackupSteps interface {
	// backUpLast stops the API server, takes a backup and waits until it was tested. It reports whether the API server has stopped:
	// agents of earlier versions leave it. It can be repeated.
	backUpLast(context.Context) (backup.Backup, bool, error)
	// startAPI starts the API server again, also if backUpLast has failed.
	startAPI(context.Context) error
	// hasMachine reports whether a machine of another zone has not ended.
	hasMachine(context.Context, MovePlan) (bool, error)

	moveEnv
}

// moveEnv is what a move has around it.
type moveEnv interface {
	// notify tells of what happens.
	notify(message string)
	// now returns the time.
	now() time.Time
}

// Moved is what was moved.
type Moved struct {
	// Backup that was restored.
	Backup backup.Backup
	// Everything is set if nothing was written after the backup.
	Everything bool
}

// Move carries out a planned move. What cannot be undone comes last: first all is shown and confirmed, then a tested backup exists,
// then the API server stops and everything is in a backup, then the volume is set aside, and the machine ends only when the new
// volume exists. Killed at any step, a rerun completes it.
func (a *Admin) Move(ctx context.Context, r MoveRequest) (Moved, error) {
	m := move{steps: adminMove{admin: a, request: r}, request: r, plan: r.Plan}
	if err := m.run(ctx); err != nil {
		return Moved{}, err
	}

	return Moved{*m.plan.Backup, !m.complete.IsZero()}, nil
}

// move is a move that is being carried out.
type move struct {
	steps    moveSteps
	request  MoveRequest
	plan     MovePlan
	approved bool
	// asked is set once the machine was asked to stop its API server, and ending once it is to end.
	asked, ending bool
	// complete is when the machine was asked for the backup of the plan, if that has everything: its API server is stopped for
	// backup.MaxAPIStop since. Zero: writes are lost.
	complete time.Time
}

func (m *move) run(ctx context.Context) error {
	within := MovedApply{Approve: m.approve, Prepare: m.prepare, Undo: m.undo}
	if err := m.request.Apply(ctx, within); err != nil {
		return err
	}

	if m.approved {
		return m.lock(ctx, m.finish)
	}

	if err := m.request.Confirm(); err != nil { // there was nothing to apply, so nobody was asked
		return err
	}

	return m.lock(ctx, func(ctx context.Context) error {
		if err := m.secure(ctx); err != nil {
			return err
		}

		return m.finish(ctx)
	})
}

// lock holds the lock of the cluster while it calls do. A failure before the machine ends starts its API server again, also if the lock
// was not got.
func (m *move) lock(ctx context.Context, do func(context.Context) error) error {
	err := m.steps.lock(ctx, func(ctx context.Context) error {
		err := do(ctx)
		if err != nil {
			m.startAPI(ctx)
		}

		return err
	})
	if err != nil {
		m.startAPI(ctx)
	}

	return err
}

// approve has the move confirmed, and takes the backup that makes it safe.
func (m *move) approve(ctx context.Context) error {
	if err := m.request.Confirm(); err != nil {
		return err
	}

	m.approved = true

	return m.secure(ctx)
}

// secure takes a backup while the data has its machine and its volume.
func (m *move) secure(ctx context.Context) error {
	if !m.plan.TakesBackup {
		return nil
	}

	taken, err := m.steps.backUp(ctx)
	if err != nil {
		return diag.WithHint(
			fmt.Errorf(
				"take a backup of etcd of cluster %s before anything is changed: %w",
				m.plan.Cluster,
				err,
			),
			"rerun the command with --snapshot and one that 'slipway etcd snapshots' lists",
		)
	}

	m.plan.Backup = &taken

	return nil
}

// prepare takes a backup of everything and sets the volume aside, unless an earlier run did. Once the manifests are applied, the group
// has left the zone, and AWS may end the machine at any time.
func (m *move) prepare(ctx context.Context) error {
	if err := m.backUpLast(ctx); err != nil {
		return diag.WithHint(
			fmt.Errorf(
				"take a backup of everything in etcd of cluster %s before anything is changed: %w",
				m.plan.Cluster,
				err,
			),
			"rerun the command to try again",
		)
	}

	if m.plan.Volume == "" || m.plan.Aside {
		return nil
	}

	return m.steps.setAside(ctx, m.plan)
}

// undo gives the volume back, and then starts the API server of the machine that stays.
func (m *move) undo(ctx context.Context) error {
	var err error
	if m.plan.Volume != "" {
		err = m.steps.giveBack(ctx, m.plan)
	}

	m.startAPI(ctx)

	return err
}

// startAPI starts the API server, if the machine was asked to stop it and is not to end.
func (m *move) startAPI(ctx context.Context) {
	if !m.asked || m.ending {
		return
	}

	m.asked = false
	m.complete = time.Time{}
	if err := m.steps.startAPI(ctx); err != nil {
		m.steps.notify(fmt.Sprintf("the API server was not asked to start again; if it is stopped, it starts within %s: %s", backup.MaxAPIStop, err))
	}
}

// finish moves the data, after the manifests were applied.
func (m *move) finish(ctx context.Context) error {
	if err := m.steps.check(ctx, m.plan); err != nil {
		return err
	}

	if err := m.repeatLast(ctx); err != nil {
		return err
	}

	m.ending = true
	if err := m.steps.endMachines(ctx, m.plan); err != nil {
		return err
	}

	return m.steps.restore(ctx, m.plan.Backup.ID)
}

// repeatLast takes the last backup again: the API server may have started since, by itself, or after an earlier run.
func (m *move) repeatLast(ctx context.Context) error {
	err := m.backUpLast(ctx)
	if err == nil {
		return nil
	}

	remains, endErr := m.steps.hasMachine(ctx, m.plan)
	if remains || endErr != nil {
		return diag.WithHint(
			fmt.Errorf(
				"take a backup of everything in etcd of cluster %s before its machine ends: %w",
				m.plan.Cluster,
				errors.Join(err, endErr),
			),
			"rerun the command to try again; without that backup: --snapshot "+m.plan.Backup.ID,
		)
	}

	m.steps.notify(fmt.Sprintf("the machine has ended, so backup %s is restored: %s", m.plan.Backup.ID, err))
	if m.steps.now().Sub(m.complete) > backup.MaxAPIStop {
		m.complete = time.Time{} // the API server may have started before the machine ended
	}

	return nil
}

// backUpLast has the API server stopped, and everything in a backup, if the machine works.
func (m *move) backUpLast(ctx context.Context) error {
	if !m.plan.TakesBackup || len(m.plan.Machines) == 0 {
		return nil
	}

	m.asked = true
	askedAt := m.steps.now()
	taken, isAPIStopped, err := m.steps.backUpLast(ctx)
	if err != nil {
		return err
	}

	m.plan.Backup = &taken
	m.complete = askedAt
	if !isAPIStopped {
		m.complete = time.Time{}
		m.steps.notify("the agent of the machine is of an earlier version and does not stop the API server: what is written from now on is lost")
	}

	return nil
}

// adminMove carries out the steps in AWS and in the stores.
type adminMove struct {
	admin   *Admin
	request MoveRequest
}

func (s adminMove) notify(message string) { s.admin.env.Notifyf("%s", message) }

func (s adminMove) lock(ctx context.Context, do func(context.Context) error) error {
	req := cluster.OperationRequest{Store: s.admin.state, Cluster: s.admin.name, Kind: "etcd-move"}

	return s.admin.env.RunOperation(ctx, req, func(ctx context.Context, _ *operation.Operation, _ store.Store) error {
		return do(ctx)
	})
}

func (s adminMove) backUp(ctx context.Context) (backup.Backup, error) {
	answer, err := s.admin.ask(ctx, Request{Type: backup.RequestSnapshot, Reason: backup.ReasonMove})
	if err != nil {
		return backup.Backup{}, err
	}

	s.admin.env.Notifyf("took backup %s: waiting until it was tested", answer.Backup)

	return s.admin.waitTested(ctx, answer)
}

func (s adminMove) backUpLast(ctx context.Context) (backup.Backup, bool, error) {
	s.admin.env.Notifyf("the API server stops, so that the last backup has everything")
	answer, err := s.admin.ask(ctx, Request{Type: backup.RequestSnapshot, Reason: backup.ReasonMove, StopsAPI: true})
	if err != nil {
		return backup.Backup{}, false, err
	}

	s.admin.env.Notifyf("backup %s is the last one: waiting until it was tested", answer.Backup)
	taken, err := s.admin.waitTested(ctx, answer)
	if err != nil || !answer.APIStopped || !answer.IsSigned {
		return taken, false, err
	}

	return taken, true, s.admin.checkNewest(ctx, taken)
}

// checkNewest returns an error unless a machine of the cluster has signed a backup, and none of the present data is newer: whoever may
// write to the bucket could have named another one.
func (a *Admin) checkNewest(ctx context.Context, taken backup.Backup) error {
	newest, _, err := a.newestBackup(ctx)

	switch {
	case err != nil:
		return err
	case newest == nil, newest.Revision > taken.Revision, newest.Generation != taken.Generation:
		return fmt.Errorf(
			"backup %s is not the newest one that a machine of the cluster has signed: see slipway etcd snapshots %s",
			taken.ID,
			a.name,
		)
	}

	return nil
}

func (s adminMove) startAPI(ctx context.Context) error {
	_, err := s.admin.ask(ctx, Request{Type: backup.RequestStartAPI})

	return err
}

func (s adminMove) hasMachine(ctx context.Context, p MovePlan) (bool, error) {
	now, _, err := s.read(ctx, p)

	return len(now.Machines) > 0, err
}

// read returns what exists of the slot of a plan in other zones now, and the volume in the zone of the plan; empty if there is none.
func (s adminMove) read(ctx context.Context, p MovePlan) (now MovePlan, volume string, err error) {
	now = MovePlan{Cluster: p.Cluster, Slot: p.Slot, Zone: p.Zone}
	m, err := s.admin.newMover(ctx, p)
	if err != nil {
		return now, "", err
	}

	volume, err = m.read(ctx, &now)

	return now, volume, err
}

func (s adminMove) now() time.Time { return s.admin.env.Now() }

// waitTested waits until a backup was tested.
func (a *Admin) waitTested(ctx context.Context, answer backup.Answer) (backup.Backup, error) {
	deadline := a.env.Now().Add(testTimeout)
	for {
		found, err := a.findTaken(ctx, answer)
		if err != nil {
			return found, err
		}

		switch {
		case found.Verified():
			return found, nil
		case found.Untestable():
			return found, fmt.Errorf("backup %s could not be tested: %s", found.ID, found.Verification.Error)
		case found.Verification != nil:
			return found, fmt.Errorf("backup %s cannot be restored: %s", found.ID, found.Verification.Error)
		case a.env.Now().After(deadline):
			return found, fmt.Errorf("machine %s has not tested backup %s within %s", answer.Machine, found.ID, testTimeout)
		}

		select {
		case <-ctx.Done():
			return found, fmt.Errorf("wait for the test of backup %s: %w", found.ID, ctx.Err())
		case <-time.After(restorePollInterval):
		}
	}
}

func (s adminMove) setAside(ctx context.Context, p MovePlan) error {
	m, err := s.admin.newMover(ctx, p)
	if err != nil {
		return err
	}

	if err := m.setAside(ctx, p.Volume); err != nil {
		return err
	}

	s.admin.env.Notifyf("volume %s was set aside: its data stays until you delete it", p.Volume)

	return nil
}

func (s adminMove) giveBack(ctx context.Context, p MovePlan) error {
	m, err := s.admin.newMover(ctx, p)
	if err != nil {
		return err
	}

	given, err := m.giveBack(ctx, p.Volume)

	switch {
	case err != nil:
		return diag.WithHint(err, "rerun 'slipway etcd move "+p.Cluster+"': it continues from here, or gives the tags back "+
			"if the manifest names a subnet in zone "+p.VolumeZone)
	case given:
		s.admin.env.Notifyf("volume %s in zone %s has its tags again: it is the cluster's as before", p.Volume, p.VolumeZone)
	default:
		s.admin.env.Notifyf("volume %s in zone %s stays set aside, because the new one exists; rerun to go on: slipway etcd move %s",
			p.Volume, p.VolumeZone, p.Cluster)
	}

	return nil
}

// ReturnVolume gives a volume that was set aside back to the cluster, whose manifest names its zone.
func (a *Admin) ReturnVolume(ctx context.Context, p MovePlan) error {
	s := adminMove{admin: a}

	return s.lock(ctx, func(ctx context.Context) error { return s.giveBack(ctx, p) })
}

func (s adminMove) check(ctx context.Context, p MovePlan) error {
	now, present, err := s.read(ctx, p)
	if err != nil || (present != "" && now.Volume == "") {
		return err
	}

	return diag.WithHint(
		fmt.Errorf("cluster %s has changed: slot %s has volume %q in zone %s and volume %q elsewhere", p.Cluster, p.Slot, present,
			p.Zone, now.Volume),
		"see: slipway history "+p.Cluster+"; rerun the command to plan again",
	)
}

// endMachines terminates the machines of other zones, and waits until they have ended and one runs in the zone. Two machines of one
// slot would both restore the backup.
func (s adminMove) endMachines(ctx context.Context, p MovePlan) error {
	m, err := s.admin.newMover(ctx, p)
	if err != nil {
		return err
	}

	env := s.admin.env
	deadline := env.Now().Add(endTimeout)
	for told := ""; ; {
		waits, err := m.endMachines(ctx, s.request.LostZone)
		if err != nil || waits == "" {
			return err
		}

		if waits != told {
			env.Notifyf("waiting: %s", waits)
			told = waits
		}

		if env.Now().After(deadline) {
			return diag.WithHint(
				fmt.Errorf(
					"etcd cannot be restored in zone %s after %s: %s",
					p.Zone,
					endTimeout,
					waits,
				),
				"rerun the command to wait again; if the zone of a machine that does not end is down, add --zone-is-down",
			)
		}

		select {
		case <-ctx.Done():
			return fmt.Errorf("wait for the machine in zone %s: %w", p.Zone, ctx.Err())
		case <-time.After(restorePollInterval):
		}
	}
}

// restore restores a backup on the volume in the zone of the plan alone: if the other zone is taken for lost, its machine may work still.
func (s adminMove) restore(ctx context.Context, id string) error {
	_, volume, err := s.read(ctx, s.request.Plan)
	if err != nil {
		return err
	}

	plan, err := s.admin.PlanRestore(ctx, RestoreRequest{ID: id, Slot: s.request.Plan.Slot, Volume: volume})
	if err != nil {
		return err
	}

	if err := s.admin.restoreLocked(ctx, plan, s.request.Timeout); err != nil {
		return fmt.Errorf("restore etcd of cluster %s: %w", s.admin.name, err)
	}

	return nil
}
