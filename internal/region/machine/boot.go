// SPDX-License-Identifier: Apache-2.0

package machine

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"
)

// runBootStage is PID 1 of a new machine until it executes systemd. It starts in the new namespaces
// with the host's mounts, builds the machine's file tree, and detaches the host's. The only element
// of rest is the console's path.
func runBootStage(dir machineDir, rest []string) error {
	runtime.LockOSThread() // the cgroup namespace belongs to this thread, which must call exec
	if len(rest) != 1 {
		return errors.New("boot: missing console path")
	}

	s, err := dir.readSpec()
	if err != nil {
		return err
	}

	groups, err := listHierarchies()
	if err != nil {
		return err
	}

	if err := joinCgroups(groups, s.cgroupPath()); err != nil {
		return err
	}

	if err := unix.Unshare(unix.CLONE_NEWCGROUP); err != nil {
		return fmt.Errorf("create cgroup namespace: %w", err)
	}

	if err := unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, ""); err != nil {
		return fmt.Errorf("make mounts private: %w", err)
	}

	unix.Umask(0)
	if err := buildRootTree(rootTree{dir: dir, spec: s}, groups, rest[0]); err != nil {
		return err
	}

	unix.Umask(0o022)
	if err := unix.Sethostname([]byte(s.Machine.Hostname)); err != nil {
		return fmt.Errorf("set host name: %w", err)
	}

	if err := dropCapabilities(); err != nil {
		return err
	}

	return execSystemd()
}

// hostCapabilities returns the capabilities that act on the host and not on the machine, which its root therefore does not
// have: kernel modules, memory and ports of devices, the clock, the kernel's log, process accounting, mandatory access
// control, and waking or keeping the host awake.
func hostCapabilities() []uintptr {
	return []uintptr{
		unix.CAP_SYS_MODULE, unix.CAP_SYS_RAWIO, unix.CAP_SYS_TIME, unix.CAP_SYSLOG, unix.CAP_SYS_PACCT,
		unix.CAP_MAC_ADMIN, unix.CAP_MAC_OVERRIDE, unix.CAP_WAKE_ALARM, unix.CAP_BLOCK_SUSPEND,
	}
}

// dropCapabilities removes [hostCapabilities] from the bounding set, so that no process of the machine gets them. They are
// gone when this process calls exec. One that the kernel does not know is ignored.
func dropCapabilities() error {
	for _, capability := range hostCapabilities() {
		err := unix.Prctl(unix.PR_CAPBSET_DROP, capability, 0, 0, 0)
		if err != nil && !errors.Is(err, unix.EINVAL) {
			return fmt.Errorf("drop capability %d: %w", capability, err)
		}
	}

	return nil
}

// buildRootTree builds the machine's file tree and makes it this process's root.
func buildRootTree(t rootTree, groups []cgroupHierarchy, consolePath string) error {
	steps := []func() error{
		t.mountRoot,
		t.mountKernel,
		func() error { return t.mountCgroups(groups) },
		t.bindData,
		func() error { return t.makeDev(consolePath) },
		t.pivotRoot,
	}

	for _, step := range steps {
		if err := step(); err != nil {
			return err
		}
	}

	return nil
}

// execSystemd replaces this process by systemd. It returns only on failure.
func execSystemd() error {
	env := []string{
		"container=slipway",
		"PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin",
		"HOME=/",
		"LANG=C.UTF-8",
		"TERM=dumb",
	}
	if err := syscall.Exec("/sbin/init", []string{"/sbin/init"}, env); err != nil {
		return fmt.Errorf("start systemd: %w", err)
	}

	return nil
}

// rootTree builds the file tree of a machine at dir.rootDir().
type rootTree struct {
	dir  machineDir
	spec machineSpec
}

func (t rootTree) hostPath(path string) string { return filepath.Join(t.dir.rootDir(), path) }

// mountAt creates the directory path in the machine's tree and mounts a file system on it.
func (t rootTree) mountAt(fstype, path string, flags uintptr, options string) error {
	if err := makeDir(t.hostPath(path)); err != nil {
		return fmt.Errorf("mount /%s: %w", path, err)
	}

	if err := unix.Mount(fstype, t.hostPath(path), fstype, flags, options); err != nil {
		return fmt.Errorf("mount %s on /%s: %w", fstype, path, err)
	}

	return nil
}

// mountRoot mounts the machine's writable layer over the image. The overlay is volatile (never
// synced): a machine's root need not survive a power failure of the host, and booting several
// machines should not wait for the disk.
func (t rootTree) mountRoot() error {
	options := fmt.Sprintf(
		"lowerdir=%s,upperdir=%s,workdir=%s",
		escapeOverlayPath(t.spec.Image),
		escapeOverlayPath(t.dir.upperDir()),
		escapeOverlayPath(t.dir.workDir()),
	)

	err := unix.Mount("overlay", t.dir.rootDir(), "overlay", 0, options+",volatile")
	if errors.Is(err, unix.EINVAL) { // kernels before 5.10
		err = unix.Mount("overlay", t.dir.rootDir(), "overlay", 0, options)
	}

	if err != nil {
		return fmt.Errorf("mount root: %w", err)
	}

	return nil
}

