// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"context"
	"errors"
	"log/slog"
	"slices"
	"time"

	"github.com/slipway-k8s/slipway/internal/machine/etcd"
)

const (
	// maintenanceInterval is how often an agent looks whether etcd needs maintenance.
	maintenanceInterval = 10 * time.Second
	// historyKept is for how long a compaction by the agent leaves the history, so that watches go on.
	historyKept = time.Minute
	// corruptDir has the data of a member that differed from that of the majority.
	corruptDir = etcd.DataMount + "/corrupt"
	// stepAsideMark is there from before etcd is stopped until its data is in corruptDir or etcd.LearnerAsideDir.
	stepAsideMark = etcd.DataMount + "/step-aside"
)

// etcdMaintenance keeps the etcd member of this machine in order: see [etcd.DecideMaintenance].
type etcdMaintenance struct {
	agent  *Agent
	member *etcdMember
	// manager returns a client for etcd.
	manager func() etcd.Manager
	// url of the machine's own member.
	url string
	// now is the agent's clock.
	now func() time.Time

	// defragmentedAt is when the member was defragmented last.
	defragmentedAt time.Time
	// compactedAt is when etcd was compacted last.
	compactedAt time.Time
	// seen are the revisions of the last looks, oldest first.
	seen []seenRevision
	// failing counts the ends of the member's process while it does not answer.
	failing failingMember
	// reason of the last decision.
	reason string
}

// seenRevision is a revision of etcd and when it was read.
type seenRevision struct {
	at       time.Time
	revision int64
}

// newMaintenance returns the task of a control-plane machine.
func (m *etcdMember) newMaintenance() *etcdMaintenance {
	return &etcdMaintenance{
		agent:   m.agent,
		member:  m,
		manager: m.agent.newEtcdManager,
		url:     etcd.ClientURL,
		now:     m.agent.Now,
	}
}

// keepMaintained maintains the member until ctx ends.
func (m *etcdMember) keepMaintained(ctx context.Context) error {
	task := periodicTask{"etcd maintenance", maintenanceInterval, m.newMaintenance().run}

	return task.repeat(ctx, m.agent, backupTimeout)
}

// run takes one decision and carries it out.
func (w *etcdMaintenance) run(ctx context.Context) error {
	if w.agent.etcdFenced.Load() || w.agent.etcdStopped.Load() {
		return nil // other tasks decide when the member runs again
	}

	manager := w.ownManager()
	survey, err := manager.Survey(ctx, w.url)
	if err != nil {
		return w.runUnstartable(ctx, manager) // the machine's report says what is wrong with the member
	}

	w.failing = failingMember{}
	facts, err := w.gather(survey)
	if err != nil {
		return err
	}

	return w.act(ctx, manager, etcd.DecideMaintenance(facts))
}

// act writes a decision to the journal, if it has another reason than the last one, and carries it out.
func (w *etcdMaintenance) act(ctx context.Context, manager etcd.Manager, step etcd.Maintenance) error {
	if step.Reason != w.reason {
		w.agent.Log.Info(
			"maintenance of etcd",
			slog.String("step", string(step.Type)),
			slog.String("reason", step.Reason),
		)
		w.reason = step.Reason
	}

	return w.carryOut(ctx, manager, step)
}

// ownManager returns a client that reaches this machine's member at its own URL.
func (w *etcdMaintenance) ownManager() etcd.Manager {
	manager := w.manager()
	manager.Peers = slices.Clone(manager.Peers)
	for i := range manager.Peers {
		if manager.Peers[i].Slot == w.member.slot.Name {
			manager.Peers[i].ClientURL = w.url
		}
	}

	return manager
}

// gather returns the facts for a decision.
func (w *etcdMaintenance) gather(survey etcd.Survey) (etcd.MaintenanceFacts, error) {
	free, err := availableBytes(w.agent.Root)
	if err != nil {
		return etcd.MaintenanceFacts{}, err
	}

	now := w.now()

	return etcd.MaintenanceFacts{
		Now:            now,
		Slot:           w.member.slot.Name,
		Slots:          slices.Sorted(slices.Values(slotNames(w.agent))),
		Members:        survey.Members,
		Alarms:         survey.Alarms,
		FreeBytes:      free,
		AsideBytes:     spareBytes(w.agent.Root),
		CopiedAgain:    w.agent.Root.Exists(etcd.LearnerAsideDir),
		OldRevision:    w.noteRevision(now, survey.Revision),
		CompactedAt:    w.compactedAt,
		DefragmentedAt: w.defragmentedAt,
	}, nil
}

// noteRevision remembers the current revision, and returns the one of historyKept ago; 0 if it is not known.
func (w *etcdMaintenance) noteRevision(now time.Time, revision int64) int64 {
	w.seen = append(w.seen, seenRevision{at: now, revision: revision})
	old := int64(0)
	for len(w.seen) > 0 && now.Sub(w.seen[0].at) >= historyKept {
		old = w.seen[0].revision
		if len(w.seen) < 2 || now.Sub(w.seen[1].at) < historyKept {
			break
		}

		w.seen = w.seen[1:]
	}

	return old
}

// carryOut carries out one step.
func (w *etcdMaintenance) carryOut(ctx context.Context, manager etcd.Manager, step etcd.Maintenance) error {
	switch step.Type {
	case etcd.MaintainDefragment:
		return w.defragment(ctx, manager)
	case etcd.MaintainCompact:
		w.compactedAt = w.now()
		return manager.Compact(ctx, w.url, step.Revision)

	case etcd.MaintainDisarm:
		return manager.Disarm(ctx, w.url, step.Alarms)
	case etcd.MaintainStepAside:
		return w.stepAside(ctx, step)
	case etcd.MaintainBlocked:
		return errors.New(step.Reason) // reported as the failure of this task
	case etcd.MaintainNothing:
	}

	return nil
}

// stepAside sets the data of this machine's member aside. That of a learner does not replace that of a voter.
func (w *etcdMaintenance) stepAside(ctx context.Context, step etcd.Maintenance) error {
	dir := corruptDir
	if step.Learner {
		dir = etcd.LearnerAsideDir
	}

	if err := w.member.volumeRoom(dir).settingAside().make(step.CheckRoom); err != nil {
		return err
	}

	return w.member.stepAside(ctx, dir, step.Reason)
}

// defragment defragments this machine's member, after it has moved the leadership away: a leader that does not answer stops
// all writes.
func (w *etcdMaintenance) defragment(ctx context.Context, manager etcd.Manager) error {
	w.defragmentedAt = w.now()
	own := w.member.slot.Name
	if _, err := manager.YieldLeadership(ctx, own, w.url); err != nil && !errors.Is(err, etcd.ErrNoSuccessor) {
		return err
	}

	result, err := defragmentMember(ctx, manager, etcd.Peer{Slot: own, ClientURL: w.url}, w.now)
	if err != nil {
		return err
	}

	w.agent.Log.Info("defragmented etcd", slog.Int64("before", result.Before), slog.Int64("after", result.After),
		slog.Float64("seconds", result.Seconds))

	return nil
}
