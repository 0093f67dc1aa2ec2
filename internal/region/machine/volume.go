// SPDX-License-Identifier: Apache-2.0

package machine

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/slipway-k8s/slipway/internal/region/netspec"
)

// volumeRecord is the JSON file of a volume, stored next to its data. Instance is empty if it is
// not attached.
type volumeRecord struct {
	netspec.Volume

	Instance string `json:"instance,omitempty"`
	Device   string `json:"device,omitempty"` // as requested, such as /dev/xvdf
	Name     string `json:"name,omitempty"`   // inside the machine, such as nvme1n1
	Loop     string `json:"loop,omitempty"`   // on the host, such as /dev/loop8
}

func (h *Host) volumeFile(id string) string { return filepath.Join(h.volumesDir(), id+".json") }
func (h *Host) volumeData(id string) string { return filepath.Join(h.volumesDir(), id+".img") }

func (h *Host) readVolume(id string) (volumeRecord, error) {
	if err := validID(id, "vol-"); err != nil {
		return volumeRecord{}, err
	}

	return readVolume(h.volumeFile(id))
}

func readVolume(path string) (volumeRecord, error) {
	data, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		return volumeRecord{}, ErrNotFound
	}

	if err != nil {
		return volumeRecord{}, fmt.Errorf("read volume: %w", err)
	}

	var v volumeRecord
	if err := json.Unmarshal(data, &v); err != nil {
		return volumeRecord{}, fmt.Errorf("read volume %s: %w", path, err)
	}

	return v, nil
}

// readVolumes reads all records in a directory, sorted by id.
func readVolumes(dir string) ([]volumeRecord, error) {
	names, err := filepath.Glob(filepath.Join(dir, "vol-*.json"))
	if err != nil {
		return nil, fmt.Errorf("list volumes: %w", err)
	}

	slices.Sort(names)
	var out []volumeRecord

	for _, name := range names {
		v, err := readVolume(name)
		if errors.Is(err, ErrNotFound) { // deleted meanwhile
			continue
		}

		if err != nil {
			return nil, err
		}

		out = append(out, v)
	}

	return out, nil
}

// CreateVolume makes an empty volume: a sparse file that takes only the space written. An existing
// one that is smaller grows, also while a machine uses it; its data stays.
func (h *Host) CreateVolume(_ context.Context, v netspec.Volume) error {
	defer h.lockID(v.ID)()
	existing, err := h.readVolume(v.ID)
	if err == nil {
		if err := h.growVolume(existing, v.Size); err != nil {
			return fmt.Errorf("grow volume %s: %w", v.ID, err)
		}

		return nil
	}

	if !errors.Is(err, ErrNotFound) {
		return fmt.Errorf("create volume %s: %w", v.ID, err)
	}

	if v.Size <= 0 {
		return fmt.Errorf("create volume %s: size %d GiB: want at least 1", v.ID, v.Size)
	}

	f, err := os.OpenFile(h.volumeData(v.ID), os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return fmt.Errorf("create volume %s: %w", v.ID, err)
	}

	if err := errors.Join(f.Truncate(int64(v.Size)<<30), f.Close()); err != nil {
		return fmt.Errorf("create volume %s: %w", v.ID, err)
	}

	if err := writeJSON(h.volumeFile(v.ID), volumeRecord{Volume: v}); err != nil {
		return fmt.Errorf("create volume %s: %w", v.ID, err)
	}

	return nil
}

// growVolume lets a volume grow to size in GiB, and the loop device of one that is attached.
func (h *Host) growVolume(v volumeRecord, size int) error {
	if size <= v.Size {
		return nil
	}

	file := h.volumeData(v.ID)
	if err := os.Truncate(file, int64(size)<<30); err != nil {
		return err
	}

	loop, err := findLoopDevice(file)
	if err == nil && loop != "" {
		err = updateLoopSize(loop)
	}

	if err != nil {
		return err
	}

	v.Size = size

	return writeJSON(h.volumeFile(v.ID), v)
}

// DeleteVolume deletes a volume and its data. It fails for an attached volume and succeeds for a
// missing one.
func (h *Host) DeleteVolume(_ context.Context, id string) error {
	defer h.lockID(id)()
	v, err := h.readVolume(id)
	if errors.Is(err, ErrNotFound) {
		return nil
	}

	if err != nil {
		return fmt.Errorf("delete volume %s: %w", id, err)
	}

	if v.Instance != "" {
		return fmt.Errorf("delete volume %s: attached to %s: detach it first", id, v.Instance)
	}

	for _, path := range []string{h.volumeData(id), h.volumeFile(id)} {
		if err := os.Remove(path); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return fmt.Errorf("delete volume %s: %w", id, err)
		}
	}

	return nil
}

