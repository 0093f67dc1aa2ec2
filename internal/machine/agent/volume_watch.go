// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/slipway-k8s/slipway/internal/lib/diag"
	"github.com/slipway-k8s/slipway/internal/machine/etcd"
	"github.com/slipway-k8s/slipway/internal/machine/report"
)

// Times of the watch of the etcd volume. Two looks take less than 10 seconds.
const (
	volumeInterval = 3 * time.Second
	probePatience  = 2 * time.Second
	yieldTimeout   = 3 * time.Second
	// yieldPause passes before a member whose volume does not work gives up the leadership again: when the volumes of all
	// members are full, each successor gives it up as well.
	yieldPause = 10 * time.Minute
)

// volumeWatch watches the volume of the etcd member. A member on a volume that does not work reports it, gives
// up the leadership, and is stopped if the volume takes no writes any more. It runs again when the volume works
// again.
type volumeWatch struct {
	member *etcdMember
	// look returns the current facts.
	look func() volumeFacts
	// yield moves the leadership away.
	yield func(context.Context) (bool, error)
	// makeRoom deletes data that was set aside, if a full volume has enough of it. It returns an error otherwise.
	makeRoom func() error
	// remount mounts a volume that was attached again. It returns a notReadyError if there is none.
	remount func(context.Context) error
	// start starts etcd, if it may run with what the volume holds. It returns a notReadyError if another decision must follow.
	start func(context.Context) error

	// broken counts the looks in a row at which the volume was broken.
	broken int
	// yielded is when the leadership was moved away. It is zero while the volume works.
	yielded time.Time
	// lastCause is the last reported cause.
	lastCause string
	// yieldError is the last logged error of moving the leadership.
	yieldError string
}

func (m *etcdMember) newVolumeWatch() *volumeWatch {
	a := m.agent
	probe := &volumeProbe{write: func() error { return writeProbeFile(a.Root) }, now: a.Now}

	return &volumeWatch{
		member: m,
		look:   func() volumeFacts { return m.lookAtVolume(probe) },
		yield: func(ctx context.Context) (bool, error) {
			return a.newEtcdManager().YieldLeadership(ctx, m.slot.Name, etcd.ClientURL)
		},
		makeRoom: func() error {
			if !a.etcdData.TryLock() { // a task may be setting data aside
				return errors.New("the data directory is in use")
			}

			defer a.etcdData.Unlock()

			return m.volumeRoom().make(func(free int64) error {
				if free < roomOfFullVolume {
					return errors.New("the volume is full")
				}

				return nil
			})
		},
		remount: m.remountVolume,
		start:   func(ctx context.Context) error { return startOnVolume(ctx, m) },
	}
}

// lookAtVolume collects the facts about the volume.
func (m *etcdMember) lookAtVolume(probe *volumeProbe) volumeFacts {
	f := volumeFacts{id: m.volume}
	f.mount, f.probeErr = readVolumeMount(m.agent.Root)
	if f.probeErr != nil || !f.mount.mounted {
		return f
	}

	f.hanging, f.probeErr = probe.try(probePatience)
	if f.hanging > 0 {
		f.availableBytes = leastVolumeBytes // a volume that hangs is not asked for its space
		return f
	}

	var err error
	if f.availableBytes, err = availableBytes(m.agent.Root); err != nil && f.probeErr == nil {
		f.probeErr = err
	}

	return f
}

// lookWithRoom is look, after a full volume got some space back if it has data to spare.
func (w *volumeWatch) lookWithRoom() volumeFacts {
	f := w.look()
	if f.isBroken() || !f.isFull() || w.makeRoom() != nil {
		return f
	}

	return w.look()
}

// watchOnce takes one look and acts on it.
func (w *volumeWatch) watchOnce(ctx context.Context) error {
	a := w.member.agent
	f := w.lookWithRoom()
	if f.isBroken() {
		w.broken++
	} else {
		w.broken = 0
	}

	v := judgeVolume(f, w.broken)
	a.conditions.Set(v.condition, a.Now())
	w.reportChange(v.condition)

	if v.condition.State == report.OK {
		if f.hanging > 0 {
			return nil // it is not known yet
		}

		w.yielded = time.Time{}

		return w.startAgain(ctx)
	}

	var errs []error
	if v.yield && !a.etcdStopped.Load() && a.Now().Sub(w.yielded) >= yieldPause {
		w.giveUpLeadership(ctx)
	}

	if v.stop {
		errs = append(errs, w.stopMember(ctx))
	}

	if f.isBroken() && a.etcdStopped.Load() {
		errs = append(errs, w.remount(ctx))
	}

	return errors.Join(errs...)
}

// reportChange writes a new cause to the journal and the console.
func (w *volumeWatch) reportChange(c report.Condition) {
	if c.Cause == w.lastCause {
		return
	}

	a := w.member.agent
	w.lastCause = c.Cause
	if c.State == report.OK {
		a.Log.Info("the etcd volume works again")
		a.Report.Done("etcd-volume")

		return
	}

	a.Log.Error("the etcd volume does not work", slog.String("cause", c.Cause))
	a.Report.Failed("etcd-volume", diag.WithHint(errors.New(c.Cause), c.Next))
}

