// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"context"
	"errors"
	"log/slog"
	"slices"
	"time"

	"github.com/slipway-k8s/slipway/api/v1alpha1"
	"github.com/slipway-k8s/slipway/internal/machine/etcd"
	"github.com/slipway-k8s/slipway/internal/machine/node"
)

// A control plane becomes smaller by a node document without some of its slots. The machine of such a slot keeps its former
// document, moves its pods and etcd's leadership away and stops its API server. Then the leader's agent removes its member,
// and records that the slot is absent: then 'slipway apply' ends the machine. See docs/design/0020-control-plane-size.md.

const (
	// leaveDrainLimit is how long a machine that leaves waits for its pods. It is drained again before it ends.
	leaveDrainLimit = time.Minute
	// leaveYieldTimeout limits the move of the leadership.
	leaveYieldTimeout = 10 * time.Second
	// leftDir has the data of a member that was removed, after its slot has returned.
	leftDir = etcd.DataMount + "/left"
)

// errSlotReturned ends the periodic tasks: the slot of this machine was not in the control plane, and is again.
var errSlotReturned = errors.New("the slot of this machine is in the control plane again")

// leaveState is how far a machine has left.
type leaveState struct {
	// since is when the machine began to leave; zero: it does not.
	since time.Time
	// drained is set once its pods have moved, or the time for it is over.
	drained bool
	// stopped is set once its API server was stopped.
	stopped bool
}

// began reports whether the machine has begun to leave.
func (s leaveState) began() bool { return !s.since.IsZero() }

// isLeaving reports whether a document of the control plane does not have this machine's slot.
func (f *follower) isLeaving(desired node.Document) bool {
	_, there := desired.Slot(f.agent.Boot.Slot)

	return desired.Role == v1alpha1.RoleControlPlane && !there
}

// leaveControlPlane does one step of leaving. It can be repeated, and continued by another process of the agent.
func (f *follower) leaveControlPlane(ctx context.Context, current node.Revision, desired node.Document) error {
	a := f.agent
	if reason := f.staying(ctx, desired); reason != "" && !f.leave.stopped {
		f.reportWaiting(current, "the slot is to leave the control plane: "+reason)
		return nil
	}

	f.reportWaiting(current, "the slot leaves the control plane; this machine ends then")
	if !f.leave.began() {
		f.leave.since = a.Now()
		a.Log.Info("leaving the control plane", slog.String("slot", a.Boot.Slot))
	}

	if err := f.yieldTo(ctx, desired); err != nil {
		a.Log.Warn("cannot move the etcd leadership away", slog.Any("error", err))
	}

	if !f.leave.drained {
		f.leave.drained = f.drainToLeave(ctx)
		if !f.leave.drained {
			return nil
		}
	}

	m, err := a.newEtcdMember()
	if err != nil {
		return err
	}

	if err := (slotRelease{member: m}).stopControlPlane(ctx); err != nil {
		return err
	}

	f.leave.stopped = true

	return nil
}

// staying returns why the slots that stay cannot do without this machine yet, or "".
func (f *follower) staying(ctx context.Context, desired node.Document) string {
	ctx, cancel := context.WithTimeout(ctx, leaveYieldTimeout)
	defer cancel()
	manager := f.members()
	slots := make([]string, 0, len(desired.Slots))
	for _, s := range desired.Slots {
		slots = append(slots, s.Name)
	}

	return EtcdNotReadyReason(slots, manager.Members(ctx, ""), true)
}

// yieldTo moves the leadership to a member that stays, if this machine's member has it.
func (f *follower) yieldTo(ctx context.Context, desired node.Document) error {
	ctx, cancel := context.WithTimeout(ctx, leaveYieldTimeout)
	defer cancel()
	slot := f.agent.Boot.Slot
	manager := f.members()
	manager.Peers = slices.DeleteFunc(slices.Clone(manager.Peers), func(p etcd.Peer) bool {
		_, stays := desired.Slot(p.Slot)
		return !stays && p.Slot != slot
	})

	_, err := manager.YieldLeadership(ctx, slot, f.etcdURL)
	if f.leave.stopped {
		return nil // the member may have been removed
	}

	return err
}

