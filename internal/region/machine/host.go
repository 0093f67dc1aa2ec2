// SPDX-License-Identifier: Apache-2.0

// Package machine runs the region's instances: systemd as PID 1 in its own namespaces, with the
// image as an overlay root, a serial console, and block devices. A small supervisor per machine
// outlives the region's process, so machines survive its restart.
//
// The package knows no AWS API and does not create the network: a machine boots in a network
// namespace from a NamespaceProvider.
package machine

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"strings"
	"sync"

	"github.com/slipway-k8s/slipway/internal/region/netspec"
)

// ErrBusy is returned if a volume cannot be detached because a file system on it is mounted. The
// caller may retry.
var ErrBusy = netspec.ErrVolumeBusy

// ErrNotFound is returned for an unknown machine or volume.
var ErrNotFound = errors.New("not found")

// NamespaceProvider creates the network of a machine.
type NamespaceProvider interface {
	// EnsureNamespace returns the path of a network namespace that contains the machine's eth0 with
	// address and routes.
	EnsureNamespace(ctx context.Context, m netspec.Machine) (path string, err error)
}

// NamespaceReleaser is optionally implemented by a [NamespaceProvider] to remove a machine's
// network. Terminate calls it when no process of the machine runs.
type NamespaceReleaser interface {
	// Release removes the network of a machine. It succeeds if there is none.
	Release(ctx context.Context, instanceID string) error
}

// Config configures a Host.
type Config struct {
	// Region is a short name of this region on this host, such as r1f3. It is part of cgroup paths.
	Region string
	// Dir is the region's directory on a real disk, such as ~/.cache/slipway/region.
	Dir string
	// Namespaces creates each machine's network namespace.
	Namespaces NamespaceProvider
	// ImageRoot returns the path of an image's root file system.
	ImageRoot func(id string) (root string, err error)
	// Etc are files below /etc that every machine begins with, by path: what the region's own endpoints require. Nil:
	// none.
	Etc map[string]string
	// Executable is a program that calls Main for the argument [SupervisorCommand]. Default is the
	// running program.
	Executable string
}

// Host runs machines on this computer. It is safe for concurrent use; calls for the same machine or
// volume are serialised.
type Host struct {
	cfg Config

	mu    sync.Mutex
	locks map[string]*sync.Mutex
}

// New validates the configuration and creates the region's directories. It does not affect running
// machines.
func New(cfg Config) (*Host, error) {
	if cfg.Region == "" || strings.ContainsAny(cfg.Region, "/. ") {
		return nil, fmt.Errorf("region name %q must not be empty or contain slash, dot, or space", cfg.Region)
	}

	dir, err := filepath.Abs(cfg.Dir)
	if err != nil {
		return nil, fmt.Errorf("resolve region directory %s: %w", cfg.Dir, err)
	}

	cfg.Dir = dir
	if cfg.Executable == "" {
		cfg.Executable = "/proc/self/exe" // the running program, even after it was rebuilt
	}

	h := &Host{cfg: cfg, locks: map[string]*sync.Mutex{}}

	for _, sub := range []string{h.instancesDir(), h.volumesDir(), h.consolesDir()} {
		if err := makeDir(sub); err != nil {
			return nil, fmt.Errorf("create machine directory: %w", err)
		}
	}

	return h, nil
}

func (h *Host) instancesDir() string { return filepath.Join(h.cfg.Dir, "instances") }
func (h *Host) consolesDir() string  { return filepath.Join(h.cfg.Dir, "consoles") }
func (h *Host) volumesDir() string   { return filepath.Join(h.cfg.Dir, "volumes") }
func (h *Host) machineDir(id string) machineDir {
	return machineDir{path: filepath.Join(h.instancesDir(), id)}
}

// lockID locks a machine or volume and returns the function that unlocks it.
func (h *Host) lockID(id string) func() {
	h.mu.Lock()
	l := h.locks[id]
	if l == nil {
		l = &sync.Mutex{}
		h.locks[id] = l
	}

	h.mu.Unlock()
	l.Lock()

	return l.Unlock
}

func validID(id, prefix string) error {
	if !strings.HasPrefix(id, prefix) || id != filepath.Base(id) || len(id) > 64 {
		return fmt.Errorf("invalid id %q: must begin with %s", id, prefix)
	}

	return nil
}

// Launch boots a machine and returns when its PID 1 runs. It does nothing if the machine runs, and
// reboots a crashed machine with its disk.
func (h *Host) Launch(ctx context.Context, m netspec.Machine) error {
	if err := validID(m.ID, "i-"); err != nil {
		return fmt.Errorf("launch machine: %w", err)
	}

	defer h.lockID(m.ID)()
	if err := h.launchLocked(ctx, m); err != nil {
		return fmt.Errorf("launch machine %s: %w", m.ID, err)
	}

	return nil
}