// giveUpLeadership moves the leadership to another member, if this member has it. A failure is not fatal: if
// the member stops, the others elect a leader.
func (w *volumeWatch) giveUpLeadership(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, yieldTimeout)
	defer cancel()
	moved, err := w.yield(ctx)
	log := w.member.agent.Log

	switch {
	case err != nil && err.Error() != w.yieldError:
		w.yieldError = err.Error()
		log.Warn("cannot move etcd's leadership away from this machine", slog.Any("error", err))
	case moved:
		w.yielded = w.member.agent.Now()
		log.Warn("moved etcd's leadership to another machine, because the volume of this one does not work")
	}
}

// stopMember stops etcd, which would otherwise fail and restart without end.
func (w *volumeWatch) stopMember(ctx context.Context) error {
	a := w.member.agent
	if a.etcdStopped.Swap(true) {
		return nil
	}

	a.Log.Warn("stopping etcd, because its volume does not take writes")
	if _, err := a.Run.Run(ctx, "systemctl", "stop", "--no-block", "etcd"); err != nil {
		return fmt.Errorf("stop etcd: %w", err)
	}

	return nil
}

// startAgain starts etcd if stopMember has stopped it.
func (w *volumeWatch) startAgain(ctx context.Context) error {
	a := w.member.agent
	if !a.etcdStopped.Load() {
		return nil
	}

	if err := w.start(ctx); err != nil {
		return err
	}

	a.etcdStopped.Store(false)

	return nil
}

// startOnVolume starts etcd on a volume that works again. The volume may not hold what the member had: somebody may have attached another
// one in its place, such as a copy of a snapshot, and etcd may have been restored from a backup meanwhile. So the agent decides as at the
// start of the machine. What takes longer than one decision is left to [etcdMember.keepGeneration].
func startOnVolume(ctx context.Context, m *etcdMember) error {
	a := m.agent
	a.etcdData.Lock()
	defer a.etcdData.Unlock()
	if !m.hasData() {
		a.etcdFenced.Store(true)
	}

	if a.etcdFenced.Load() {
		return nil
	}

	if err := m.decideAndAct(ctx); err != nil {
		return err
	}

	a.Log.Info("started etcd: its volume works again")

	return nil
}

// remountVolume mounts the slot's volume again after it was detached and attached to this machine. It does not
// attach it: somebody detached it. While the failed device is still mounted and no other has taken its place,
// or while etcd runs, it returns a notReadyError.
func (m *etcdMember) remountVolume(ctx context.Context) error {
	a := m.agent
	if state := a.unitStates(ctx, []string{"etcd"})[0]; state != "inactive" && state != "failed" {
		return newNotReadyError("etcd is still %s", state)
	}

	known, err := m.readJoinedRecord(ctx)
	if err != nil {
		return err
	}

	mounter := m.newMounter(known)
	volume, err := mounter.findVolume(ctx)
	if err != nil {
		return err
	}

	if volume.AttachedTo != a.instance.ID {
		return newNotReadyError("volume %s is not attached to this machine", volume.ID)
	}

	device, err := mounter.findDevice(volume.ID)
	if err != nil {
		return err
	}

	mount, err := readVolumeMount(a.Root)
	if err != nil {
		return err
	}

	if mount.mounted {
		if number, err := deviceNumber(a.Root, device); err != nil || number == mount.device {
			return newNotReadyError("volume %s is still mounted from the device that failed", volume.ID)
		}

		if _, err := a.Run.Run(ctx, "umount", "--lazy", etcd.DataMount); err != nil {
			return fmt.Errorf("unmount the device of volume %s that failed: %w", volume.ID, err)
		}
	}

	a.Log.Info("mounting the etcd volume again", slog.String("volume", volume.ID))

	return m.mountVolume(ctx)
}

// deviceNumber returns major:minor of a block device.
func deviceNumber(root *HostFS, device string) (string, error) {
	info, err := os.Stat(root.Path(device))
	if err != nil {
		return "", fmt.Errorf("read the number of %s: %w", device, err)
	}

	s, ok := info.Sys().(*syscall.Stat_t)
	if !ok {
		return "", fmt.Errorf("read the number of %s: the file system does not tell it", device)
	}

	return fmt.Sprintf("%d:%d", unix.Major(s.Rdev), unix.Minor(s.Rdev)), nil
}

// requireWrites returns a notReadyError if the mounted volume does not take writes: it may have been detached by force, and its directory
// looks empty. Another machine of the slot may run the member with it, which must not be removed because its data seems to be lost.
func requireWrites(m *etcdMember) error {
	mount, err := readVolumeMount(m.agent.Root)
	if err != nil || !mount.mounted {
		return err
	}

	if err := writeProbeFile(m.agent.Root); err != nil && !isFullError(err) {
		return newNotReadyError("volume %s is mounted but does not take writes: %s; %s", m.volume,
			strings.TrimSpace(err.Error()), replaceVolumeHint(m.volume))
	}

	return nil
}

// checkVolumeWritable returns a notReadyError if the mounted volume does not take writes. The member must not
// be judged by what such a volume holds: its data cannot be read and is not lost.
func (m *etcdMember) checkVolumeWritable(ctx context.Context) error {
	broken := requireWrites(m)
	if !errors.As(broken, new(notReadyError)) {
		return broken
	}

	if _, err := m.agent.Run.Run(ctx, "systemctl", "stop", "--no-block", "etcd"); err != nil {
		return fmt.Errorf("stop etcd, whose volume does not take writes: %w", err)
	}

	if err := m.remountVolume(ctx); err == nil {
		return nil
	}

	return broken
}
