// SPDX-License-Identifier: Apache-2.0

// Package machine makes the region's instances real: systemd as PID 1 in namespaces of its own over the image, with a
// serial console and block devices, kept by a small supervisor that outlives the region's process. It knows no AWS API
// and does not make the network: it boots into a namespace that it is given.
package machine

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"sync"

	"github.com/slipway-k8s/slipway/internal/region/netspec"
)

// ErrBusy means that a volume cannot be detached yet, because a file system on it is mounted. Try again later.
var ErrBusy = errors.New("volume is in use inside the machine")

// ErrNotFound means that there is no such machine or volume.
var ErrNotFound = errors.New("not known")

// NamespaceProvider gives a machine its network.
type NamespaceProvider interface {
	// EnsureNamespace returns the path of a network namespace that holds the machine's eth0, with address and routes set.
	EnsureNamespace(ctx context.Context, m netspec.Machine) (path string, err error)
}

// A Releaser is a [NamespaceProvider] that takes back what it gave a machine. Terminate calls it once nothing of the machine runs.
type NamespaceReleaser interface {
	Release(ctx context.Context, instanceID string) error
}

// Config is what a Host needs.
type Config struct {
	Region     string                                   // short name of this region on this host, such as r1f3; part of cgroup paths
	Dir        string                                   // the region's folder, such as ~/.cache/slipway/region; on a real disk
	Namespaces NamespaceProvider                        // gives each machine its network namespace
	ImageRoot  func(id string) (root string, err error) // where an image's root file system lies
	Executable string                                   // program whose "region-machine" argument runs Main; empty means the running one
}

// Host runs machines on this computer. Its methods may be called at the same time; calls for one machine queue.
type Host struct {
	cfg Config

	mu    sync.Mutex
	locks map[string]*sync.Mutex
}

// New checks the configuration and makes the region's folders. It touches nothing that runs.
func New(cfg Config) (*Host, error) {
	if cfg.Region == "" || strings.ContainsAny(cfg.Region, "/. ") {
		return nil, fmt.Errorf("machines: region %q: want a short name of letters and digits", cfg.Region)
	}

	dir, err := filepath.Abs(cfg.Dir)
	if err != nil {
		return nil, fmt.Errorf("machines: folder %s: %w", cfg.Dir, err)
	}

	cfg.Dir = dir
	if cfg.Executable == "" {
		cfg.Executable = "/proc/self/exe" // still the running program after it was rebuilt
	}

	h := &Host{cfg: cfg, locks: map[string]*sync.Mutex{}}

	for _, sub := range []string{h.instancesDir(), h.volumesDir(), h.consolesDir()} {
		if err := makeDir(sub); err != nil {
			return nil, fmt.Errorf("machines: make folder: %w", err)
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

// lockID serialises what happens to one machine or volume.
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
		return fmt.Errorf("%q: want an id that begins with %s", id, prefix)
	}

	return nil
}

// Launch boots a machine and returns once its PID 1 runs. A machine that runs already is left alone; one that died
// boots again with the disk it had.
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
	in := h.machineDir(m.ID)
	if in.isAlive() {
		return nil
	}

	if err := h.stopMachine(ctx, m.ID); err != nil { // what a crash may have left running
		return err
	}

	if err := raiseSysctls(h.cfg.Dir); err != nil {
		return err
	}

	root, err := h.cfg.ImageRoot(m.Image)
	if err != nil {
		return fmt.Errorf("image %s: %w", m.Image, err)
	}

	ns, err := h.cfg.Namespaces.EnsureNamespace(ctx, m)
	if err != nil {
		return fmt.Errorf("network: %w", err)
	}

	s := machineSpec{
		Region:  h.cfg.Region,
		Machine: m,
		Image:   root,
		Netns:   ns,
		Volumes: h.volumesDir(),
	}
	if err := in.prepareDisk(s); err != nil {
		return err
	}

	if err := h.connectVolumes(m.ID); err != nil {
		return err
	}

	return h.startSupervisor(ctx, in)
}

// Reboot ends a machine the hard way and boots it again with the same disk, address and volumes.
func (h *Host) Reboot(ctx context.Context, id string) error {
	defer h.lockID(id)()
	in := h.machineDir(id)
	s, err := in.readSpec()
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

// Alive tells whether a machine's PID 1 runs. It holds across restarts of the region's process.
func (h *Host) Alive(id string) bool { return h.machineDir(id).isAlive() }

// Console returns the end of what the machine wrote to its serial console, at most 1 MiB.
func (h *Host) Console(id string) ([]byte, error) {
	in := h.machineDir(id)
	var out []byte
	names := []string{in.consoleLog() + ".1", in.consoleLog()}
	if _, err := os.Stat(h.savedConsolePath(id)); err == nil {
		names = []string{h.savedConsolePath(id)}
	}

	for _, name := range names {
		data, err := os.ReadFile(name)
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return nil, fmt.Errorf("console of %s: %w", id, err)
		}

		out = append(out, data...)
	}

	return out, nil
}

// Terminate ends a machine and removes all that it had, except its volumes, which are detached. It may be called again
// after any interruption, and for machines that never were.
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

func (h *Host) terminateLocked(ctx context.Context, id string) error {
	if err := h.stopMachine(ctx, id); err != nil {
		return err
	}

	if err := h.detachVolumes(ctx, id); err != nil {
		return err
	}

	if r, ok := h.cfg.Namespaces.(NamespaceReleaser); ok {
		if err := r.Release(ctx, id); err != nil {
			return fmt.Errorf("release its network: %w", err)
		}
	}

	if err := h.saveConsole(id); err != nil {
		return fmt.Errorf("keep its console: %w", err)
	}

	if err := os.RemoveAll(h.machineDir(id).path); err != nil {
		return fmt.Errorf("remove its disk: %w", err)
	}

	return nil
}

