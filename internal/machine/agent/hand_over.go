// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"time"

	"github.com/slipway-k8s/slipway/internal/machine/etcd"
	"github.com/slipway-k8s/slipway/internal/machine/follow"
	"github.com/slipway-k8s/slipway/internal/machine/kube"
	"github.com/slipway-k8s/slipway/internal/machine/node"
	"github.com/slipway-k8s/slipway/internal/machine/report"
)

// A rolling update has a control-plane machine hand over its slot to a machine that has prepared everything but the
// volume: docs/design/0012-hand-over.md.

const (
	// handOverInterval is the time between two looks at the own Node.
	handOverInterval = 2 * time.Second
	// handOverRetry is the time after a failed hand-over until the next one is tried.
	handOverRetry = time.Minute
	// apiStopPatience is how long the API server may take to end its requests.
	apiStopPatience = 30 * time.Second
	// reservation is how long a released volume is left to the successor. If it does not take it, this machine does.
	reservation = time.Minute
	// unmountTries is how often the volume is unmounted again, half a second apart, while something still uses it.
	unmountTries = 10
)

// handOverError ends the periodic tasks: the slot is to be handed over.
type handOverError struct{ successor string }

func (e handOverError) Error() string { return "hand over the slot to machine " + e.successor }

// handOver is what the agent remembers of hand-overs.
type handOver struct {
	// successor is the machine for which the volume was released, until reservedUntil.
	successor     string
	reservedUntil time.Time
	// failedAt is when a hand-over failed last.
	failedAt time.Time
	// took is the hand-over by which this machine got its slot; nil if there was none.
	took *report.HandOver
}

// handOverWatch waits until the Node of this machine asks for a hand-over.
type handOverWatch struct {
	agent  *Agent
	member *etcdMember
	// api is a client of the machine's own API server.
	api kube.Client
}

// run returns a handOverError as soon as a hand-over is asked for that can succeed.
func (w handOverWatch) run(ctx context.Context) error {
	a := w.agent
	last := ""
	for {
		successor, err := w.findSuccessor(ctx)
		if err == nil && successor != "" {
			return handOverError{successor}
		}

		if err != nil && err.Error() != last && ctx.Err() == nil {
			last = err.Error()
			a.Log.Info("the slot is not handed over now", slog.Any("error", err))
		}

		if err := a.Wait(ctx, handOverInterval); err != nil {
			return err
		}
	}
}

// findSuccessor returns the machine to which the slot is to be handed over; empty if none is asked for.
func (w handOverWatch) findSuccessor(ctx context.Context) (string, error) {
	a := w.agent
	ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	var n Node
	if err := w.api.Get(ctx, "/api/v1/nodes/"+a.instance.Name, &n); err != nil {
		return "", err
	}

	successor, _, _ := strings.Cut(n.Metadata.Annotations[report.HandOverAnnotation], " ")
	if successor == "" || a.Now().Sub(a.handOver.failedAt) < handOverRetry {
		return "", nil
	}

	machine, found, err := a.ec2Client().FindMachine(ctx, successor)
	if err != nil {
		return "", err
	}

	if !found || !isSuccessor(machine, a.Boot.Slot, a.instance.ID) {
		return "", fmt.Errorf("machine %s is no running control-plane machine of slot %s", successor, a.Boot.Slot)
	}

	return successor, w.member.checkOthers(ctx)
}

// isSuccessor reports whether a machine may take over a slot from the machine self.
func isSuccessor(m Machine, slot, self string) bool {
	return m.ID != self && m.Role == node.RoleTagControlPlane && m.Slot == slot && m.State == "running"
}

// checkOthers returns an error unless every member of every slot votes and is healthy, so that the cluster has a quorum
// without this one, and no machine of the control plane is being changed.
func (m *etcdMember) checkOthers(ctx context.Context) error {
	a := m.agent
	lock, _, err := newUpdateLock(a).read(ctx)
	if err != nil {
		return err
	}

	if err := checkNobodyChanges(lock, a.Now()); err != nil {
		return err
	}

	members := a.newEtcdManager().Members(ctx, m.slot.Name)
	unhealthy := slices.ContainsFunc(members, func(e etcd.Member) bool { return !e.Healthy || e.Learner })
	if unhealthy || len(members) < len(a.doc.Slots) || len(members) < 2 {
		return fmt.Errorf(
			"not every etcd member is healthy: %d of %d are known",
			len(members),
			len(a.doc.Slots),
		)
	}

	return nil
}

// checkNobodyChanges returns which machine restarts components now, by the control plane's update lock. A rolling update
// has the lock while it asks for the hand-over.
func checkNobodyChanges(lock follow.Lock, now time.Time) error {
	if !lock.IsHeldByOther(follow.RollingUpdate, now) {
		return nil
	}

	return fmt.Errorf("machine %s is being changed", lock.Holder)
}

