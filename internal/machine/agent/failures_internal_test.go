// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/service/ec2"
	"github.com/aws/aws-sdk-go-v2/service/ec2/types"

	"github.com/slipway-k8s/slipway/internal/lib/sleep"
	"github.com/slipway-k8s/slipway/internal/lib/store"
	"github.com/slipway-k8s/slipway/internal/machine/etcd"
	"github.com/slipway-k8s/slipway/internal/machine/kube"
	"github.com/slipway-k8s/slipway/internal/machine/node"
)

// awayEC2 fails all requests while away is set.
type awayEC2 struct {
	fakeEC2
	away bool
}

func (f *awayEC2) DescribeVolumes(ctx context.Context, in *ec2.DescribeVolumesInput, opts ...func(*ec2.Options)) (*ec2.DescribeVolumesOutput, error) {
	if f.away {
		return nil, errors.New("RequestLimitExceeded")
	}
	return f.fakeEC2.DescribeVolumes(ctx, in, opts...)
}

// TestMemberRestartsWithoutEC2 restarts the agent of a running member while EC2 is unavailable. The
// volume has data, so etcd starts; the volume's id is found and recorded later.
func TestMemberRestartsWithoutEC2(t *testing.T) {
	a := testAgent(t)
	api := &awayEC2{away: true}
	api.volumes = []types.Volume{slotVolume("vol-1", "a", a.instance.Zone, a.instance.ID, time.Now())}
	notes := store.NewFileStore(t.TempDir())
	a.EC2, a.Run, a.Store = api, &runs{}, func(string) (store.Store, error) { return notes, nil }
	for _, f := range []File{
		{Path: "/proc/self/mountinfo", Body: []byte("1 2 259:1 / " + etcd.DataMount + " rw\n")}, {Path: etcd.DataDir + "/member/wal"},
	} {
		f.Mode = 0o644
		if _, err := a.Root.Write(f); err != nil {
			t.Fatal(err)
		}
	}
	m, err := a.newEtcdMember()
	if err != nil {
		t.Fatal(err)
	}
	if err := a.mountEtcdVolume(t.Context(), m); err != nil {
		t.Fatal(err)
	}
	if err := m.decideAndAct(t.Context()); err != nil {
		t.Errorf("etcd is not started: %v", err)
	}
	api.away = false
	if err := m.recordJoined(t.Context()); err != nil {
		t.Fatal(err)
	}
	if have, err := m.readJoinedRecord(t.Context()); err != nil || have.Volume != "vol-1" {
		t.Errorf("noted volume %q, %v; want vol-1", have.Volume, err)
	}
}

// awayStore fails all reads while S3 is unavailable.
type awayStore struct {
	store.Store
	away bool
}

func (s *awayStore) Get(ctx context.Context, key string) (store.Object, error) {
	if s.away {
		return store.Object{}, errors.New("503 Service Unavailable")
	}
	return s.Store.Get(ctx, key)
}

func (s *awayStore) List(ctx context.Context, prefix string) ([]string, error) {
	if s.away {
		return nil, errors.New("503 Service Unavailable")
	}
	return s.Store.List(ctx, prefix)
}