func (h *Host) launchLocked(ctx context.Context, m netspec.Machine) error {
	dir := h.machineDir(m.ID)
	if dir.isAlive() {
		return nil
	}

	if err := h.stopMachine(ctx, m.ID); err != nil { // leftovers of a crash
		return err
	}

	loadHostModules(ctx)

	if err := raiseSysctls(h.cfg.Dir); err != nil {
		return err
	}

	root, err := h.cfg.ImageRoot(m.Image)
	if err != nil {
		return fmt.Errorf("find image %s: %w", m.Image, err)
	}

	ns, err := h.cfg.Namespaces.EnsureNamespace(ctx, m)
	if err != nil {
		return fmt.Errorf("create network: %w", err)
	}

	s := machineSpec{
		Region:  h.cfg.Region,
		Machine: m,
		Image:   root,
		Netns:   ns,
		Volumes: h.volumesDir(),
		Etc:     h.cfg.Etc,
	}
	if err := dir.prepareDisk(s); err != nil {
		return err
	}

	if err := h.connectVolumes(m.ID); err != nil {
		return err
	}

	return h.startSupervisor(ctx, dir)
}

// Reboot kills a machine and boots it again with the same disk, address, and volumes.
func (h *Host) Reboot(ctx context.Context, id string) error {
	defer h.lockID(id)()
	dir := h.machineDir(id)
	s, err := dir.readSpec()
	if err != nil {
		return fmt.Errorf("reboot machine %s: %w", id, err)
	}

	if err := h.stopMachine(ctx, id); err != nil {
		return fmt.Errorf("reboot machine %s: %w", id, err)
	}

	if err := h.launchLocked(ctx, s.Machine); err != nil {
		return fmt.Errorf("reboot machine %s: %w", id, err)
	}

	return nil
}

// Alive reports whether a machine's PID 1 runs. It works across restarts of the region's process.
func (h *Host) Alive(id string) bool { return h.machineDir(id).isAlive() }

// Console returns the last output on the machine's serial console, at most 1 MiB. It also works for
// recently terminated machines.
func (h *Host) Console(id string) ([]byte, error) {
	dir := h.machineDir(id)
	var out []byte
	names := []string{dir.consoleLog() + ".1", dir.consoleLog()}
	if _, err := os.Stat(h.savedConsolePath(id)); err == nil {
		names = []string{h.savedConsolePath(id)}
	}

	for _, name := range names {
		data, err := os.ReadFile(name)
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return nil, fmt.Errorf("read console of %s: %w", id, err)
		}

		out = append(out, data...)
	}

	return out, nil
}

// Stop ends a machine, and keeps its disk: Launch boots it again with that. Its volumes are detached until then.
// It is idempotent and succeeds for unknown machines.
func (h *Host) Stop(ctx context.Context, id string) error {
	if err := validID(id, "i-"); err != nil {
		return fmt.Errorf("stop machine: %w", err)
	}

	defer h.lockID(id)()
	if err := h.stopAndRelease(ctx, id); err != nil {
		return fmt.Errorf("stop machine %s: %w", id, err)
	}

	return nil
}

// Terminate stops a machine, detaches its volumes, and removes everything else that belongs to it.
// It is idempotent and succeeds for unknown machines.
func (h *Host) Terminate(ctx context.Context, id string) error {
	if err := validID(id, "i-"); err != nil {
		return fmt.Errorf("terminate machine: %w", err)
	}

	defer h.lockID(id)()
	if err := h.terminateLocked(ctx, id); err != nil {
		return fmt.Errorf("terminate machine %s: %w", id, err)
	}

	return nil
}

// stopAndRelease kills a machine, detaches its volumes, and removes its network.
func (h *Host) stopAndRelease(ctx context.Context, id string) error {
	if err := h.stopMachine(ctx, id); err != nil {
		return err
	}

	if err := h.detachVolumes(ctx, id); err != nil {
		return err
	}

	if r, ok := h.cfg.Namespaces.(NamespaceReleaser); ok {
		if err := r.Release(ctx, id); err != nil {
			return fmt.Errorf("remove network: %w", err)
		}
	}

	return nil
}

func (h *Host) terminateLocked(ctx context.Context, id string) error {
	if err := h.stopAndRelease(ctx, id); err != nil {
		return err
	}

	if err := h.saveConsole(id); err != nil {
		return fmt.Errorf("save console: %w", err)
	}

	if err := os.RemoveAll(h.machineDir(id).path); err != nil {
		return fmt.Errorf("remove disk: %w", err)
	}

	return nil
}

// stopMachine kills all processes of a machine and its supervisor, and removes its cgroups. The
// disk remains.
func (h *Host) stopMachine(ctx context.Context, id string) error {
	dir := h.machineDir(id)
	if err := dir.killProcesses(ctx); err != nil {
		return err
	}

	if err := killSupervisors(ctx, dir.path); err != nil {
		return err
	}

	groups, err := listHierarchies()
	if err != nil {
		return err
	}

	return removeCgroups(ctx, groups, filepath.Join(cgroupTop, h.cfg.Region, id))
}

// machineDir is the directory of one machine: specification, disk, console, and process identities.
type machineDir struct{ path string }

