// SPDX-License-Identifier: Apache-2.0

package machine_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"net"
	"net/http"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/slipway-k8s/slipway/internal/region/image"
	"github.com/slipway-k8s/slipway/internal/region/machine"
	"github.com/slipway-k8s/slipway/internal/region/netspec"
)

// The test program is also the supervisor, like the slipway program.
func TestMain(m *testing.M) {
	if len(os.Args) > 1 && os.Args[1] == machine.SupervisorCommand {
		os.Exit(machine.Main(os.Args[2:], os.Stderr))
	}
	if len(os.Args) > 1 && os.Args[1] == "launch-and-die" {
		launchAndDie(os.Args[2])
	}
	os.Exit(m.Run())
}

// orphan is the input of the process that dies after a launch.
type orphan struct {
	Region, Dir, Root, Netns string
	Machine                  netspec.Machine
}

// EnsureNamespace returns the namespace that was created for the machine.
func (o orphan) EnsureNamespace(context.Context, netspec.Machine) (string, error) {
	return o.Netns, nil
}

// launchAndDie launches a machine and exits at once.
func launchAndDie(text string) {
	var o orphan
	if err := json.Unmarshal([]byte(text), &o); err != nil {
		panic(err)
	}
	h, err := machine.New(machine.Config{Region: o.Region, Dir: o.Dir, Namespaces: o, ImageRoot: func(string) (string, error) { return o.Root, nil }})
	if err != nil {
		panic(err)
	}
	if err := h.Launch(context.Background(), o.Machine); err != nil {
		panic(err)
	}
	_ = unix.Kill(os.Getpid(), unix.SIGKILL)
}

// bench is a host with its own directory, and one network namespace per machine with a metadata
// service in it.
type bench struct {
	t      *testing.T
	host   *machine.Host
	region string
	dir    string
	img    image.Image
	data   string // user data of every machine
	spaces map[string]string
}

func newBench(t *testing.T, userData string) *bench {
	t.Helper()
	base := cacheDir(t)
	img, err := image.Build(t.Context(), image.Options{CacheDir: filepath.Join(base, "image"), Arch: runtime.GOARCH})
	if err != nil {
		t.Fatal(err)
	}
	return newBenchOf(t, base, img, userData)
}

// cacheDir returns the folder of the image and of the machines. It skips t if machines cannot run.
func cacheDir(t *testing.T) string {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("SKIPPED: real machines need root")
	}
	base, err := os.UserCacheDir()
	if err != nil {
		t.Fatal(err)
	}
	if dir := os.Getenv("SLIPWAY_CACHE"); dir != "" {
		return dir
	}
	return filepath.Join(base, "slipway")
}

// newBenchOf returns a bench whose machines boot from an image.
func newBenchOf(t *testing.T, base string, img image.Image, userData string) *bench {
	t.Helper()
	dir, err := os.MkdirTemp(base, "test-machine-") //nolint:usetesting // overlays need a real disk; /tmp may be a tmpfs
	if err != nil {
		t.Fatal(err)
	}
	b := &bench{t: t, region: "t" + strings.TrimPrefix(filepath.Base(dir), "test-machine-"), dir: dir, img: img, data: userData, spaces: map[string]string{}}
	b.host, err = machine.New(machine.Config{Region: b.region, Dir: filepath.Join(dir, "region"), Namespaces: b, ImageRoot: b.root})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(b.clean)
	return b
}

func (b *bench) root(id string) (string, error) {
	if id != b.img.ID {
		return "", fmt.Errorf("no image %s", id)
	}
	return b.img.Root, nil
}

func (b *bench) clean() {
	if err := b.host.Destroy(context.Background()); err != nil {
		b.t.Errorf("destroy: %v", err)
	}
	if left, _ := filepath.Glob("/run/netns/slwt-" + b.region + "-*"); len(left) > 0 {
		b.t.Errorf("network namespaces left: %v", left)
	}
	if err := os.RemoveAll(b.dir); err != nil {
		b.t.Errorf("remove %s: %v", b.dir, err)
	}
}