// TestMemberWithoutS3: while S3 is unavailable, a member with data starts, and one without data waits: nobody knows whether the cluster
// was bootstrapped. When S3 answers, a member whose data is of before a restoration is stopped.
func TestMemberWithoutS3(t *testing.T) {
	for name, hasData := range map[string]bool{"with data": true, "without data": false} {
		a := testAgent(t)
		runner := &killedRunner{killer: &killer{left: 1000}}
		a.Run = runner
		notes := &awayStore{Store: store.NewFileStore(t.TempDir()), away: true}
		slot, _ := a.doc.Slot("a")
		m := &etcdMember{agent: a, slot: slot, store: notes, volume: "vol-1"}
		writeMountinfo(t, a, true)
		if hasData {
			if err := a.Root.MakeDir(etcd.DataDir+"/member", 0o700, 0); err != nil {
				t.Fatal(err)
			}
		}
		err := m.decideAndAct(t.Context())
		started := slices.ContainsFunc(runner.calls, func(c string) bool { return c == "systemctl start --no-block etcd" })
		if started != hasData || (err == nil) != hasData {
			t.Errorf("%s: %v, ran %q", name, err, runner.calls)
		}
		if !hasData {
			continue
		}

		notes.away = false
		signGeneration(t, a, notes, etcd.Generation{Number: 2, Slot: "b", Backup: "b1", Token: "t"})
		_ = m.decideAndAct(t.Context()) // it waits for the restoration then
		if m.hasData() || !a.Root.Exists(asideDir+"/member") || !slices.Contains(runner.calls, "systemctl stop etcd") {
			t.Errorf("when S3 answers: ran %q", runner.calls)
		}
	}
}

// console records the reports.
type console struct{ strings.Builder }

func (*console) Close() error { return nil }

// TestUnknownSlotIsReported checks that a machine whose slot is not in its document reports it.
func TestUnknownSlotIsReported(t *testing.T) {
	a := testAgent(t)
	var out console
	a.Report.Open = func() (io.WriteCloser, error) { return &out, nil }
	a.Boot.Slot = "z"
	if err := a.convergeControlPlane(t.Context()); err == nil || !strings.Contains(out.String(), `no slot \"z\"`) {
		t.Errorf("ended with %v, reported %s", err, out.String())
	}
}

// TestMountLeavesWhatGoes checks that volumes that EC2 is deleting or has lost are ignored.
func TestMountLeavesWhatGoes(t *testing.T) {
	now := time.Now()
	for _, state := range []types.VolumeState{types.VolumeStateDeleting, types.VolumeStateDeleted, types.VolumeStateError} {
		old := slotVolume("vol-0", "a", "z", "", now.Add(-time.Hour))
		old.State = state
		m := VolumeMounter{
			Client:   EC2Client{EC2: &fakeEC2{volumes: []types.Volume{old, slotVolume("vol-1", "a", "z", "", now)}}},
			Instance: Instance{ID: "i-me", Zone: "z"}, Slot: "a",
		}
		if got, err := m.findVolume(t.Context()); err != nil || got.ID != "vol-1" {
			t.Errorf("%s: chose %q, %v; want vol-1", state, got.ID, err)
		}
	}
}

// TestTornPairIsRenewed simulates an agent that stopped after writing a key and before writing its
// certificate.
func TestTornPairIsRenewed(t *testing.T) {
	a := testAgent(t)
	if err := a.renewCertificates(); err != nil {
		t.Fatal(err)
	}
	p := controlPlanePairs(a.doc, a.Boot, a.instance, etcdUID)[0]
	if needsRenewal(a.Root, p, a.Now()) {
		t.Fatal("due immediately after it was issued")
	}
	key, _, err := issueCertificate(a.bundle, p, a.Now())
	if err != nil {
		t.Fatal(err)
	}
	if _, err := a.Root.Write(File{Path: p.path + ".key", Body: key, Mode: 0o600}); err != nil {
		t.Fatal(err)
	}
	if !needsRenewal(a.Root, p, a.Now()) {
		t.Error("a certificate of another key is taken for good")
	}
}

// stalls is an Opener whose downloads never end.
type stalls struct{ opened int }

func (s *stalls) Open(ctx context.Context, _ string) (io.ReadCloser, error) {
	s.opened++
	r, w := io.Pipe()
	context.AfterFunc(ctx, func() { w.CloseWithError(ctx.Err()) })
	return r, nil
}