func (d machineDir) specFile() string   { return filepath.Join(d.path, "spec.json") }
func (d machineDir) pidFile() string    { return filepath.Join(d.path, "pid.json") }
func (d machineDir) consoleLog() string { return filepath.Join(d.path, "console.log") }
func (d machineDir) upperDir() string   { return filepath.Join(d.path, "upper") }
func (d machineDir) workDir() string    { return filepath.Join(d.path, "work") }
func (d machineDir) rootDir() string    { return filepath.Join(d.path, "root") }
func (d machineDir) dataRoot() string   { return filepath.Join(d.path, "data") }

// machineSpec is the specification that the supervisor boots a machine from.
type machineSpec struct {
	Region  string          `json:"region"`
	Machine netspec.Machine `json:"machine"`
	Image   string          `json:"image"`   // path of the image's root file system
	Netns   string          `json:"netns"`   // path of the machine's network namespace
	Volumes string          `json:"volumes"` // directory of the volume records

	Etc map[string]string `json:"etc,omitempty"` // see Config.Etc
}

func (d machineDir) readSpec() (machineSpec, error) {
	data, err := os.ReadFile(d.specFile())
	if errors.Is(err, fs.ErrNotExist) {
		return machineSpec{}, ErrNotFound
	}

	if err != nil {
		return machineSpec{}, fmt.Errorf("read specification: %w", err)
	}

	var s machineSpec
	if err := json.Unmarshal(data, &s); err != nil {
		return machineSpec{}, fmt.Errorf("read specification %s: %w", d.specFile(), err)
	}

	return s, nil
}

// prepareDisk creates the machine's directories and specification. Identity files are written
// before the first boot only; afterwards the machine may change them.
func (d machineDir) prepareDisk(s machineSpec) error {
	for _, dir := range append([]string{d.upperDir(), d.workDir(), d.rootDir()}, d.dataDirs()...) {
		if err := makeDir(dir); err != nil {
			return fmt.Errorf("create disk: %w", err)
		}
	}

	// An overlay mounted with "volatile" leaves this marker unless it is unmounted in order, which
	// does not happen for a killed machine. It would prevent the next mount.
	if err := os.RemoveAll(filepath.Join(d.workDir(), "work", "incompat")); err != nil {
		return fmt.Errorf("create disk: %w", err)
	}

	if _, err := os.Stat(d.specFile()); errors.Is(err, fs.ErrNotExist) {
		if err := d.writeIdentityFiles(s); err != nil {
			return err
		}
	}

	return writeJSON(d.specFile(), s)
}

// boundDirs returns the directories in /var/lib that must be on a real file system: containerd's
// overlays do not work on an overlay.
func boundDirs() []string { return []string{"containerd", "kubelet", "slipway"} }

func (d machineDir) dataDirs() []string {
	var dirs []string
	for _, name := range boundDirs() {
		dirs = append(dirs, filepath.Join(d.dataRoot(), name))
	}

	return dirs
}

func (d machineDir) writeIdentityFiles(s machineSpec) error {
	sum := sha256.Sum256([]byte(s.Region + "/" + s.Machine.ID))
	resolv := ""
	if s.Machine.Resolver.IsValid() {
		resolv = "nameserver " + s.Machine.Resolver.String() + "\n"
	}

	if s.Machine.Domain != "" {
		resolv = "search " + s.Machine.Domain + "\n" + resolv
	}

	etc := filepath.Join(d.upperDir(), "etc")
	if err := makeDir(etc); err != nil {
		return fmt.Errorf("write /etc: %w", err)
	}

	files := map[string]string{
		"hostname":    s.Machine.Hostname + "\n",
		"machine-id":  hex.EncodeToString(sum[:16]) + "\n",
		"hosts":       "127.0.0.1 localhost\n::1 localhost ip6-localhost ip6-loopback\n",
		"resolv.conf": resolv,
	}
	maps.Copy(files, s.Etc)

	for name, text := range files {
		path := filepath.Join(etc, name)
		if err := makeDir(filepath.Dir(path)); err != nil {
			return fmt.Errorf("write /etc: %w", err)
		}

		if err := writeWorldReadable(path, []byte(text)); err != nil {
			return fmt.Errorf("write /etc: %w", err)
		}
	}

	return nil
}

// writeJSON replaces a file atomically.
func writeJSON(path string, v any) error {
	data, err := json.MarshalIndent(v, "", "  ")
	if err != nil {
		return fmt.Errorf("encode %s: %w", path, err)
	}

	if err := os.WriteFile(path+".new", append(data, '\n'), 0o600); err != nil {
		return fmt.Errorf("write %s: %w", path, err)
	}

	if err := os.Rename(path+".new", path); err != nil {
		return fmt.Errorf("write %s: %w", path, err)
	}

	return nil
}

// makeDir creates a directory that every user of a machine may enter.
func makeDir(path string) error {
	return os.MkdirAll(path, 0o755)
}

// writeWorldReadable writes a file that every user of a machine may read.
func writeWorldReadable(path string, data []byte) error {
	return os.WriteFile(path, data, 0o644)
}
