// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"slices"
	"time"

	"github.com/slipway-k8s/slipway/internal/machine/etcd"
	"github.com/slipway-k8s/slipway/internal/machine/kube"
	"github.com/slipway-k8s/slipway/internal/machine/node"
)

const (
	// resizeInterval is how often the leader's agent looks whether a member has to leave.
	resizeInterval = 10 * time.Second
	// servePatience is how long a machine that leaves may take until its API server has stopped.
	servePatience = 2 * time.Minute
	// serveProbeTimeout limits the attempt to connect to an API server.
	serveProbeTimeout = 2 * time.Second
	// absentTimeout limits one read or write of a record. A write must not be delayed for long: the slot may return.
	absentTimeout = 5 * time.Second
)

// etcdResize removes the members of slots that are not in the control plane any more, and a learner that keeps others from
// joining: see [etcd.DecideResize] and [etcd.DecideLearner].
type etcdResize struct {
	agent  *Agent
	member *etcdMember
	// manager returns a client for etcd that knows all possible slots, and this machine's member by its own URL.
	manager func() etcd.Manager
	// url of the machine's own member.
	url string
	// checkCurrent returns why the machine's document is not the current one; nil if it is.
	checkCurrent func(ctx context.Context) error
	// checkChanges returns why no member may leave now: another machine is being changed.
	checkChanges func(ctx context.Context) error
	// serves reports whether the API server of a slot accepts connections.
	serves func(ctx context.Context, slot string) bool

	// leavingSince is since when a slot has a member that has to leave.
	leavingSince map[string]time.Time
	// noted are the slots whose absence is recorded.
	noted map[string]bool
	// noteAfter is when absences are recorded at the earliest: the revisions are not read more often for that alone.
	noteAfter time.Time
	told      string
	// learner is what was seen of the member that joins.
	learner etcd.LearnerWatch
}

// newResize returns the task of a control-plane machine.
func (m *etcdMember) newResize() *etcdResize {
	return &etcdResize{
		agent:        m.agent,
		member:       m,
		manager:      m.agent.newEtcdManager,
		url:          etcd.ClientURL,
		checkCurrent: currentOf(m.agent).checkSlots,
		checkChanges: func(ctx context.Context) error {
			lock, _, err := newUpdateLock(m.agent).read(ctx)
			if err == nil && lock.IsHeldByOther("", m.agent.Now()) {
				err = newNotReadyError("the control plane is being changed: its update lock is held by %s", lock.Holder)
			}

			return err
		},
		serves:       func(ctx context.Context, slot string) bool { return servesAPI(ctx, m.agent, slot) },
		leavingSince: map[string]time.Time{},
		noted:        map[string]bool{},
	}
}

// keepSize removes members that have to leave until ctx ends. It returns errSlotReturned if the own member was removed, and
// has to join again.
func (m *etcdMember) keepSize(ctx context.Context) error {
	ctx, stop := context.WithCancelCause(ctx)
	defer stop(nil)
	w := m.newResize()
	task := periodicTask{"etcd size", resizeInterval, func(ctx context.Context) error {
		err := w.run(ctx)
		if errors.Is(err, errSlotReturned) {
			stop(err)
		}

		return err
	}}

	err := task.repeat(ctx, m.agent, time.Minute)
	if cause := context.Cause(ctx); errors.Is(cause, errSlotReturned) {
		return cause
	}

	return err
}

// run takes one decision and carries it out. The membership is read before the revisions: a member of a slot that returns
// adds itself only after the revision with that slot was published, so it cannot be one that was seen before.
func (w *etcdResize) run(ctx context.Context) error {
	a := w.agent
	if a.etcdFenced.Load() || a.etcdStopped.Load() {
		return nil // other tasks decide when the member runs again
	}

	manager := w.allManager()
	status, err := manager.Status(ctx, w.url)
	if err != nil {
		return w.checkRemoved(ctx, manager)
	}

	if !status.Leader {
		return nil
	}

	manager.ClusterID = status.ClusterID // no member of another one leaves, also if this one is restored meanwhile
	survey, err := manager.Survey(ctx, w.url)
	if err != nil {
		return nil //nolint:nilerr // without a quorum nothing can be done here; validate says so
	}

	return errors.Join(w.shrink(ctx, manager, survey), w.clearLearner(ctx, manager, survey))
}

// shrink does the next step for the members of slots that leave.
func (w *etcdResize) shrink(ctx context.Context, manager etcd.Manager, survey etcd.Survey) error {
	a := w.agent
	possible := w.possibleSlots()
	if len(a.doc.Slots) >= len(possible) {
		return nil
	}

	f := w.gather(ctx, survey)
	step := etcd.DecideResize(f)
	absent := slices.DeleteFunc(f.Absent(possible), func(slot string) bool { return w.noted[slot] })
	if step.Type == etcd.ResizeNothing && (len(absent) == 0 || a.Now().Before(w.noteAfter)) {
		return nil
	}

	if err := w.checkCurrent(ctx); err != nil {
		w.noteAfter = a.Now().Add(revisionInterval)
		return err
	}

	if err := w.noteAbsent(ctx, absent); err != nil {
		return err
	}

	return w.carryOut(ctx, manager, survey, step)
}

// checkRemoved returns errSlotReturned if the own member, which does not answer, was removed although its slot is in the control
// plane: it was removed while the slot was not.
func (w *etcdResize) checkRemoved(ctx context.Context, manager etcd.Manager) error {
	slot := w.member.slot.Name
	if !etcd.WasRemoved(manager.Members(ctx, slot), slot) {
		return nil
	}

	if err := currentOf(w.agent).checkOwnSlot(ctx); err != nil {
		return err
	}

	return errSlotReturned
}

