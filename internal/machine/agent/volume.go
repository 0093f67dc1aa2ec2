// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"slices"
	"strings"

	"github.com/slipway-k8s/slipway/internal/lib/diag"
	"github.com/slipway-k8s/slipway/internal/machine/etcd"
)

// Runner runs a program and returns what it printed.
type Runner interface {
	Run(ctx context.Context, name string, args ...string) (string, error)
}

// attachAs is the device name that EC2 is asked for; Nitro machines name it otherwise.
const attachAs = "/dev/xvdf"

// waitError says that something is not there yet and nothing is wrong.
type waitError struct{ reason string }

func (w waitError) Error() string { return w.reason }

func waitFor(format string, args ...any) error { return waitError{fmt.Sprintf(format, args...)} }

// Mounter brings a slot's volume to its folder.
type Mounter struct {
	Cloud Cloud
	Root  *Root
	Run   Runner
	Me    Instance
	Slot  string
	// KnownVolume is the volume whose data the slot has had; empty if it never had any.
	KnownVolume string
}

// Mount finds, attaches and mounts the slot's volume and returns its id. It returns a waitError while the volume is
// not there or still at a predecessor. A file system is made only on a volume that never held the slot's data.
func (m Mounter) Mount(ctx context.Context) (string, error) {
	volume, err := m.find(ctx)
	if err != nil {
		return "", err
	}
	done, err := mounted(m.Root)
	if err != nil || done {
		return volume.ID, err
	}
	if err := m.attach(ctx, volume); err != nil {
		return "", err
	}
	device, err := m.device(volume.ID)
	if err != nil {
		return "", err
	}
	if err := m.format(ctx, device, volume.ID); err != nil {
		return "", err
	}
	if err := m.Root.MakeDir(etcd.DataMount, 0o700, 0); err != nil {
		return "", err
	}
	if _, err := m.Run.Run(ctx, "mount", "-o", "noatime", device, etcd.DataMount); err != nil {
		return "", fmt.Errorf("mount volume %s: %w", volume.ID, err)
	}
	m.Root.note("mount " + etcd.DataMount)
	return volume.ID, nil
}

// find chooses the slot's volume in this zone: the one that has its data, else the oldest.
func (m Mounter) find(ctx context.Context) (Volume, error) {
	all, err := m.Cloud.Volumes(ctx)
	if err != nil {
		return Volume{}, err
	}
	all = slices.DeleteFunc(all, func(v Volume) bool {
		return v.Slot != m.Slot || v.Zone != m.Me.Zone || v.State == "deleting" || v.State == "deleted" || v.State == "error"
	})
	if len(all) == 0 {
		return Volume{}, waitFor("there is no volume of slot %s in zone %s yet", m.Slot, m.Me.Zone)
	}
	if i := slices.IndexFunc(all, func(v Volume) bool { return v.ID == m.KnownVolume }); i >= 0 {
		return all[i], nil
	}
	return all[0], nil
}

func mounted(root *Root) (bool, error) {
	body, err := os.ReadFile(root.Path("/proc/self/mountinfo"))
	if err != nil {
		return false, fmt.Errorf("read mounts: %w", err)
	}
	for entry := range strings.Lines(string(body)) {
		if fields := strings.Fields(entry); len(fields) > 4 && fields[4] == etcd.DataMount {
			return true, nil
		}
	}
	return false, nil
}

func (m Mounter) attach(ctx context.Context, v Volume) error {
	switch v.Attached {
	case m.Me.ID:
		return nil
	case "":
		return m.Cloud.Attach(ctx, v.ID, m.Me.ID, attachAs)
	default:
		return waitFor("volume %s is still attached to %s", v.ID, v.Attached)
	}
}

// device is the volume's name in /dev: udev's on Nitro machines, else the one that was asked for.
func (m Mounter) device(volume string) (string, error) {
	names := []string{
		"/dev/disk/by-id/nvme-Amazon_Elastic_Block_Store_" + strings.ReplaceAll(volume, "-", ""), attachAs, "/dev/sdf",
	}
	for _, name := range names {
		if _, err := os.Stat(m.Root.Path(name)); err == nil {
			return name, nil
		}
	}
	return "", waitFor("volume %s is attached, its device is not there yet", volume)
}

// format makes a file system where there is none. blkid ends with 2 if it finds nothing on the device.
func (m Mounter) format(ctx context.Context, device, volume string) error {
	_, err := m.Run.Run(ctx, "blkid", "--probe", device)
	var exit *exec.ExitError
	switch {
	case err == nil:
		return nil
	case !errors.As(err, &exit) || exit.ExitCode() != 2:
		return fmt.Errorf("look for a file system on volume %s: %w", volume, err)
	case m.KnownVolume == volume:
		return diag.WithHint(fmt.Errorf("volume %s has had the data of slot %s and holds no file system now", volume, m.Slot),
			"it is left as it is; restore a snapshot of it")
	}
	if _, err := m.Run.Run(ctx, "mkfs.ext4", "-q", "-L", "slipway-etcd", device); err != nil {
		return fmt.Errorf("make a file system on volume %s: %w", volume, err)
	}
	m.Root.note("mkfs " + device)
	return nil
}
