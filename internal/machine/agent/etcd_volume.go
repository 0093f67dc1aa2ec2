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

// requestedDevice is the device name that EC2 is asked for; Nitro machines name it otherwise.
const requestedDevice = "/dev/xvdf"

// notReadyError says that something is not there yet and nothing is wrong.
type notReadyError struct{ reason string }

func (w notReadyError) Error() string { return w.reason }

func newNotReadyError(format string, args ...any) error {
	return notReadyError{fmt.Sprintf(format, args...)}
}

// VolumeMounter brings a slot's volume to its folder.
type VolumeMounter struct {
	Client   EC2Client
	Root     *HostFS
	Run      Runner
	Instance Instance
	Slot     string
	// KnownVolume is the volume whose data the slot has had; empty if it never had any.
	KnownVolume string
}

// Mount finds, attaches and mounts the slot's volume and returns its id. It returns a notReadyError while the volume is
// not there or still at a predecessor. A file system is made only on a volume that never held the slot's data.
func (m VolumeMounter) Mount(ctx context.Context) (string, error) {
	volume, err := m.findVolume(ctx)
	if err != nil {
		return "", err
	}

	done, err := isEtcdVolumeMounted(m.Root)
	if err != nil || done {
		return volume.ID, err
	}

	if err := m.attachVolume(ctx, volume); err != nil {
		return "", err
	}

	device, err := m.findDevice(volume.ID)
	if err != nil {
		return "", err
	}

	if err := m.formatIfEmpty(ctx, device, volume.ID); err != nil {
		return "", err
	}

	if err := m.Root.MakeDir(etcd.DataMount, 0o700, 0); err != nil {
		return "", err
	}

	if _, err := m.Run.Run(ctx, "mount", "-o", "noatime", device, etcd.DataMount); err != nil {
		return "", fmt.Errorf("mount volume %s: %w", volume.ID, err)
	}

	m.Root.recordChange("mount " + etcd.DataMount)

	return volume.ID, nil
}

// findVolume chooses the slot's volume in this zone: the one that has its data, else the oldest.
func (m VolumeMounter) findVolume(ctx context.Context) (Volume, error) {
	all, err := m.Client.ListVolumes(ctx)
	if err != nil {
		return Volume{}, err
	}

	all = slices.DeleteFunc(all, func(v Volume) bool {
		return v.Slot != m.Slot || v.Zone != m.Instance.Zone || v.State == "deleting" ||
			v.State == "deleted" ||
			v.State == "error"
	})
	if len(all) == 0 {
		return Volume{}, newNotReadyError(
			"there is no volume of slot %s in zone %s yet",
			m.Slot,
			m.Instance.Zone,
		)
	}

	if i := slices.IndexFunc(all, func(v Volume) bool { return v.ID == m.KnownVolume }); i >= 0 {
		return all[i], nil
	}

	return all[0], nil
}

func isEtcdVolumeMounted(root *HostFS) (bool, error) {
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

func (m VolumeMounter) attachVolume(ctx context.Context, v Volume) error {
	switch v.AttachedTo {
	case m.Instance.ID:
		return nil
	case "":
		return m.Client.AttachVolume(ctx, v.ID, m.Instance.ID, requestedDevice)
	default:
		return newNotReadyError("volume %s is still attached to %s", v.ID, v.AttachedTo)
	}
}

// findDevice is the volume's name in /dev: udev's on Nitro machines, else the one that was asked for.
func (m VolumeMounter) findDevice(volume string) (string, error) {
	names := []string{
		"/dev/disk/by-id/nvme-Amazon_Elastic_Block_Store_" + strings.ReplaceAll(
			volume,
			"-",
			"",
		), requestedDevice, "/dev/sdf",
	}

	for _, name := range names {
		if _, err := os.Stat(m.Root.Path(name)); err == nil {
			return name, nil
		}
	}

	return "", newNotReadyError("volume %s is attached, its device is not there yet", volume)
}

// formatIfEmpty makes a file system where there is none. blkid ends with 2 if it finds nothing on the device.
func (m VolumeMounter) formatIfEmpty(ctx context.Context, device, volume string) error {
	_, err := m.Run.Run(ctx, "blkid", "--probe", device)
	var exit *exec.ExitError
	switch {
	case err == nil:
		return nil
	case !errors.As(err, &exit) || exit.ExitCode() != 2:
		return fmt.Errorf("look for a file system on volume %s: %w", volume, err)
	case m.KnownVolume == volume:
		return diag.WithHint(
			fmt.Errorf("volume %s has had the data of slot %s and holds no file system now", volume, m.Slot),
			"it is left as it is; restore a snapshot of it",
		)
	}

	if _, err := m.Run.Run(ctx, "mkfs.ext4", "-q", "-L", "slipway-etcd", device); err != nil {
		return fmt.Errorf("make a file system on volume %s: %w", volume, err)
	}

	m.Root.recordChange("mkfs " + device)

	return nil
}