// EnsureNamespace creates a namespace with an eth0 and a metadata service on the loopback
// interface.
func (b *bench) EnsureNamespace(ctx context.Context, m netspec.Machine) (string, error) {
	if path := b.spaces[m.ID]; path != "" {
		return path, nil
	}
	name := "slwt-" + b.region + "-" + m.ID
	for _, args := range [][]string{
		{"netns", "add", name},
		{"-n", name, "link", "set", "lo", "up"},
		{"-n", name, "address", "add", "169.254.169.254/32", "dev", "lo"},
		{"-n", name, "link", "add", "eth0", "type", "veth", "peer", "name", "far"},
		{"-n", name, "address", "add", m.Iface.Addr.String() + "/24", "dev", "eth0"},
		{"-n", name, "link", "set", "eth0", "up"},
		{"-n", name, "link", "set", "far", "up"},
	} {
		if out, err := exec.CommandContext(ctx, "ip", args...).CombinedOutput(); err != nil {
			return "", fmt.Errorf("ip %v: %w: %s", args, err, out)
		}
	}
	path := "/run/netns/" + name
	b.spaces[m.ID] = path
	return path, b.serveMetadata(path, m)
}

// Release removes a machine's namespace. It succeeds if there is none.
func (b *bench) Release(ctx context.Context, id string) error {
	path := "/run/netns/slwt-" + b.region + "-" + id
	if _, err := os.Stat(path); errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	delete(b.spaces, id)
	if out, err := exec.CommandContext(ctx, "ip", "netns", "delete", filepath.Base(path)).CombinedOutput(); err != nil {
		return fmt.Errorf("delete network namespace: %w: %s", err, out)
	}
	return nil
}

func (b *bench) serveMetadata(path string, m netspec.Machine) error {
	listening := make(chan error)
	go func() {
		runtime.LockOSThread() // never unlocked: the thread ends with the goroutine, and the namespace's socket stays
		ns, err := os.Open(path)
		if err == nil {
			err = unix.Setns(int(ns.Fd()), unix.CLONE_NEWNET)
			ns.Close()
		}
		if err != nil {
			listening <- err
			return
		}
		l, err := net.Listen("tcp4", "169.254.169.254:80")
		listening <- err
		if err == nil {
			server := &http.Server{Handler: b.metadata(m), ReadHeaderTimeout: time.Second}
			b.t.Cleanup(func() { server.Close() })
			go server.Serve(l)
		}
	}()
	return <-listening
}

// metadata is an IMDSv2 with the values that cloud-init reads. Without an instance identity,
// cloud-init would retry for a minute.
func (b *bench) metadata(m netspec.Machine) http.Handler {
	mac := "02:00:00:00:00:01"
	name := m.Hostname + "." + m.Domain
	facts := map[string]string{
		"meta-data/instance-id": m.ID, "meta-data/ami-id": m.Image, "meta-data/local-hostname": name, "meta-data/hostname": name,
		"meta-data/local-ipv4": m.Iface.Addr.String(), "meta-data/instance-type": "m7i.large", "meta-data/mac": mac,
		"meta-data/network/interfaces/macs/" + mac + "/device-number": "0",
		"meta-data/network/interfaces/macs/" + mac + "/local-ipv4s":   m.Iface.Addr.String(),
		"dynamic/instance-identity/document":                          `{"instanceId":"` + m.ID + `","region":"us-east-1"}`,
		"user-data":                                                   b.data,
	}
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_, rest, _ := strings.Cut(strings.TrimPrefix(r.URL.Path, "/"), "/")
		if r.Method == http.MethodPut && rest == "api/token" {
			fmt.Fprint(w, "token")
			return
		}
		if r.Header.Get("X-Aws-Ec2-Metadata-Token") != "token" {
			w.WriteHeader(http.StatusUnauthorized)
			return
		}
		text, ok := facts[strings.TrimSuffix(rest, "/")]
		if !ok {
			text = listing(facts, strings.TrimSuffix(rest, "/")+"/")
		}
		if text == "" {
			w.WriteHeader(http.StatusNotFound)
		}
		fmt.Fprint(w, text)
	})
}