// escapeOverlayPath escapes a path for overlay options, where comma and colon are separators.
func escapeOverlayPath(path string) string {
	return strings.NewReplacer(`\`, `\\`, `,`, `\,`, `:`, `\:`).Replace(path)
}

// mountKernel mounts the kernel's file systems. /sys is read-only, which also tells systemd not to
// manage devices.
func (t rootTree) mountKernel() error {
	const plain = unix.MS_NOSUID | unix.MS_NODEV | unix.MS_NOEXEC
	for _, m := range []struct {
		fstype, path string
		flags        uintptr
		options      string
	}{
		{"proc", "proc", plain, ""},
		{"sysfs", "sys", plain | unix.MS_RDONLY, ""},
		{"tmpfs", "run", unix.MS_NOSUID | unix.MS_NODEV, "mode=755,size=20%"},
		{"tmpfs", "dev", unix.MS_NOSUID, "mode=755,size=4m"},
		{"devpts", "dev/pts", unix.MS_NOSUID | unix.MS_NOEXEC, "newinstance,ptmxmode=0666,mode=620,gid=5"},
		{"tmpfs", "dev/shm", unix.MS_NOSUID | unix.MS_NODEV, "mode=1777"},
		{"mqueue", "dev/mqueue", plain, ""},
	} {
		if err := t.mountAt(m.fstype, m.path, m.flags, m.options); err != nil {
			return err
		}
	}

	if err := t.protectHostSettings(); err != nil {
		return err
	}

	if err := t.coverBridgeSettings(); err != nil {
		return err
	}

	// For network add-ons that use it. The kernel may not support it.
	_ = unix.Mount("bpf", t.hostPath("sys/fs/bpf"), "bpf", plain, "mode=700")

	return nil
}

// protectHostSettings makes what belongs to the host read-only: all kernel settings but those of the machine's own network,
// and what controls interrupts, buses, file systems and the kernel itself. It keeps programs from changing the host by
// accident: root on a machine may mount /proc again. Kernel settings are then protected by denyHostSettings, the rest is not.
func (t rootTree) protectHostSettings() error {
	const (
		settings = "proc/sys"
		network  = settings + "/net"
	)

	if err := t.bindMount(t.hostPath(network), network, 0); err != nil {
		return err
	}

	top := t.hostPath(settings)
	if err := unix.Mount(top, top, "", unix.MS_BIND|unix.MS_REC, ""); err != nil { // with that of the network
		return fmt.Errorf("bind /%s: %w", settings, err)
	}

	const readOnly = unix.MS_BIND | unix.MS_REMOUNT | unix.MS_RDONLY | unix.MS_NOSUID | unix.MS_NODEV | unix.MS_NOEXEC
	if err := unix.Mount("", top, "", readOnly, ""); err != nil {
		return fmt.Errorf("remount /%s read-only: %w", settings, err)
	}

	// sysrq-trigger can reboot or crash the host.
	for _, name := range []string{"sysrq-trigger", "irq", "bus", "fs", "mtrr", "acpi", "scsi"} {
		path := filepath.Join("proc", name)
		if !fileExists(t.hostPath(path)) { // not every kernel has all of them
			continue
		}

		if err := t.bindMount(t.hostPath(path), path, unix.MS_RDONLY); err != nil {
			return err
		}
	}

	return nil
}

// coverBridgeSettings hides the kernel settings of br_netfilter and turns them off: a machine of Debian, Ubuntu or Amazon
// Linux boots without the module. The modprobe of the region's image uncovers them.
func (t rootTree) coverBridgeSettings() error {
	const dir = "proc/sys/net/bridge"
	settings, err := filepath.Glob(t.hostPath(filepath.Join(dir, "bridge-nf-call-*")))
	if err != nil || len(settings) == 0 {
		return err // the host has not loaded the module either
	}

	for _, path := range settings {
		if err := os.WriteFile(path, []byte("0\n"), 0o600); err != nil {
			return fmt.Errorf("turn off /%s: %w", filepath.Join(dir, filepath.Base(path)), err)
		}
	}

	return t.mountAt("tmpfs", dir, unix.MS_NOSUID|unix.MS_NODEV|unix.MS_NOEXEC, "mode=555,size=4k")
}

func (t rootTree) bindMount(source, path string, flags uintptr) error {
	if err := unix.Mount(source, t.hostPath(path), "", unix.MS_BIND, ""); err != nil {
		return fmt.Errorf("bind %s on /%s: %w", source, path, err)
	}

	if flags == 0 {
		return nil
	}

	if err := unix.Mount("", t.hostPath(path), "", unix.MS_BIND|unix.MS_REMOUNT|flags, ""); err != nil {
		return fmt.Errorf("remount /%s read-only: %w", path, err)
	}

	return nil
}

// mountCgroups mounts the host's hierarchies. Inside the cgroup namespace each shows the machine's
// cgroup as its root.
func (t rootTree) mountCgroups(groups []cgroupHierarchy) error {
	const flags = unix.MS_NOSUID | unix.MS_NODEV | unix.MS_NOEXEC
	if len(groups) == 1 && groups[0].V2 {
		return t.mountAt("cgroup2", "sys/fs/cgroup", flags, "")
	}

	if err := t.mountAt("tmpfs", "sys/fs/cgroup", flags, "mode=755,size=1m"); err != nil {
		return err
	}

	for _, h := range groups {
		fstype := "cgroup"
		if h.V2 {
			fstype = "cgroup2"
		}

		path := filepath.Join("sys/fs/cgroup", h.DirName())
		if err := t.mountAt(fstype, path, flags, h.Options); err != nil {
			return err
		}

		for part := range strings.SplitSeq(h.DirName(), ",") {
			if part != h.DirName() { // cpu,cpuacct also gets links cpu and cpuacct
				_ = os.Symlink(h.DirName(), t.hostPath(filepath.Join("sys/fs/cgroup", part)))
			}
		}
	}

	return nil
}

func (t rootTree) bindData() error {
	for i, name := range boundDirs() {
		path := filepath.Join("var/lib", name)
		if err := makeDir(t.hostPath(path)); err != nil {
			return fmt.Errorf("bind /%s: %w", path, err)
		}

		if err := t.bindMount(t.dir.dataDirs()[i], path, 0); err != nil {
			return err
		}
	}

	return nil
}

// makeDev creates the machine's /dev: standard devices, the console, and the attached volumes.
func (t rootTree) makeDev(consolePath string) error {
	for _, n := range deviceNodes() {
		if err := makeDeviceNode(t.hostPath("dev"), n); err != nil {
			return err
		}
	}

	links := map[string]string{
		"fd":     "/proc/self/fd",
		"stdin":  "/proc/self/fd/0",
		"stdout": "/proc/self/fd/1",
		"stderr": "/proc/self/fd/2",
		"ptmx":   "pts/ptmx",
		"core":   "/proc/kcore",
	}

	for name, target := range links {
		if err := os.Symlink(target, t.hostPath(filepath.Join("dev", name))); err != nil {
			return fmt.Errorf("create /dev/%s: %w", name, err)
		}
	}

	if err := os.WriteFile(t.hostPath("dev/console"), nil, 0o600); err != nil {
		return fmt.Errorf("create /dev/console: %w", err)
	}

	if err := t.bindMount(consolePath, "dev/console", 0); err != nil {
		return err
	}

	attached, err := readVolumes(t.spec.Volumes)
	if err != nil {
		return err
	}

	attached = slices.DeleteFunc(
		attached,
		func(v volumeRecord) bool { return v.Instance != t.spec.Machine.ID },
	)

	for _, v := range attached {
		if err := v.createDevice(t.hostPath("dev")); err != nil {
			return err
		}
	}

	return nil
}

// fileExists reports whether path exists.
func fileExists(path string) bool {
	_, err := os.Stat(path)
	return err == nil
}

// pivotRoot makes the tree the root and detaches the host's. Mounts are shared, as on any machine
// with systemd, so that the kubelet's mounts propagate to containers.
func (t rootTree) pivotRoot() error {
	if err := unix.Chdir(t.dir.rootDir()); err != nil {
		return fmt.Errorf("enter root: %w", err)
	}

	if err := unix.PivotRoot(".", "."); err != nil {
		return fmt.Errorf("enter root: %w", err)
	}

	if err := unix.Unmount(".", unix.MNT_DETACH); err != nil {
		return fmt.Errorf("detach the host's root: %w", err)
	}

	if err := unix.Chdir("/"); err != nil {
		return fmt.Errorf("enter root: %w", err)
	}

	if err := unix.Mount("", "/", "", unix.MS_REC|unix.MS_SHARED, ""); err != nil {
		return fmt.Errorf("make mounts shared: %w", err)
	}

	return nil
}

// deviceNode is a character device.
type deviceNode struct {
	name         string
	major, minor uint32
	mode         uint32
}

// deviceNodes returns the devices of every machine. kmsg is the null device, because the kernel log
// belongs to the host.
func deviceNodes() []deviceNode {
	return []deviceNode{
		{"null", 1, 3, 0o666},
		{"zero", 1, 5, 0o666},
		{"full", 1, 7, 0o666},
		{"random", 1, 8, 0o666},
		{"urandom", 1, 9, 0o666},
		{"tty", 5, 0, 0o666},
		{"kmsg", 1, 3, 0o666},
		{"fuse", 10, 229, 0o666},
		{"net/tun", 10, 200, 0o666},
	}
}

func makeDeviceNode(dev string, n deviceNode) error {
	path := filepath.Join(dev, n.name)
	if err := makeDir(filepath.Dir(path)); err != nil {
		return fmt.Errorf("create /dev/%s: %w", n.name, err)
	}

	if err := unix.Mknod(path, unix.S_IFCHR|n.mode, int(unix.Mkdev(n.major, n.minor))); err != nil {
		return fmt.Errorf("make /dev/%s: %w", n.name, err)
	}

	return nil
}
