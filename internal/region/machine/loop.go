// SPDX-License-Identifier: Apache-2.0

package machine

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// listLoops returns the host's used loop devices with their backing files.
func listLoops() (map[string]string, error) {
	names, err := filepath.Glob("/sys/block/loop*/loop/backing_file")
	if err != nil {
		return nil, fmt.Errorf("list loop devices: %w", err)
	}

	out := map[string]string{}

	for _, name := range names {
		data, err := os.ReadFile(name)
		if err != nil { // the device was released meanwhile
			continue
		}

		dev := "/dev/" + strings.Split(name, "/")[3]
		out[dev] = strings.TrimSuffix(strings.TrimSpace(string(data)), " (deleted)")
	}

	return out, nil
}

// findLoopDevice returns the loop device of a file, or "". It skips devices that breakLoopDevice has broken.
func findLoopDevice(file string) (string, error) {
	all, err := listLoops()
	if err != nil {
		return "", err
	}

	for dev, backing := range all {
		if backing == file && !isLoopBroken(dev) {
			return dev, nil
		}
	}

	return "", nil
}

// brokenSizeLimit is the limit of a broken loop device in bytes: less than a sector, so that it has none. 0 would mean no limit.
const brokenSizeLimit = 1

// breakLoopDevice makes all later reads and writes of a used loop device fail with an I/O error, like those of a disk that was
// pulled: the device is limited to no sectors. Its offset must stay: the kernel changes the offset before the size, so that a
// write in between would be acknowledged and go to another place of the file. The file itself keeps its content and can get
// another loop device.
func breakLoopDevice(dev string) error {
	f, err := os.OpenFile(dev, os.O_RDONLY, 0)
	if err != nil {
		return fmt.Errorf("break %s: %w", dev, err)
	}

	defer func() { _ = f.Close() }()
	info, err := unix.IoctlLoopGetStatus64(int(f.Fd()))
	if err != nil {
		return fmt.Errorf("read the state of %s: %w", dev, err)
	}

	info.Sizelimit = brokenSizeLimit
	if err := unix.IoctlLoopSetStatus64(int(f.Fd()), info); err != nil {
		return fmt.Errorf("break %s: %w", dev, err)
	}

	return nil
}

// isLoopBroken reports whether breakLoopDevice has broken the device.
func isLoopBroken(dev string) bool {
	limit, err := os.ReadFile(filepath.Join("/sys/block", filepath.Base(dev), "loop/sizelimit"))
	return err == nil && strings.TrimSpace(string(limit)) == strconv.Itoa(brokenSizeLimit)
}

// ensureLoopDevice returns the loop device of a file. It sets one up if the file has none.
func ensureLoopDevice(file string) (string, error) {
	if dev, err := findLoopDevice(file); dev != "" || err != nil {
		return dev, err
	}

	control, err := os.OpenFile("/dev/loop-control", os.O_RDWR, 0)
	if err != nil {
		return "", fmt.Errorf("set up loop device: %w", err)
	}

	defer func() { _ = control.Close() }()
	data, err := os.OpenFile(file, os.O_RDWR, 0)
	if err != nil {
		return "", fmt.Errorf("set up loop device: %w", err)
	}

	defer func() { _ = data.Close() }()

	for range 64 { // another process may take the free device first
		n, err := unix.IoctlRetInt(int(control.Fd()), unix.LOOP_CTL_GET_FREE)
		if err != nil {
			return "", fmt.Errorf("set up loop device: %w", err)
		}

		dev, err := configureLoopDevice(n, data)
		if errors.Is(err, unix.EBUSY) {
			continue
		}

		if err != nil {
			return "", fmt.Errorf("set up loop device: %w", err)
		}

		return dev, nil
	}

	return "", errors.New("set up loop device: no free device after 64 attempts")
}

func configureLoopDevice(n int, data *os.File) (string, error) {
	dev := "/dev/loop" + strconv.Itoa(n)
	// Without devtmpfs (in a container), the node must be created here. 7 is the major number of
	// loop devices.
	err := unix.Mknod(
		dev,
		unix.S_IFBLK|0o660,
		int(unix.Mkdev(7, uint32(n))),
	)
	if err != nil && !errors.Is(err, unix.EEXIST) {
		return "", fmt.Errorf("create %s: %w", dev, err)
	}

	f, err := os.OpenFile(dev, os.O_RDWR, 0)
	if err != nil {
		return "", fmt.Errorf("open %s: %w", dev, err)
	}

	defer func() { _ = f.Close() }()
	config := unix.LoopConfig{Fd: uint32(data.Fd())}
	copy(config.Info.File_name[:len(config.Info.File_name)-1], data.Name())
	if err := unix.IoctlLoopConfigure(int(f.Fd()), &config); err != nil {
		return "", fmt.Errorf("configure %s: %w", dev, err)
	}

	return dev, nil
}

// updateLoopSize gives a loop device the size of its file, which has grown.
func updateLoopSize(dev string) error {
	f, err := os.OpenFile(dev, os.O_RDWR, 0)
	if err != nil {
		return fmt.Errorf("open %s: %w", dev, err)
	}

	defer func() { _ = f.Close() }()
	if err := unix.IoctlSetInt(int(f.Fd()), unix.LOOP_SET_CAPACITY, 0); err != nil {
		return fmt.Errorf("grow %s: %w", dev, err)
	}

	return nil
}

// isLoopBusy reports whether the device is open exclusively, as by a mount in any mount namespace.
func isLoopBusy(dev string) bool {
	fd, err := unix.Open(dev, unix.O_RDONLY|unix.O_EXCL|unix.O_CLOEXEC, 0)
	if err != nil {
		return errors.Is(err, unix.EBUSY)
	}

	_ = unix.Close(fd)

	return false
}

// freeLoopDevice releases a loop device. It succeeds if the device is already free.
func freeLoopDevice(dev string) error {
	f, err := os.OpenFile(dev, os.O_RDONLY, 0)
	if err != nil {
		return fmt.Errorf("release %s: %w", dev, err)
	}

	defer func() { _ = f.Close() }()
	if err := unix.IoctlSetInt(int(f.Fd()), unix.LOOP_CLR_FD, 0); err != nil && !errors.Is(err, unix.ENXIO) {
		return fmt.Errorf("release %s: %w", dev, err)
	}

	return nil
}

// freeLoopDevices releases all loop devices with backing files in a directory.
func freeLoopDevices(ctx context.Context, dir string) error {
	return pollUntil(ctx, startTimeout, func() (bool, error) {
		all, err := listLoops()
		if err != nil {
			return false, err
		}

		left := 0

		for dev, file := range all {
			if !strings.HasPrefix(file, dir+"/") {
				continue
			}

			left++
			if !isLoopBusy(dev) {
				if err := freeLoopDevice(dev); err != nil {
					return false, err
				}
			}
		}

		return left == 0, nil
	})
}