// stopMachine ends every process of a machine and its supervisor and removes its cgroups. The disk stays.
func (h *Host) stopMachine(ctx context.Context, id string) error {
	in := h.machineDir(id)
	if err := in.killProcesses(ctx); err != nil {
		return err
	}

	if err := killSupervisors(ctx, in.path); err != nil {
		return err
	}

	groups, err := listHierarchies()
	if err != nil {
		return err
	}

	return removeCgroups(ctx, groups, filepath.Join(cgroupTop, h.cfg.Region, id))
}

// machineDir is the folder of one machine: its specification, disk, console and identity of its processes.
type machineDir struct{ path string }

func (in machineDir) specFile() string   { return filepath.Join(in.path, "spec.json") }
func (in machineDir) pidFile() string    { return filepath.Join(in.path, "pid.json") }
func (in machineDir) consoleLog() string { return filepath.Join(in.path, "console.log") }
func (in machineDir) upperDir() string   { return filepath.Join(in.path, "upper") }
func (in machineDir) workDir() string    { return filepath.Join(in.path, "work") }
func (in machineDir) rootDir() string    { return filepath.Join(in.path, "root") }
func (in machineDir) dataRoot() string   { return filepath.Join(in.path, "data") }

// machineSpec is what the supervisor needs to boot a machine.
type machineSpec struct {
	Region  string          `json:"region"`
	Machine netspec.Machine `json:"machine"`
	Image   string          `json:"image"`   // root of the image
	Netns   string          `json:"netns"`   // path of its network namespace
	Volumes string          `json:"volumes"` // folder that says which volumes are attached
}

func (in machineDir) readSpec() (machineSpec, error) {
	data, err := os.ReadFile(in.specFile())
	if errors.Is(err, fs.ErrNotExist) {
		return machineSpec{}, ErrNotFound
	}

	if err != nil {
		return machineSpec{}, fmt.Errorf("read specification: %w", err)
	}

	var s machineSpec
	if err := json.Unmarshal(data, &s); err != nil {
		return machineSpec{}, fmt.Errorf("read specification %s: %w", in.specFile(), err)
	}

	return s, nil
}

// prepareDisk writes the machine's folder. What is particular to the machine goes into its own layer, before the first boot
// only: afterwards the files are the machine's.
func (in machineDir) prepareDisk(s machineSpec) error {
	for _, dir := range append([]string{in.upperDir(), in.workDir(), in.rootDir()}, in.dataDirs()...) {
		if err := makeDir(dir); err != nil {
			return fmt.Errorf("make its disk: %w", err)
		}
	}

	// A layer mounted "volatile" says so until it is unmounted in order, which a killed machine never does.
	if err := os.RemoveAll(filepath.Join(in.workDir(), "work", "incompat")); err != nil {
		return fmt.Errorf("make its disk: %w", err)
	}

	if _, err := os.Stat(in.specFile()); errors.Is(err, fs.ErrNotExist) {
		if err := in.writeIdentityFiles(s); err != nil {
			return err
		}
	}

	return writeJSON(in.specFile(), s)
}

// boundDirs are the folders that must lie on a real file system: containerd's overlays cannot lie on an overlay.
func boundDirs() []string { return []string{"containerd", "kubelet", "slipway"} }

func (in machineDir) dataDirs() []string {
	var dirs []string
	for _, name := range boundDirs() {
		dirs = append(dirs, filepath.Join(in.dataRoot(), name))
	}

	return dirs
}

func (in machineDir) writeIdentityFiles(s machineSpec) error {
	sum := sha256.Sum256([]byte(s.Region + "/" + s.Machine.ID))
	resolv := ""
	if s.Machine.Resolver.IsValid() {
		resolv = "nameserver " + s.Machine.Resolver.String() + "\n"
	}

	if s.Machine.Domain != "" {
		resolv = "search " + s.Machine.Domain + "\n" + resolv
	}

	etc := filepath.Join(in.upperDir(), "etc")
	if err := makeDir(etc); err != nil {
		return fmt.Errorf("write its /etc: %w", err)
	}

	for name, text := range map[string]string{
		"hostname":    s.Machine.Hostname + "\n",
		"machine-id":  hex.EncodeToString(sum[:16]) + "\n",
		"hosts":       "127.0.0.1 localhost\n::1 localhost ip6-localhost ip6-loopback\n",
		"resolv.conf": resolv,
	} {
		if err := writeWorldReadable(filepath.Join(etc, name), []byte(text)); err != nil {
			return fmt.Errorf("write its /etc: %w", err)
		}
	}

	return nil
}

// writeJSON replaces a file so that a reader sees the old or the new.
func writeJSON(path string, v any) error {
	data, err := json.MarshalIndent(v, "", "  ")
	if err != nil {
		return fmt.Errorf("encode %s: %w", path, err)
	}

	if err := os.WriteFile(path+".new", append(data, '\n'), 0o600); err != nil {
		return fmt.Errorf("write: %w", err)
	}

	if err := os.Rename(path+".new", path); err != nil {
		return fmt.Errorf("write: %w", err)
	}

	return nil
}

// makeDir makes a folder that every user of a machine may walk through, unlike this one's own state.
func makeDir(path string) error {
	return os.MkdirAll(path, 0o755)
}

// writeWorldReadable writes a file that every user of a machine may read.
func writeWorldReadable(path string, data []byte) error {
	return os.WriteFile(path, data, 0o644)
}
