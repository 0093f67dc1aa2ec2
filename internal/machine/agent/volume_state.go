// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/slipway-k8s/slipway/internal/machine/etcd"
	"github.com/slipway-k8s/slipway/internal/machine/report"
)

// Limits of the etcd volume.
const (
	// leastVolumeBytes is how much space etcd needs to continue: it preallocates a file of 64 MB for its
	// write-ahead log, and stops if it cannot.
	leastVolumeBytes = 64 << 20
	// roomOfFullVolume is how much space a full volume gets back, if data that was set aside can be deleted for it.
	roomOfFullVolume = 4 * leastVolumeBytes
	// hangingProbe is how long a write may take before the volume counts as hanging. NVMe drivers on EC2
	// wait for a volume almost without limit instead of returning an error.
	hangingProbe = 7 * time.Second
	// brokenLooks is the number of looks in a row at which the volume has to be broken before its member
	// is stopped.
	brokenLooks = 2
)

// volumeMount is the mount of the etcd volume as the kernel reports it.
type volumeMount struct {
	// mounted is set if a file system is mounted at etcd.DataMount.
	mounted bool
	// readOnly is set if it cannot be written, also after an error.
	readOnly bool
	// device is the number of its block device, major:minor.
	device string
	// source is the path of its block device, such as /dev/nvme1n1.
	source string
}

// readVolumeMount reads the mount of the etcd volume.
func readVolumeMount(root *HostFS) (volumeMount, error) {
	body, err := root.Read("/proc/self/mountinfo")
	if err != nil {
		return volumeMount{}, err
	}

	return parseVolumeMount(string(body)), nil
}

// requireVolume returns an error unless the etcd volume is mounted. Without it the directory of the data is empty, and the data
// is on the volume: it must not be taken for lost.
func (m *etcdMember) requireVolume() error {
	mount, err := readVolumeMount(m.agent.Root)
	if err != nil {
		return err
	}

	if !mount.mounted {
		return newNotReadyError("the etcd volume %s is not mounted at %s: whether it has data is not known", m.volume, etcd.DataMount)
	}

	return nil
}

// parseVolumeMount finds the mount in /proc/self/mountinfo. If there are several, the last one is on top.
func parseVolumeMount(mountinfo string) volumeMount {
	var out volumeMount
	for line := range strings.Lines(mountinfo) {
		own, super, _ := strings.Cut(line, " - ")
		fields := strings.Fields(own)
		if len(fields) < 6 || fields[4] != etcd.DataMount {
			continue
		}

		out = volumeMount{mounted: true, device: fields[2]}
		options := strings.Split(fields[5], ",")
		if s := strings.Fields(super); len(s) > 2 {
			out.source = s[1]
			options = append(options, strings.Split(s[2], ",")...)
		}

		// ext4 sets emergency_ro after an error, and leaves the option rw.
		out.readOnly = slices.Contains(options, "ro") || slices.Contains(options, "emergency_ro")
	}

	return out
}

// volumeFacts is what one look at the etcd volume found.
type volumeFacts struct {
	// id of the volume; empty if it is not known.
	id string
	// mount of the volume.
	mount volumeMount
	// probeErr is the error of a write to the volume; nil if it succeeded or has not ended.
	probeErr error
	// hanging is how long a write has not ended.
	hanging time.Duration
	// availableBytes is the space that is left for etcd.
	availableBytes int64
}

// isBroken reports whether the volume takes no writes any more, whatever is deleted on it.
func (f volumeFacts) isBroken() bool {
	return !f.mount.mounted || f.mount.readOnly || f.probeErr != nil && !isFullError(f.probeErr)
}

func (f volumeFacts) isFull() bool {
	return isFullError(f.probeErr) || f.availableBytes < leastVolumeBytes
}

func isFullError(err error) bool {
	return errors.Is(err, syscall.ENOSPC) || errors.Is(err, syscall.EDQUOT)
}

// volumeVerdict is what follows from a look at the etcd volume.
type volumeVerdict struct {
	// condition to be reported.
	condition report.Condition
	// yield means that the member must not be the leader.
	yield bool
	// stop means that the member must not run.
	stop bool
}

