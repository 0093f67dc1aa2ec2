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

	"github.com/aws/aws-sdk-go-v2/service/ec2/types"

	"github.com/slipway-k8s/slipway/internal/lib/diag"
	"github.com/slipway-k8s/slipway/internal/machine/etcd"
)

// Runner runs a program and returns its output.
type Runner interface {
	Run(ctx context.Context, name string, args ...string) (string, error)
}

// requestedDevice is the device name in the request to EC2. Nitro instances use other names, see
// findDevice.
const requestedDevice = "/dev/xvdf"

// notReadyError means that the agent must wait for something. It is not a failure.
type notReadyError struct{ reason string }

func (e notReadyError) Error() string { return e.reason }

func newNotReadyError(format string, args ...any) error {
	return notReadyError{fmt.Sprintf(format, args...)}
}

// VolumeMounter mounts a slot's EBS volume at etcd.DataMount.
type VolumeMounter struct {
	// Client for the cluster's volumes.
	Client EC2Client
	// Root is the machine's file system.
	Root *HostFS
	// Run executes blkid, mkfs, and mount.
	Run Runner
	// Instance is this machine.
	Instance Instance
	// Slot whose volume is mounted.
	Slot string
	// KnownVolume is the id of the volume that has had the slot's data; empty if there is none.
	KnownVolume string
	// ReservedFor is the machine for which this one has released the volume; empty if this one may take it.
	ReservedFor string
}

// Mount finds, attaches, and mounts the slot's volume and returns its id. It returns a
// notReadyError while the volume does not exist or is attached to another instance. It creates a
// file system only on an empty volume that has never had the slot's data.
func (m VolumeMounter) Mount(ctx context.Context) (string, error) {
	all, err := m.listVolumes(ctx)
	if err != nil {
		return "", err
	}

	mount, err := readVolumeMount(m.Root)
	if err != nil {
		return "", err
	}

	volume := m.chooseVolume(all)
	if mount.mounted {
		return m.identifyMounted(all, volume)
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

// identifyMounted returns the id of the volume that is mounted: the one that is attached to this machine (of several, see
// [VolumeMounter.chooseVolume]), or else the chosen one if it is attached to none. Otherwise it returns a notReadyError: EC2 does not list
// the volume at the moment, and its data would be taken for a copy, or it was detached by force, and another machine of the slot has it.
func (m VolumeMounter) identifyMounted(all []Volume, chosen Volume) (string, error) {
	isElsewhere := func(v Volume) bool { return v.AttachedTo != m.Instance.ID }
	attached := slices.DeleteFunc(slices.Clone(all), isElsewhere)
	if len(attached) > 0 {
		return m.chooseVolume(attached).ID, nil
	}

	if chosen.AttachedTo == "" && (m.KnownVolume == "" || chosen.ID == m.KnownVolume) {
		return chosen.ID, nil
	}

	return "", newNotReadyError("a volume of slot %s is mounted, and EC2 lists only volume %s, which is not attached to this machine",
		m.Slot, chosen.ID)
}

// findVolume returns the slot's volume in this zone: see [VolumeMounter.chooseVolume].
func (m VolumeMounter) findVolume(ctx context.Context) (Volume, error) {
	all, err := m.listVolumes(ctx)
	if err != nil {
		return Volume{}, err
	}

	return m.chooseVolume(all), nil
}

// listVolumes returns the slot's volumes in this zone, the oldest first, or a missingVolumeError.
func (m VolumeMounter) listVolumes(ctx context.Context) ([]Volume, error) {
	all, err := m.Client.ListVolumes(ctx)
	if err != nil {
		return nil, err
	}

	all = slices.DeleteFunc(all, func(v Volume) bool {
		return v.Slot != m.Slot || v.Zone != m.Instance.Zone || slices.Contains(unusableStates(), v.State)
	})
	if len(all) == 0 {
		return nil, missingVolumeError{notReadyError{
			fmt.Sprintf("slot %s has no volume in zone %s yet", m.Slot, m.Instance.Zone),
		}}
	}

	return all, nil
}

// chooseVolume returns KnownVolume if it exists, otherwise the oldest.
func (m VolumeMounter) chooseVolume(all []Volume) Volume {
	if i := slices.IndexFunc(all, func(v Volume) bool { return v.ID == m.KnownVolume }); i >= 0 {
		return all[i]
	}

	return all[0]
}

func (m VolumeMounter) attachVolume(ctx context.Context, v Volume) error {
	switch {
	case v.AttachedTo != "" && v.AttachedTo != m.Instance.ID:
		return newHeldVolumeError("volume %s is still attached to %s", v.ID, v.AttachedTo)
	case m.ReservedFor != "":
		// Also while EC2 shows that it is attached: a volume that is mounted again is never detached.
		return newHeldVolumeError("volume %s was released for machine %s", v.ID, m.ReservedFor)
	case v.Detaching:
		return newHeldVolumeError("volume %s is being detached from this machine", v.ID)
	case v.State == string(types.VolumeStateCreating):
		return newNotReadyError("volume %s is being created", v.ID)
	case v.AttachedTo == "":
		return m.Client.AttachVolume(ctx, v.ID, m.Instance.ID, requestedDevice)
	}

	return nil
}

func newHeldVolumeError(format string, args ...any) error {
	return heldVolumeError{notReadyError{fmt.Sprintf(format, args...)}}
}

// findDevice returns the volume's device path: udev's link on Nitro instances, otherwise the
// requested name.
func (m VolumeMounter) findDevice(volume string) (string, error) {
	names := []string{
		"/dev/disk/by-id/nvme-Amazon_Elastic_Block_Store_" + strings.ReplaceAll(volume, "-", ""),
		requestedDevice,
		"/dev/sdf",
	}

	for _, name := range names {
		if _, err := os.Stat(m.Root.Path(name)); err == nil {
			return name, nil
		}
	}

	return "", newNotReadyError("volume %s is attached but its device does not exist yet", volume)
}

// formatIfEmpty creates a file system if the device has none. blkid exits with 2 if it finds
// nothing.
func (m VolumeMounter) formatIfEmpty(ctx context.Context, device, volume string) error {
	_, err := m.Run.Run(ctx, "blkid", "--probe", device)
	var exit *exec.ExitError
	switch {
	case err == nil:
		return nil
	case !errors.As(err, &exit) || exit.ExitCode() != 2:
		return fmt.Errorf("detect the file system on volume %s: %w", volume, err)
	case m.KnownVolume == volume:
		return diag.WithHint(
			fmt.Errorf(
				"volume %s has had the data of slot %s but has no file system now",
				volume,
				m.Slot,
			),
			"restore the volume from a snapshot: it was not formatted",
		)
	}

	if _, err := m.Run.Run(ctx, "mkfs.ext4", "-q", "-L", "slipway-etcd", device); err != nil {
		return fmt.Errorf("create a file system on volume %s: %w", volume, err)
	}

	m.Root.recordChange("mkfs " + device)

	return nil
}
