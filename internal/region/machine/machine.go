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

	"github.com/slipway-k8s/slipway/internal/region/fabric"
)

// ErrBusy means that a volume cannot be detached yet, because a file system on it is mounted. Try again later.
var ErrBusy = errors.New("volume is in use inside the machine")

// ErrUnknown means that there is no such machine or volume.
var ErrUnknown = errors.New("not known")

// Wirer gives a machine its network.
type Wirer interface {
	// Namespace returns the path of a network namespace that holds the machine's eth0, with address and routes set.
	Namespace(ctx context.Context, m fabric.Machine) (path string, err error)
}

// A Releaser is a [Wirer] that takes back what it gave a machine. Terminate calls it once nothing of the machine runs.
type Releaser interface {
	Release(ctx context.Context, instanceID string) error
}

// Config is what a Host needs.
type Config struct {
	Region string                                   // short name of this region on this host, such as r1f3; part of cgroup paths
	Dir    string                                   // the region's folder, such as ~/.cache/slipway/region; on a real disk
	Wirer  Wirer                                    // gives each machine its network namespace
	Image  func(id string) (root string, err error) // where an image's root file system lies
	Self   string                                   // program whose "region-machine" argument runs Main; empty means the running one
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
	if cfg.Self == "" {
		cfg.Self = "/proc/self/exe" // still the running program after it was rebuilt
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
func (h *Host) instance(id string) instance {
	return instance{dir: filepath.Join(h.instancesDir(), id)}
}

// lock serialises what happens to one machine or volume.
func (h *Host) lock(id string) func() {
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
func (h *Host) Launch(ctx context.Context, m fabric.Machine) error {
	if err := validID(m.ID, "i-"); err != nil {
		return fmt.Errorf("launch machine: %w", err)
	}
	defer h.lock(m.ID)()
	if err := h.launch(ctx, m); err != nil {
		return fmt.Errorf("launch machine %s: %w", m.ID, err)
	}
	return nil
}

func (h *Host) launch(ctx context.Context, m fabric.Machine) error {
	in := h.instance(m.ID)
	if in.alive() {
		return nil
	}
	if err := h.stop(ctx, m.ID); err != nil { // what a crash may have left running
		return err
	}
	if err := tuneHost(h.cfg.Dir); err != nil {
		return err
	}
	root, err := h.cfg.Image(m.Image)
	if err != nil {
		return fmt.Errorf("image %s: %w", m.Image, err)
	}
	ns, err := h.cfg.Wirer.Namespace(ctx, m)
	if err != nil {
		return fmt.Errorf("network: %w", err)
	}
	s := spec{Region: h.cfg.Region, Machine: m, Image: root, Netns: ns, Volumes: h.volumesDir()}
	if err := in.prepare(s); err != nil {
		return err
	}
	if err := h.connectVolumes(m.ID); err != nil {
		return err
	}
	return h.spawn(ctx, in)
}

// Reboot ends a machine the hard way and boots it again with the same disk, address and volumes.
func (h *Host) Reboot(ctx context.Context, id string) error {
	defer h.lock(id)()
	in := h.instance(id)
	s, err := in.spec()
	if err != nil {
		return fmt.Errorf("reboot machine %s: %w", id, err)
	}
	if err := h.stop(ctx, id); err != nil {
		return fmt.Errorf("reboot machine %s: %w", id, err)
	}
	if err := h.launch(ctx, s.Machine); err != nil {
		return fmt.Errorf("reboot machine %s: %w", id, err)
	}
	return nil
}

// Alive tells whether a machine's PID 1 runs. It holds across restarts of the region's process.
func (h *Host) Alive(id string) bool { return h.instance(id).alive() }

// Console returns the end of what the machine wrote to its serial console, at most 1 MiB.
func (h *Host) Console(id string) ([]byte, error) {
	in := h.instance(id)
	var out []byte
	names := []string{in.consoleLog() + ".1", in.consoleLog()}
	if _, err := os.Stat(h.pastConsole(id)); err == nil {
		names = []string{h.pastConsole(id)}
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
	defer h.lock(id)()
	if err := h.terminate(ctx, id); err != nil {
		return fmt.Errorf("terminate machine %s: %w", id, err)
	}
	return nil
}

func (h *Host) terminate(ctx context.Context, id string) error {
	if err := h.stop(ctx, id); err != nil {
		return err
	}
	if err := h.detachAll(ctx, id); err != nil {
		return err
	}
	if r, ok := h.cfg.Wirer.(Releaser); ok {
		if err := r.Release(ctx, id); err != nil {
			return fmt.Errorf("release its network: %w", err)
		}
	}
	if err := h.keepConsole(id); err != nil {
		return fmt.Errorf("keep its console: %w", err)
	}
	if err := os.RemoveAll(h.instance(id).dir); err != nil {
		return fmt.Errorf("remove its disk: %w", err)
	}
	return nil
}

// stop ends every process of a machine and its supervisor and removes its cgroups. The disk stays.
func (h *Host) stop(ctx context.Context, id string) error {
	in := h.instance(id)
	if err := in.kill(ctx); err != nil {
		return err
	}
	if err := killSupervisors(ctx, in.dir); err != nil {
		return err
	}
	groups, err := hierarchies()
	if err != nil {
		return err
	}
	return removeCgroups(ctx, groups, filepath.Join(cgroupTop, h.cfg.Region, id))
}

// instance is the folder of one machine: its specification, disk, console and identity of its processes.
type instance struct{ dir string }

func (in instance) specFile() string   { return filepath.Join(in.dir, "spec.json") }
func (in instance) pidFile() string    { return filepath.Join(in.dir, "pid.json") }
func (in instance) consoleLog() string { return filepath.Join(in.dir, "console.log") }
func (in instance) upper() string      { return filepath.Join(in.dir, "upper") }
func (in instance) work() string       { return filepath.Join(in.dir, "work") }
func (in instance) root() string       { return filepath.Join(in.dir, "root") }
func (in instance) data() string       { return filepath.Join(in.dir, "data") }

// spec is what the supervisor needs to boot a machine.
type spec struct {
	Region  string         `json:"region"`
	Machine fabric.Machine `json:"machine"`
	Image   string         `json:"image"`   // root of the image
	Netns   string         `json:"netns"`   // path of its network namespace
	Volumes string         `json:"volumes"` // folder that says which volumes are attached
}

func (in instance) spec() (spec, error) {
	data, err := os.ReadFile(in.specFile())
	if errors.Is(err, fs.ErrNotExist) {
		return spec{}, ErrUnknown
	}
	if err != nil {
		return spec{}, fmt.Errorf("read specification: %w", err)
	}
	var s spec
	if err := json.Unmarshal(data, &s); err != nil {
		return spec{}, fmt.Errorf("read specification %s: %w", in.specFile(), err)
	}
	return s, nil
}

// prepare writes the machine's folder. What is particular to the machine goes into its own layer, before the first boot
// only: afterwards the files are the machine's.
func (in instance) prepare(s spec) error {
	for _, dir := range append([]string{in.upper(), in.work(), in.root()}, in.dataDirs()...) {
		if err := makeDir(dir); err != nil {
			return fmt.Errorf("make its disk: %w", err)
		}
	}
	// A layer mounted "volatile" says so until it is unmounted in order, which a killed machine never does.
	if err := os.RemoveAll(filepath.Join(in.work(), "work", "incompat")); err != nil {
		return fmt.Errorf("make its disk: %w", err)
	}
	if _, err := os.Stat(in.specFile()); errors.Is(err, fs.ErrNotExist) {
		if err := in.personalise(s); err != nil {
			return err
		}
	}
	return writeJSON(in.specFile(), s)
}

// bound are the folders that must lie on a real file system: containerd's overlays cannot lie on an overlay.
func bound() []string { return []string{"containerd", "kubelet", "slipway"} }

func (in instance) dataDirs() []string {
	var dirs []string
	for _, name := range bound() {
		dirs = append(dirs, filepath.Join(in.data(), name))
	}
	return dirs
}

func (in instance) personalise(s spec) error {
	sum := sha256.Sum256([]byte(s.Region + "/" + s.Machine.ID))
	resolv := ""
	if s.Machine.Resolver.IsValid() {
		resolv = "nameserver " + s.Machine.Resolver.String() + "\n"
	}
	if s.Machine.Domain != "" {
		resolv = "search " + s.Machine.Domain + "\n" + resolv
	}
	etc := filepath.Join(in.upper(), "etc")
	if err := makeDir(etc); err != nil {
		return fmt.Errorf("write its /etc: %w", err)
	}
	for name, text := range map[string]string{
		"hostname":    s.Machine.Hostname + "\n",
		"machine-id":  hex.EncodeToString(sum[:16]) + "\n",
		"hosts":       "127.0.0.1 localhost\n::1 localhost ip6-localhost ip6-loopback\n",
		"resolv.conf": resolv,
	} {
		if err := writeShared(filepath.Join(etc, name), []byte(text)); err != nil {
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
	return os.MkdirAll(path, 0o755) //nolint:gosec // see above; the caller says what for
}

// writeShared writes a file that every user of a machine may read.
func writeShared(path string, data []byte) error {
	return os.WriteFile(path, data, 0o644) //nolint:gosec // see above
}