// possibleSlots returns the names of the slots that the control plane can have.
func (w *etcdResize) possibleSlots() []string {
	var out []string
	for _, s := range node.PossibleSlots(w.agent.doc.Cluster) {
		out = append(out, s.Name)
	}

	return out
}

// allManager returns a client that knows all possible slots.
func (w *etcdResize) allManager() etcd.Manager {
	manager := w.manager()
	manager.Peers = slices.Clone(manager.Peers)
	for i := range manager.Peers {
		if manager.Peers[i].Slot == w.member.slot.Name {
			manager.Peers[i].ClientURL = w.url
		}
	}

	for _, s := range node.PossibleSlots(w.agent.doc.Cluster) {
		if !slices.ContainsFunc(manager.Peers, func(p etcd.Peer) bool { return p.Slot == s.Name }) {
			manager.Peers = append(manager.Peers, newPeerOf(s))
		}
	}

	return manager
}

// newPeerOf returns how etcd's member of a slot is reached.
func newPeerOf(s node.Slot) etcd.Peer {
	return etcd.Peer{Slot: s.Name, PeerURL: s.PeerURL, ClientURL: "https://" + s.Host + ":2379"}
}

// gather returns the facts for a decision. Whether API servers serve is asked of the slots that leave only.
func (w *etcdResize) gather(ctx context.Context, survey etcd.Survey) etcd.ResizeFacts {
	f := etcd.ResizeFacts{Slot: w.member.slot.Name, Slots: slotNames(w.agent), Members: survey.Members}
	now := w.agent.Now()
	since := map[string]time.Time{}
	for _, m := range survey.Members {
		if m.Slot == "" || slices.Contains(f.Slots, m.Slot) {
			continue
		}

		since[m.Slot] = now
		if earlier, known := w.leavingSince[m.Slot]; known {
			since[m.Slot] = earlier
		}

		if now.Sub(since[m.Slot]) < servePatience && w.serves(ctx, m.Slot) {
			f.Serving = append(f.Serving, m.Slot)
		}
	}

	w.leavingSince = since

	return f
}

// carryOut carries out one step, and tells the operator what a removal waits for.
func (w *etcdResize) carryOut(ctx context.Context, manager etcd.Manager, survey etcd.Survey, step etcd.Resize) error {
	switch step.Type {
	case etcd.ResizeWait:
		return w.tell(ctx, step.Reason)
	case etcd.ResizeRemove:
	case etcd.ResizeNothing:
		return nil
	}

	if err := w.checkChanges(ctx); err != nil {
		return w.tell(ctx, err.Error())
	}

	for _, m := range survey.Members {
		if m.ID == step.MemberID {
			delete(w.noted, m.Slot)
		}
	}

	if err := w.remove(ctx, manager, step); err != nil {
		return err
	}

	return w.tell(ctx, "removed a member: "+step.Reason)
}

// remove removes a member through the own one: the one that leaves may not answer after it has agreed.
func (w *etcdResize) remove(ctx context.Context, manager etcd.Manager, step etcd.Resize) error {
	manager.Peers = slices.DeleteFunc(slices.Clone(manager.Peers), func(p etcd.Peer) bool {
		return p.Slot != w.member.slot.Name
	})
	if err := manager.RemoveMember(ctx, "", step.MemberID); err != nil {
		return err
	}

	w.agent.Log.Info("removed a member of etcd", slog.String("reason", step.Reason))

	return nil
}

// resizeRecord is what the removal of members waits for, or what was done last.
type resizeRecord struct {
	// Reason for people.
	Reason string `json:"reason"`
	// At is when it began to wait for this.
	At time.Time `json:"at"`
}

// tell records what the removal of members waits for, so that the command that began it can print it.
func (w *etcdResize) tell(ctx context.Context, reason string) error {
	if reason == w.told {
		return nil
	}

	w.agent.Log.Info("the control plane becomes smaller", slog.String("state", reason))
	body, err := json.Marshal(resizeRecord{Reason: reason, At: w.agent.Now().UTC()})
	if err != nil {
		return fmt.Errorf("encode what the removal of etcd members waits for: %w", err)
	}

	if _, err := w.member.store.Put(ctx, node.EtcdResizeKey(w.agent.doc.Cluster), body); err != nil {
		return err
	}

	w.told = reason

	return nil
}

// noteAbsent records slots that are not in the control plane and have no member. Their machines may end then.
func (w *etcdResize) noteAbsent(ctx context.Context, slots []string) error {
	if len(slots) == 0 {
		return nil
	}

	existing, err := w.agent.ec2Client().ListExistingVolumes(ctx, nil)
	if err != nil {
		return err
	}

	for _, slot := range slots {
		volumes := volumesOfSlot(etcd.SlotState{Slot: slot}, existing)
		record, err := w.member.readAbsent(ctx, slot)
		if err == nil && (record.Volumes == nil || !record.Covers(volumes)) {
			err = w.member.writeAbsent(ctx, slot, true, volumes...)
		}

		if err != nil {
			return err
		}

		w.noted[slot] = true
	}

	return nil
}

// servesAPI reports whether the API server of a slot accepts connections from this machine.
func servesAPI(ctx context.Context, a *Agent, slot string) bool {
	ctx, cancel := context.WithTimeout(ctx, serveProbeTimeout)
	defer cancel()
	c, err := new(net.Dialer).DialContext(ctx, "tcp", net.JoinHostPort(slotNamed(a, slot).Host, kube.APIPort))
	if err != nil {
		return false
	}

	_ = c.Close()

	return true
}