// Attach attaches a volume to a machine, where it appears as the next free /dev/nvmeXn1 and under
// udev's link for an EBS volume in /dev/disk/by-id. It does nothing if the volume is attached to
// this machine, and fails if it is attached to another.
func (h *Host) Attach(_ context.Context, volumeID, instanceID, device string) error {
	defer h.lockID(instanceID)()
	defer h.lockID(volumeID)()
	if err := h.attachLocked(volumeID, instanceID, device); err != nil {
		return fmt.Errorf("attach volume %s to %s: %w", volumeID, instanceID, err)
	}

	return nil
}

func (h *Host) attachLocked(volumeID, instanceID, device string) error {
	v, err := h.readVolume(volumeID)
	if err != nil {
		return err
	}

	if v.Instance != "" && v.Instance != instanceID {
		return fmt.Errorf("attached to %s: detach it there first", v.Instance)
	}

	if _, err := h.machineDir(instanceID).readSpec(); err != nil {
		return err
	}

	if v.Instance == "" {
		v.Instance = instanceID
		v.Device = device
		if v.Name, err = h.freeDeviceName(instanceID); err != nil {
			return err
		}
	}

	return h.connectVolume(v)
}

// connectVolume creates the loop device of an attached volume and, if the machine runs, its device
// node there.
func (h *Host) connectVolume(v volumeRecord) error {
	loop, err := ensureLoopDevice(h.volumeData(v.ID))
	if err != nil {
		return err
	}

	v.Loop = loop
	if err := writeJSON(h.volumeFile(v.ID), v); err != nil {
		return err
	}

	if dev, ok := h.machineDir(v.Instance).devDir(); ok {
		return v.createDevice(dev)
	}

	return nil
}

// connectVolumes recreates the loop devices of a machine that is about to boot: they are lost when
// the host restarts.
func (h *Host) connectVolumes(instanceID string) error {
	all, err := readVolumes(h.volumesDir())
	if err != nil {
		return err
	}

	for _, v := range all {
		if v.Instance == instanceID {
			if err := h.connectVolume(v); err != nil {
				return fmt.Errorf("volume %s: %w", v.ID, err)
			}
		}
	}

	return nil
}

// freeDeviceName returns the first NVMe name that no volume of the machine has. nvme0 would be the
// root volume.
func (h *Host) freeDeviceName(instanceID string) (string, error) {
	all, err := readVolumes(h.volumesDir())
	if err != nil {
		return "", err
	}

	for i := 1; ; i++ {
		name := "nvme" + strconv.Itoa(i) + "n1"
		if !slices.ContainsFunc(
			all,
			func(v volumeRecord) bool { return v.Instance == instanceID && v.Name == name },
		) {
			return name, nil
		}
	}
}

// devDir returns the path of a running machine's /dev on the host. The second result is false if it
// does not run.
func (d machineDir) devDir() (string, bool) {
	r, ok := d.readProcesses()
	if !ok || !r.Init.isRunning() {
		return "", false
	}

	return filepath.Join("/proc", strconv.Itoa(r.Init.PID), "root", "dev"), true
}

// amazonRules are udev's rules of the package amazon-ec2-utils, which Debian's image for EC2 has.
const amazonRules = "usr/lib/udev/rules.d/70-ec2-nvme-devices.rules"

// udevLinks returns the links to the volume that udev makes on AWS, as paths below /dev: those of systemd's rules for the
// serial number and the namespace.
func (v volumeRecord) udevLinks() []string {
	byID := filepath.Join("disk/by-id", "nvme-Amazon_Elastic_Block_Store_"+strings.Replace(v.ID, "-", "", 1))

	return []string{byID, byID + "_1"}
}

// amazonLinks returns the links that udev makes by [amazonRules]. One has the name of the attachment.
func (v volumeRecord) amazonLinks() []string {
	links := []string{v.udevLinks()[0] + "-ns-1"}
	name := strings.TrimPrefix(v.Device, "/dev/")
	if strings.HasPrefix(name, "sd") || strings.HasPrefix(name, "xvd") {
		links = append(links, filepath.Base(name))
	}

	return links
}