// releaseSlot stops the control plane of this machine and releases the volume of its slot. The periodic tasks have
// ended. After an error, the machine converges again and serves as before.
func releaseSlot(ctx context.Context, a *Agent, successor string) {
	err := a.runStage("hand-over", func() error {
		m, err := a.newEtcdMember()
		if err != nil {
			return err
		}

		yield := func(ctx context.Context) (bool, error) {
			return a.newEtcdManager().YieldLeadership(ctx, m.slot.Name, etcd.ClientURL)
		}

		return slotRelease{member: m, successor: successor, yield: yield}.run(ctx)
	})
	if err != nil {
		a.handOver.failedAt = a.Now()
		a.Log.Error("the slot was not handed over; this machine keeps it", slog.Any("error", err))
	}
}

// slotRelease releases the slot of this machine for another one.
type slotRelease struct {
	member    *etcdMember
	successor string
	// yield moves etcd's leadership away.
	yield func(context.Context) (bool, error)
}

// run stops what uses the volume and detaches it. Nothing is stopped unless the machine may detach it.
func (r slotRelease) run(ctx context.Context) error {
	m := r.member
	a := m.agent
	volume, err := m.findOwnVolume(ctx)
	if err != nil {
		return err
	}

	if err := a.ec2Client().CheckDetachVolume(ctx, volume, a.instance.ID); err != nil {
		return err
	}

	if _, err := r.yield(ctx); err != nil {
		return err
	}

	if err := r.stopControlPlane(ctx); err != nil {
		return err
	}

	took := report.HandOver{From: a.instance.ID, To: r.successor, StoppedAt: a.Now().UTC()}
	if err := m.writeJoinedRecord(ctx, joinedRecord{Volume: volume, HandOver: &took}); err != nil {
		return err
	}

	if _, err := a.Run.Run(ctx, "systemctl", "stop", "etcd"); err != nil {
		return fmt.Errorf("stop etcd: %w", err)
	}

	if err := r.unmountVolume(ctx); err != nil {
		return err
	}

	a.handOver.successor = r.successor
	a.handOver.reservedUntil = a.Now().Add(reservation)

	if err := a.ec2Client().DetachVolume(ctx, volume, a.instance.ID); err != nil {
		a.handOver.successor = "" // the machine keeps its volume

		return err
	}

	return nil
}

// findOwnVolume returns the id of the slot's volume, which must be attached to this machine.
func (m *etcdMember) findOwnVolume(ctx context.Context) (string, error) {
	known, err := m.readJoinedRecord(ctx)
	if err != nil {
		return "", err
	}

	volume, err := m.newMounter(known).findVolume(ctx)
	if err != nil {
		return "", err
	}

	if volume.AttachedTo != m.agent.instance.ID {
		return "", fmt.Errorf("volume %s of slot %s is not attached to this machine", volume.ID, m.slot.Name)
	}

	return volume.ID, nil
}

// stopControlPlane removes the static pods, and waits until the API server has ended: its clients move to others while
// etcd still serves its last requests.
func (r slotRelease) stopControlPlane(ctx context.Context) error {
	a := r.member.agent
	pods, err := a.staticPodFiles()
	if err != nil {
		return err
	}

	for _, f := range pods {
		if err := a.Root.Remove(f.Path); err != nil {
			return err
		}
	}

	deadline := a.Now().Add(apiStopPatience)
	for findAPIListener(a.Root) != "" && a.Now().Before(deadline) {
		if err := a.Wait(ctx, gateInterval); err != nil {
			return err
		}
	}

	return nil
}

// unmountVolume unmounts the etcd volume, which writes everything to the device.
func (r slotRelease) unmountVolume(ctx context.Context) error {
	a := r.member.agent
	var err error
	for range unmountTries {
		if _, err = a.Run.Run(ctx, "umount", etcd.DataMount); err == nil {
			return nil
		}

		if err := a.Wait(ctx, gateInterval); err != nil {
			return err
		}
	}

	return fmt.Errorf("unmount the etcd volume: %w", err)
}

// reservedFor returns the machine for which the slot's volume was released; empty if the reservation has ended.
func (h handOver) reservedFor(now time.Time) string {
	if now.Before(h.reservedUntil) {
		return h.successor
	}

	return ""
}

// noteTakeOver records how long the member was missing, once it has a quorum again.
func (m *etcdMember) noteTakeOver() {
	a := m.agent
	if m.handOver == nil {
		return
	}

	took := *m.handOver
	m.handOver = nil
	took.MissingSeconds = a.Now().Sub(took.StoppedAt).Seconds()
	a.handOver.took = &took
	a.Log.Info("took over the slot", slog.String("from", took.From), slog.Float64("missing", took.MissingSeconds))
}

// continueAfter decides what follows when the periodic tasks have ended with err: nil if the machine has to converge
// again, because it released its slot or failed to.
func continueAfter(ctx context.Context, a *Agent, err error) error {
	if errors.Is(err, errSlotReturned) {
		return ctx.Err()
	}

	request, isHandOver := errors.AsType[handOverError](err)
	if !isHandOver || ctx.Err() != nil {
		return err
	}

	releaseSlot(ctx, a, request.successor)

	return ctx.Err()
}