// TestStalledDownloadIsTriedAgain checks that a download without data is reported and retried.
func TestStalledDownloadIsTriedAgain(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()
	open := &stalls{}
	var told []string
	f := Fetcher{
		Root: &HostFS{Dir: t.TempDir()}, Open: open, StallTimeout: 20 * time.Millisecond,
		OnRetry: func(err error) { told = append(told, err.Error()) },
		Wait: func(context.Context, time.Duration) error {
			if open.opened == 2 {
				return errors.New("enough")
			}
			return nil
		},
	}
	_, err := f.FetchAll(ctx, []node.File{{Name: "kubelet", URL: "https://example.com/kubelet", SHA256: sum(nil), Form: node.FormBinary}})
	if err == nil || err.Error() != "enough" || len(told) != 2 || !strings.Contains(told[0], "received no data for 20ms") {
		t.Errorf("ended with %v, told %q", err, told)
	}
}

// machinesEC2 lists these machines.
type machinesEC2 struct {
	EC2API
	list []types.Instance
}

func (f machinesEC2) DescribeInstances(context.Context, *ec2.DescribeInstancesInput, ...func(*ec2.Options)) (*ec2.DescribeInstancesOutput, error) {
	return &ec2.DescribeInstancesOutput{Reservations: []types.Reservation{{Instances: f.list}}}, nil
}

// TestNoNodeGoesOnADoubtfulAnswer checks that no Node is deleted if EC2's list lacks the machine
// that asks, because then the list is incomplete.
func TestNoNodeGoesOnADoubtfulAnswer(t *testing.T) {
	a := testAgent(t)
	var worker Node
	worker.Metadata.Name, worker.Spec.ProviderID = "ip-10-80-0-9.ec2.internal", "aws:///us-east-1a/i-9"
	deleted := 0
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Method == http.MethodDelete {
			deleted++
		}
		_ = json.NewEncoder(w).Encode(map[string]any{"items": []Node{worker}})
	}))
	defer server.Close()
	api := kube.Client{Server: server.URL, HTTP: server.Client()}
	a.EC2 = machinesEC2{}
	if err := a.reconcileNodes(t.Context(), api); err == nil || deleted != 0 {
		t.Errorf("an empty answer: %v, deleted %d nodes", err, deleted)
	}
	a.EC2 = machinesEC2{list: []types.Instance{{InstanceId: &a.instance.ID, State: &types.InstanceState{Name: types.InstanceStateNameRunning}}}}
	if err := a.reconcileNodes(t.Context(), api); err != nil || deleted != 1 {
		t.Errorf("an answer with this machine in it: %v, deleted %d nodes", err, deleted)
	}
}

// TestNodeClaimsNoOthersRole checks that only a Node with the machine's own name gets a role label,
// because a kubelet can forge its provider id.
func TestNodeClaimsNoOthersRole(t *testing.T) {
	var liar Node
	liar.Metadata.Name, liar.Spec.ProviderID = "ip-10-80-0-9.ec2.internal", "aws:///us-east-1a/i-1"
	machines := []Machine{{ID: "i-1", Name: "ip-10-80-0-4.ec2.internal", State: "running", Role: node.RoleTagControlPlane}}
	if _, roles := NodeChanges([]Node{liar}, machines, time.Now().Add(-missingInstanceGrace)); len(roles) != 0 {
		t.Errorf("got roles %v", roles)
	}
}

// TestTornFileIsFetchedAgain simulates a power failure after a download: the file's name exists,
// its content does not.
func TestTornFileIsFetchedAgain(t *testing.T) {
	b := &bodies{by: map[string][]byte{"u": []byte("good")}}
	f := Fetcher{Root: &HostFS{Dir: t.TempDir()}, Open: b, Wait: sleep.For, OnRetry: func(error) {}}
	files := []node.File{{Name: "kubelet", URL: "u", SHA256: sum([]byte("good")), Form: node.FormBinary}}
	for range 2 {
		if _, err := f.FetchAll(t.Context(), files); err != nil {
			t.Fatal(err)
		}
		if err := os.Truncate(f.Root.Path(assetPath(files[0])), 0); err != nil {
			t.Fatal(err)
		}
	}
	if b.gets != 2 {
		t.Errorf("%d downloads, want 2", b.gets)
	}
}
