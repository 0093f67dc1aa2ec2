// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/service/ec2"
	"github.com/aws/aws-sdk-go-v2/service/ec2/types"
	"github.com/google/go-cmp/cmp"

	"github.com/slipway-k8s/slipway/internal/machine/etcd"
	"github.com/slipway-k8s/slipway/internal/machine/node"
)

// bodies serves downloads from memory and counts them.
type bodies struct {
	by   map[string][]byte
	gets int
}

func (b *bodies) Open(_ context.Context, url string) (io.ReadCloser, error) {
	b.gets++
	body, ok := b.by[url]
	if !ok {
		return nil, errors.New("no such object")
	}
	return io.NopCloser(bytes.NewReader(body)), nil
}

func sum(body []byte) string {
	s := sha256.Sum256(body)
	return hex.EncodeToString(s[:])
}

func archive(t *testing.T, entries map[string]string) []byte {
	t.Helper()
	var b bytes.Buffer
	z := gzip.NewWriter(&b)
	w := tar.NewWriter(z)
	for name, body := range entries {
		h := &tar.Header{Name: name, Mode: 0o755, Size: int64(len(body)), Typeflag: tar.TypeReg}
		if err := w.WriteHeader(h); err != nil {
			t.Fatal(err)
		}
		if _, err := io.WriteString(w, body); err != nil {
			t.Fatal(err)
		}
	}
	if err := errors.Join(w.Close(), z.Close()); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

func TestUnpackRefusesWhatLeadsOut(t *testing.T) {
	for _, name := range []string{"../evil", "/etc/evil", "a/../../evil"} {
		err := extractTarGz(bytes.NewReader(archive(t, map[string]string{name: "x"})), filepath.Join(t.TempDir(), "d"))
		if err == nil || !strings.Contains(err.Error(), "outside") {
			t.Errorf("%s: got %v", name, err)
		}
	}
}

func FuzzUnpack(f *testing.F) {
	f.Add([]byte("x"))
	f.Fuzz(func(t *testing.T, body []byte) {
		var b bytes.Buffer
		z := gzip.NewWriter(&b)
		_, _ = z.Write(body)
		_ = z.Close()
		dir := t.TempDir()
		_ = extractTarGz(&b, filepath.Join(dir, "d"))
		entries, err := os.ReadDir(dir)
		if err != nil || len(entries) > 1 {
			t.Errorf("something outside: %v %v", entries, err)
		}
	})
}

// TestConvergeTwiceWritesNothing writes a control-plane machine's files twice.
func TestConvergeTwiceWritesNothing(t *testing.T) {
	a := testAgent(t)
	r := &runs{}
	a.Run = r
	once := func() {
		t.Helper()
		if err := a.prepareHost(t.Context()); err != nil {
			t.Fatal(err)
		}
		changed, err := a.writeControlPlane()
		if err != nil {
			t.Fatal(err)
		}
		if err := a.startServices(t.Context(), changed); err != nil {
			t.Fatal(err)
		}
		if err := a.writeStaticPods(); err != nil {
			t.Fatal(err)
		}
		if _, err := WriteHostsFile(a.Root, a.doc.Slots, map[string]string{"a": "10.0.0.1"}); err != nil {
			t.Fatal(err)
		}
	}
	once()
	before := a.Root.Changes()
	if len(before) < 30 {
		t.Errorf("only %d writes the first time: %v", len(before), before)
	}
	once()
	if after := a.Root.Changes(); len(after) != len(before) {
		t.Errorf("the second time wrote %v", after[len(before):])
	}
	checkModes(t, a.Root)
}

// checkModes checks that every key has mode 0600 and is on the tmpfs, and that Kubernetes' files
// have mode 0600 (CIS 1.1, 4.1).
func checkModes(t *testing.T, root *HostFS) {
	t.Helper()
	err := filepath.WalkDir(root.Path("/"), func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() || d.Type()&fs.ModeSymlink != 0 {
			return err
		}
		info, err := d.Info()
		if err != nil {
			return err
		}
		body, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		name := strings.TrimPrefix(path, strings.TrimSuffix(root.Dir, "/"))
		tmpfs := strings.HasPrefix(name, "/run/slipway/")
		if bytes.Contains(body, []byte("PRIVATE KEY")) && (info.Mode().Perm() != 0o600 || !tmpfs) {
			t.Errorf("%s holds a key with mode %o", name, info.Mode().Perm())
		}
		if strings.HasPrefix(name, "/etc/kubernetes/") && name != "/etc/kubernetes/pod.kubeconfig" && info.Mode().Perm() != 0o600 {
			t.Errorf("%s has mode %o, want 600", name, info.Mode().Perm())
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
}

// runs is a Runner that knows which units are active.
type runs struct {
	lines  []string
	active map[string]bool
	blkid  int
}

func (r *runs) Run(ctx context.Context, name string, args ...string) (string, error) {
	if args[0] == "--version" {
		return "nftables v1.0.6 (Lester Gooch #5)\n", nil
	}
	r.lines = append(r.lines, name+" "+strings.Join(args, " "))
	unit := args[len(args)-1]
	switch {
	case name == "systemctl" && args[0] == "is-active":
		if r.active[unit] {
			return "active\n", nil
		}
		return "inactive\n", errors.New("exit status 3")
	case name == "systemctl" && args[0] == "start":
		if r.active == nil {
			r.active = map[string]bool{}
		}
		r.active[unit] = true
	case name == "blkid" && r.blkid != 0:
		err := exec.CommandContext(ctx, "sh", "-c", fmt.Sprint("exit ", r.blkid)).Run()
		return "", fmt.Errorf("blkid: %w", err)
	}
	return "", nil
}

func TestCertificatesAreRenewedAtTwoThirds(t *testing.T) {
	a := testAgent(t)
	if _, err := a.writeControlPlane(); err != nil {
		t.Fatal(err)
	}
	begin := time.Now()
	count := func() int { return len(a.Root.Changes()) }
	for _, c := range []struct {
		after time.Duration
		want  bool
	}{{LeafTTL/2 + time.Hour, false}, {LeafTTL*2/3 + time.Hour, true}} {
		a.Now = func() time.Time { return begin.Add(c.after) }
		before := count()
		if err := a.renewCertificates(); err != nil {
			t.Fatal(err)
		}
		if wrote := count() > before; wrote != c.want {
			t.Errorf("after %s: renewed %v, want %v", c.after, wrote, c.want)
		}
	}
}

func TestHostsBlock(t *testing.T) {
	root := &HostFS{Dir: t.TempDir()}
	if _, err := root.Write(File{Path: "/etc/hosts", Body: []byte("127.0.0.1 localhost"), Mode: 0o644}); err != nil {
		t.Fatal(err)
	}
	slots := []node.Slot{{Name: "a", Host: "etcd-a.demo.internal"}, {Name: "b", Host: "etcd-b.demo.internal"}}
	begin := time.Now()
	machines := []Machine{
		{Slot: "b", Address: "10.0.0.2", State: "running", Launched: begin},
		{Slot: "b", Address: "10.0.0.9", State: "terminated", Launched: begin.Add(time.Hour)},
		{Slot: "b", Address: "10.0.0.3", State: "running", Launched: begin.Add(time.Minute)},
		{Slot: "a", Address: "10.0.0.7", State: "running", Launched: begin},
	}
	for i := range 2 {
		changed, err := WriteHostsFile(root, slots, SlotAddresses(machines, nil, "a", "10.0.0.1"))
		if err != nil || changed != (i == 0) {
			t.Errorf("time %d: changed %v, %v", i, changed, err)
		}
	}
	body, err := root.Read("/etc/hosts")
	if err != nil {
		t.Fatal(err)
	}
	want := "127.0.0.1 localhost\n" + hostsBegin + "\n10.0.0.1 etcd-a.demo.internal\n10.0.0.3 etcd-b.demo.internal\n" + hostsEnd + "\n"
	if diff := cmp.Diff(want, string(body)); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

func TestNodeChanges(t *testing.T) {
	now := time.Now()
	make := func(name, id string, age time.Duration, labels ...string) Node {
		var n Node
		n.Metadata.Name, n.Spec.ProviderID, n.Metadata.CreationTimestamp = name, "aws:///us-east-1a/"+id, now.Add(-age)
		n.Metadata.Labels = map[string]string{}
		for _, l := range labels {
			n.Metadata.Labels[l] = ""
		}
		return n
	}
	foreign := Node{}
	foreign.Metadata.Name = "foreign"
	nodes := []Node{
		make("runs", "i-1", time.Hour, "node-role.kubernetes.io/worker"), make("new", "i-2", 0), make("ended", "i-3", time.Hour),
		make("not seen yet", "i-4", time.Minute), make("forgotten", "i-5", time.Hour), foreign,
	}
	machines := []Machine{
		{ID: "i-1", Name: "runs", State: "running", Role: "worker"}, {ID: "i-2", Name: "new", State: "running", Role: "control-plane"}, {ID: "i-3", State: "terminated"},
	}
	terminated, roles := NodeChanges(nodes, machines, now.Add(-missingInstanceGrace))
	names := []string{}
	for _, n := range terminated {
		names = append(names, n.Metadata.Name)
	}
	if diff := cmp.Diff([]string{"ended", "forgotten", "foreign"}, names); diff != "" {
		t.Errorf("terminated (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff(map[string]string{"new": "node-role.kubernetes.io/control-plane"}, roles); diff != "" {
		t.Errorf("roles (-want +got):\n%s", diff)
	}
}

// fakeEC2 implements the EC2 operations that VolumeMounter uses, with a list of volumes.
type fakeEC2 struct {
	EC2API
	volumes  []types.Volume
	attached []string
}

func (f *fakeEC2) DescribeVolumes(context.Context, *ec2.DescribeVolumesInput, ...func(*ec2.Options)) (*ec2.DescribeVolumesOutput, error) {
	return &ec2.DescribeVolumesOutput{Volumes: f.volumes}, nil
}

func (f *fakeEC2) AttachVolume(_ context.Context, in *ec2.AttachVolumeInput, _ ...func(*ec2.Options)) (*ec2.AttachVolumeOutput, error) {
	f.attached = append(f.attached, *in.VolumeId)
	return &ec2.AttachVolumeOutput{}, nil
}

func slotVolume(id, slot, zone, attached string, created time.Time) types.Volume {
	v := types.Volume{
		VolumeId: &id, AvailabilityZone: &zone, CreateTime: &created, State: types.VolumeStateAvailable,
		Tags: []types.Tag{{Key: new(tagSlot), Value: &slot}},
	}
	if attached != "" {
		v.Attachments = []types.VolumeAttachment{{InstanceId: &attached, State: types.VolumeAttachmentStateAttached}}
	}
	return v
}

func TestMount(t *testing.T) {
	now := time.Now()
	for name, c := range map[string]struct {
		volumes []types.Volume
		known   string
		device  bool
		mounted bool
		blkid   int
		want    string // the volume, or a part of the error
		format  bool
		attach  bool
	}{
		"new volume":           {volumes: []types.Volume{slotVolume("vol-1", "a", "z", "", now)}, device: true, blkid: 2, want: "vol-1", format: true, attach: true},
		"with a file system":   {volumes: []types.Volume{slotVolume("vol-1", "a", "z", "i-me", now)}, device: true, want: "vol-1"},
		"known, wiped":         {volumes: []types.Volume{slotVolume("vol-1", "a", "z", "i-me", now)}, known: "vol-1", device: true, blkid: 2, want: "has no file system"},
		"unreadable":           {volumes: []types.Volume{slotVolume("vol-1", "a", "z", "i-me", now)}, device: true, blkid: 4, want: "detect the file system"},
		"at its predecessor":   {volumes: []types.Volume{slotVolume("vol-1", "a", "z", "i-old", now)}, want: "still attached to i-old"},
		"device not there yet": {volumes: []types.Volume{slotVolume("vol-1", "a", "z", "i-me", now)}, want: "device does not exist"},
		"none":                 {want: "slot a has no volume"},
		"another zone":         {volumes: []types.Volume{slotVolume("vol-1", "a", "y", "", now)}, want: "slot a has no volume"},
		"another slot":         {volumes: []types.Volume{slotVolume("vol-1", "b", "z", "", now)}, want: "slot a has no volume"},
		"the one with data": {
			volumes: []types.Volume{slotVolume("vol-0", "a", "z", "", now.Add(-time.Hour)), slotVolume("vol-1", "a", "z", "i-me", now)},
			known:   "vol-1", device: true, want: "vol-1",
		},
		"the one with data, not an empty one that was created later": {
			volumes: []types.Volume{slotVolume("vol-1", "a", "z", "i-me", now), slotVolume("vol-2", "a", "z", "", now.Add(time.Hour))},
			known:   "vol-1", device: true, want: "vol-1",
		},
		"the older one of two without data": {
			volumes: []types.Volume{slotVolume("vol-0", "a", "z", "", now.Add(time.Hour)), slotVolume("vol-1", "a", "z", "", now)},
			known:   "vol-lost", device: true, blkid: 2, want: "vol-1", format: true, attach: true,
		},
		"mounted": {
			volumes: []types.Volume{slotVolume("vol-1", "a", "z", "i-me", now)},
			known:   "vol-1", mounted: true, want: "vol-1",
		},
		"mounted, and EC2 lists another one": {
			volumes: []types.Volume{slotVolume("vol-2", "a", "z", "", now)},
			known:   "vol-1", mounted: true, want: "EC2 lists only volume vol-2, which is not attached to this machine",
		},
		"mounted, and the one with data is at another machine of the slot": {
			volumes: []types.Volume{slotVolume("vol-1", "a", "z", "i-other", now), slotVolume("vol-2", "a", "z", "i-me", now)},
			known:   "vol-1", mounted: true, want: "vol-2",
		},
		"mounted, and attached to another machine since": {
			volumes: []types.Volume{slotVolume("vol-1", "a", "z", "i-other", now)},
			known:   "vol-1", mounted: true, want: "volume vol-1, which is not attached to this machine",
		},
		"another one than known is mounted": {
			volumes: []types.Volume{slotVolume("vol-2", "a", "z", "i-me", now)},
			known:   "vol-1", mounted: true, want: "vol-2",
		},
	} {
		t.Run(name, func(t *testing.T) {
			root := &HostFS{Dir: t.TempDir()}
			for _, f := range []string{"/proc/self/mountinfo", "/dev/disk/by-id/nvme-Amazon_Elastic_Block_Store_vol1"} {
				if strings.HasPrefix(f, "/dev") && !c.device {
					continue
				}
				file := File{Path: f, Mode: 0o644}
				if c.mounted && f == "/proc/self/mountinfo" {
					file.Body = []byte("36 35 259:1 / " + etcd.DataMount + " rw,noatime - ext4 /dev/nvme1n1 rw\n")
				}
				if _, err := root.Write(file); err != nil {
					t.Fatal(err)
				}
			}
			api, run := &fakeEC2{volumes: c.volumes}, &runs{blkid: c.blkid}
			m := VolumeMounter{Client: EC2Client{EC2: api, Cluster: "demo"}, Root: root, Run: run, Instance: Instance{ID: "i-me", Zone: "z"}, Slot: "a", KnownVolume: c.known}
			got, err := m.Mount(t.Context())
			if err != nil {
				got = err.Error()
			}
			if !strings.Contains(got, c.want) {
				t.Errorf("got %s, want %s", got, c.want)
			}
			all := strings.Join(run.lines, "\n")
			if formatted := strings.Contains(all, "mkfs.ext4"); formatted != c.format {
				t.Errorf("formatted %v, want %v:\n%s", formatted, c.format, all)
			}
			if attached := len(api.attached) > 0; attached != c.attach {
				t.Errorf("attached %v, want %v", api.attached, c.attach)
			}
			if mounted := strings.Contains(all, etcd.DataMount); mounted != (err == nil && !c.mounted) {
				t.Errorf("mounted %v:\n%s", mounted, all)
			}
		})
	}
}