// listing returns the entries below a prefix without duplicates, directories with a slash.
func listing(facts map[string]string, prefix string) string {
	names := map[string]bool{}
	for path := range facts {
		if below, ok := strings.CutPrefix(path, prefix); ok {
			name, _, deeper := strings.Cut(below, "/")
			if deeper {
				name += "/"
			}
			names[name] = true
		}
	}
	return strings.Join(slices.Sorted(maps.Keys(names)), "\n")
}

func (b *bench) machine(n int) netspec.Machine {
	addr := netip.AddrFrom4([4]byte{10, 0, 0, byte(10 + n)})
	return netspec.Machine{
		ID: fmt.Sprintf("i-%017x", n), Image: b.img.ID, Hostname: fmt.Sprintf("ip-10-0-0-%d", 10+n), Domain: "ec2.internal",
		Iface: netspec.Interface{Addr: addr}, Resolver: netip.MustParseAddr("127.0.0.1"), VCPUs: 2, MemoryMB: 4096,
	}
}

func (b *bench) launch(n int) netspec.Machine {
	b.t.Helper()
	m := b.machine(n)
	if err := b.host.Launch(b.t.Context(), m); err != nil {
		b.t.Fatal(err)
	}
	return m
}

// pid finds a machine's PID 1 on the host by its cgroup.
func (b *bench) pid(id string) int {
	b.t.Helper()
	data, err := os.ReadFile(filepath.Join(b.dir, "region/instances", id, "pid.json"))
	if err != nil {
		b.t.Fatal(err)
	}
	_, rest, _ := strings.Cut(string(data), `"pid": `)
	number, _, _ := strings.Cut(rest, ",")
	pid, err := strconv.Atoi(number)
	if err != nil {
		b.t.Fatal(err)
	}
	return pid
}

// space creates a machine's network namespace before its launch.
func (b *bench) space(m netspec.Machine) string {
	b.t.Helper()
	path, err := b.EnsureNamespace(b.t.Context(), m)
	if err != nil {
		b.t.Fatal(err)
	}
	return path
}

func (b *bench) awaitRunning(id string) {
	b.t.Helper()
	b.await(id, "test $(systemctl is-system-running) = running || { systemctl --failed --no-pager; systemctl list-jobs; false; }", 2*time.Minute)
}

// run runs a shell script inside a machine for at most two minutes. The error of a script that
// hangs contains the script.
func (b *bench) run(id, script string) (string, error) {
	ctx, cancel := context.WithTimeout(b.t.Context(), 2*time.Minute)
	defer cancel()
	args := []string{"-t", strconv.Itoa(b.pid(id)), "-m", "-u", "-i", "-n", "-p", "-C", "-r", "-w", "/bin/sh", "-c", script}
	cmd := exec.CommandContext(ctx, "nsenter", args...)
	cmd.WaitDelay = time.Second // its child processes may keep the output open
	out, err := cmd.CombinedOutput()
	return strings.TrimSpace(string(out)), errors.Join(err, ctx.Err())
}

func (b *bench) mustRun(id, script string) string {
	b.t.Helper()
	out, err := b.run(id, script)
	if err != nil {
		b.t.Fatalf("in %s: %s: %v\n%s", id, script, err, out)
	}
	return out
}

// await waits until a script in the machine succeeds.
func (b *bench) await(id, script string, limit time.Duration) {
	b.t.Helper()
	begin := time.Now()
	for {
		out, err := b.run(id, script)
		if err == nil {
			return
		}
		if time.Since(begin) > limit {
			console, _ := b.host.Console(id)
			b.t.Fatalf("in %s: %s: not within %s: %v\n%s\nconsole: %s", id, script, limit, err, out, console)
		}
		time.Sleep(50 * time.Millisecond)
	}
}