// judgeVolume decides what to do about the etcd volume. The argument broken is the number of looks in a row,
// including this one, at which the volume was broken.
func judgeVolume(f volumeFacts, broken int) volumeVerdict {
	v := volumeVerdict{condition: report.Condition{Component: report.EtcdVolume, State: report.Failed}}
	name := "the etcd volume"
	if f.id != "" {
		name += " " + f.id
	}

	switch {
	case !f.mount.mounted:
		v.condition.Cause = name + " is not mounted at " + etcd.DataMount + ": it was detached or unmounted"
		v.condition.Next = replaceVolumeHint(f.id)
	case f.mount.readOnly && f.probeErr == nil, errors.Is(f.probeErr, syscall.EROFS):
		v.condition.Cause = name + " is read-only: Linux does this after an error of the device, as when the volume was detached"
		v.condition.Next = replaceVolumeHint(f.id)
	case f.isBroken():
		v.condition.Cause = fmt.Sprintf("%s does not take writes: %v", name, f.probeErr)
		v.condition.Next = replaceVolumeHint(f.id)
	case f.hanging >= hangingProbe:
		v.condition.Cause = fmt.Sprintf("%s does not finish a write (more than %s)", name, hangingProbe)
		v.condition.Next = "check the volume's status: aws ec2 describe-volume-status --volume-ids " + f.id
	case f.isFull():
		v.condition.Cause = fmt.Sprintf("%s is full: %d MiB are left, and etcd needs %d MiB for its write-ahead log",
			name, f.availableBytes>>20, leastVolumeBytes>>20)
		v.condition.Next = "set a larger volume in the manifest and run slipway apply, or delete files of others in " +
			etcd.DataMount
	default:
		return volumeVerdict{condition: report.Condition{Component: report.EtcdVolume, State: report.OK}}
	}

	v.yield = true
	v.stop = f.isBroken() && broken >= brokenLooks

	return v
}

// replaceVolumeHint says how a member gets a volume again.
func replaceVolumeHint(volume string) string {
	if volume == "" {
		volume = "its volume"
	}

	return "terminate the machine: its replacement attaches " + volume +
		"; or attach it to this machine again: the agent mounts it and starts etcd"
}

// volumeProbe writes to the etcd volume. At most one write runs at a time, because one that hangs cannot be
// interrupted.
type volumeProbe struct {
	// write writes and syncs a few bytes.
	write func() error
	// now is the clock.
	now func() time.Time

	mu      sync.Mutex
	started time.Time // of the running write; zero if none runs
	done    chan error
}

// try starts a write unless one runs, waits at most patience for it, and returns its error. If the write has
// not ended, it returns for how long it runs.
func (p *volumeProbe) try(patience time.Duration) (hanging time.Duration, err error) {
	p.mu.Lock()
	if p.started.IsZero() {
		p.started = p.now()
		p.done = make(chan error, 1)
		done := p.done
		go func() { done <- p.write() }()
	}

	done := p.done
	started := p.started
	p.mu.Unlock()

	timer := time.NewTimer(patience)
	defer timer.Stop()

	select {
	case err := <-done:
		p.mu.Lock()
		p.started = time.Time{}
		p.mu.Unlock()
		return 0, err
	case <-timer.C:
		return max(p.now().Sub(started), patience), nil
	}
}

// writeProbeFile writes a block to a file on the etcd volume and waits until the device has it.
func writeProbeFile(root *HostFS) error {
	f, err := os.OpenFile(root.Path(etcd.DataMount+"/.slipway-probe"), os.O_CREATE|os.O_WRONLY|os.O_TRUNC, 0o600)
	if err != nil {
		return fmt.Errorf("write to the etcd volume: %w", err)
	}

	_, err = f.Write(make([]byte, 4096))
	if err == nil {
		err = f.Sync()
	}

	if err := errors.Join(err, f.Close()); err != nil {
		return fmt.Errorf("write to the etcd volume: %w", err)
	}

	return nil
}

// availableBytes returns the space that a program without privileges, such as etcd, may use on the volume.
func availableBytes(root *HostFS) (int64, error) {
	var s syscall.Statfs_t
	if err := syscall.Statfs(root.Path(etcd.DataMount), &s); err != nil {
		return 0, fmt.Errorf("read the free space of the etcd volume: %w", err)
	}

	return int64(s.Bavail) * s.Bsize, nil
}