// drainToLeave cordons the node and evicts its pods. It reports whether the machine may go on.
func (f *follower) drainToLeave(ctx context.Context) bool {
	a := f.agent
	ctx, cancel := context.WithTimeout(ctx, 20*time.Second)
	defer cancel()
	drain := nodeDrain{api: a.newNodeClient(), node: a.instance.Name, now: a.Now}
	err := drain.cordon(ctx, "the slot leaves the control plane")
	waiting := ""
	if err == nil {
		waiting, err = drain.evictOnce(ctx)
	}

	return err == nil && waiting == "" || a.Now().Sub(f.leave.since) >= leaveDrainLimit
}

// addLearner adds this machine's member as a learner, if its slot is in the control plane, and records its id on the volume. Without the
// record, as after a kill, the learner is removed and another one is added: see [etcd.Facts.Added].
func (m *etcdMember) addLearner(ctx context.Context, manager etcd.Manager) error {
	if err := currentOf(m.agent).checkOwnSlot(ctx); err != nil {
		return err
	}

	if err := recordAdded(m.agent.Root, 0); err != nil { // on a full volume the membership must not change again and again
		return err
	}

	id, err := manager.AddLearner(ctx, m.slot.Name, m.slot.PeerURL)
	if err != nil {
		return err
	}

	return recordAdded(m.agent.Root, id)
}

// promoteLearner makes this machine's learner, with this status, a voter, or removes it if its slot is not in the control plane any more:
// it would keep others from joining. Only members of its own cluster are asked: those of before a restoration may still run.
func (m *etcdMember) promoteLearner(ctx context.Context, manager etcd.Manager, learner etcd.Status) {
	log := m.agent.Log
	id := learner.MemberID
	manager.ClusterID = learner.ClusterID
	if err := currentOf(m.agent).checkOwnSlot(ctx); err != nil {
		log.Info("the etcd learner is not promoted", slog.Any("error", err))
		if errors.As(err, new(notReadyError)) {
			if err := manager.RemoveMember(ctx, m.slot.Name, id); err != nil {
				log.Warn("cannot remove the etcd learner", slog.Any("error", err))
			}
		}

		return
	}

	if err := m.recordData(ctx); err != nil { // before it has a vote: see [mayVote]
		log.Info("the etcd learner is not promoted: cannot record that it has joined", slog.Any("error", err))
		return
	}

	if err := manager.PromoteLearner(ctx, m.slot.Name, id); err != nil {
		log.Info("cannot promote etcd learner yet", slog.Any("error", err))
		return
	}

	log.Info("promoted etcd learner", slog.String("member", m.slot.Member))
}

// removedInterval is the time between two questions whether the member was removed, while it has no quorum. The answer takes
// some seconds when there is none, and members usually start faster.
const removedInterval = 30 * time.Second

// wasRemoved reports whether the member, which has started and has no quorum, is not in the membership any more.
func (m *etcdMember) wasRemoved(ctx context.Context, manager etcd.Manager) bool {
	now := m.agent.Now()
	if m.removedAt.IsZero() {
		m.removedAt = now
	}

	if now.Sub(m.removedAt) < removedInterval {
		return false
	}

	m.removedAt = now

	return etcd.WasRemoved(manager.Members(ctx, m.slot.Name), m.slot.Name)
}

// setAsideLeft stops etcd and moves the data of a member that was removed to leftDir.
func (m *etcdMember) setAsideLeft(ctx context.Context) error {
	const why = "the member was removed: the control plane became smaller, or it was a learner that was stuck"
	if err := currentOf(m.agent).checkOwnSlot(ctx); err != nil {
		return err
	}

	if err := m.stopForGood(ctx, why); err != nil {
		return err
	}

	return m.moveAside(leftDir, why)
}