// createDevice creates the volume's device node in a machine's /dev, and the links that the rules of its image would make.
func (v volumeRecord) createDevice(dev string) error {
	var st unix.Stat_t
	if err := unix.Stat(v.Loop, &st); err != nil {
		return fmt.Errorf("create device of volume %s: %w", v.ID, err)
	}

	if err := v.removeDevice(dev); err != nil {
		return err
	}

	path := filepath.Join(dev, v.Name)
	if err := unix.Mknod(path, unix.S_IFBLK|0o660, int(st.Rdev)); err != nil {
		return fmt.Errorf("create device of volume %s: create %s: %w", v.ID, path, err)
	}

	links := v.udevLinks()
	if fileExists(filepath.Join(filepath.Dir(dev), amazonRules)) {
		links = append(links, v.amazonLinks()...)
	}

	for _, name := range links {
		if err := v.createLink(dev, name); err != nil {
			return fmt.Errorf("create device of volume %s: %w", v.ID, err)
		}
	}

	return nil
}

// createLink creates a link to the volume's device in a machine's /dev.
func (v volumeRecord) createLink(dev, name string) error {
	target, err := filepath.Rel(filepath.Dir(name), v.Name)
	if err != nil {
		return err
	}

	link := filepath.Join(dev, name)
	if err := makeDir(filepath.Dir(link)); err != nil {
		return err
	}

	return os.Symlink(target, link)
}

func (v volumeRecord) removeDevice(dev string) error {
	for _, name := range slices.Concat(v.udevLinks(), v.amazonLinks(), []string{v.Name}) {
		if err := os.Remove(filepath.Join(dev, name)); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return fmt.Errorf("remove device of volume %s: %w", v.ID, err)
		}
	}

	return nil
}

// Detach detaches a volume from a machine. It returns [ErrBusy] while a file system on the volume
// is mounted, and does nothing if the volume is not attached to the machine.
func (h *Host) Detach(_ context.Context, volumeID, instanceID string) error {
	defer h.lockID(volumeID)()
	v, err := h.readVolume(volumeID)
	if err == nil && v.Instance == instanceID {
		err = h.detachLocked(v)
	}

	if err != nil {
		return fmt.Errorf("detach volume %s from %s: %w", volumeID, instanceID, err)
	}

	return nil
}

// ForceDetach detaches a volume from a machine like Detach, also while a file system on it is mounted. The
// device then has no sectors: what has not been written is lost, and reads and writes fail with an I/O error
// until the machine unmounts it. The data on the volume stays.
func (h *Host) ForceDetach(_ context.Context, volumeID, instanceID string) error {
	defer h.lockID(volumeID)()
	v, err := h.readVolume(volumeID)
	if err == nil && v.Instance == instanceID {
		err = h.forceDetachLocked(v)
	}

	if err != nil {
		return fmt.Errorf("force the detachment of volume %s from %s: %w", volumeID, instanceID, err)
	}

	return nil
}

func (h *Host) forceDetachLocked(v volumeRecord) error {
	loop, err := findLoopDevice(h.volumeData(v.ID))
	if err != nil {
		return err
	}

	if loop != "" && isLoopBusy(loop) {
		if err := breakLoopDevice(loop); err != nil {
			return err
		}
	}

	return h.releaseVolume(v, loop)
}

func (h *Host) detachLocked(v volumeRecord) error {
	loop, err := findLoopDevice(h.volumeData(v.ID))
	if err != nil {
		return err
	}

	if loop != "" && isLoopBusy(loop) {
		return ErrBusy
	}

	return h.releaseVolume(v, loop)
}

// releaseVolume removes a volume's device from its machine, frees the loop device and records that the volume
// is not attached. The kernel frees a loop device that is still mounted when it is unmounted.
func (h *Host) releaseVolume(v volumeRecord, loop string) error {
	if dev, ok := h.machineDir(v.Instance).devDir(); ok {
		if err := v.removeDevice(dev); err != nil {
			return err
		}
	}

	if loop != "" {
		if err := freeLoopDevice(loop); err != nil {
			return err
		}
	}

	return writeJSON(h.volumeFile(v.ID), volumeRecord{Volume: v.Volume})
}

// detachVolumes detaches all volumes of a machine that has stopped. Its mounts disappear shortly
// after its last process, so it retries.
func (h *Host) detachVolumes(ctx context.Context, instanceID string) error {
	all, err := readVolumes(h.volumesDir())
	if err != nil {
		return err
	}

	for _, v := range all {
		if v.Instance != instanceID {
			continue
		}

		unlock := h.lockID(v.ID)
		err := pollUntil(ctx, 20*time.Second, func() (bool, error) {
			err := h.detachLocked(v)
			return err == nil, ignoreError(err, ErrBusy)
		})

		unlock()
		if err != nil {
			return fmt.Errorf("detach volume %s: %w", v.ID, err)
		}
	}

	return nil
}

func ignoreError(err, target error) error {
	if errors.Is(err, target) {
		return nil
	}

	return err
}
