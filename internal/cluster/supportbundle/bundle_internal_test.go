// SPDX-License-Identifier: Apache-2.0

package supportbundle

import (
	"bytes"
	"context"
	"errors"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"github.com/slipway-k8s/slipway/api/v1alpha1"
	"github.com/slipway-k8s/slipway/internal/cluster"
	"github.com/slipway-k8s/slipway/internal/cluster/inventory"
	"github.com/slipway-k8s/slipway/internal/manifest"
)

const podList = `{"kind":"PodList","apiVersion":"v1","items":[{"metadata":{"namespace":"kube-system","name":"etcd-x"},
"status":{"containerStatuses":[{"name":"main","restartCount":2}]}}]}`

// newCollectorFor returns a collector of a cluster with a control-plane machine and a worker, and a Kubernetes API that
// answers as given.
func newCollectorFor(t *testing.T, api http.HandlerFunc) *Collector {
	t.Helper()
	server := httptest.NewServer(api)
	t.Cleanup(server.Close)
	client, err := kubernetes.NewForConfig(&rest.Config{Host: server.URL})
	if err != nil {
		t.Fatal(err)
	}
	set, fs := manifest.NewSet("demo", []string{"us-east-1a"}, manifest.NewSetOptions{ControlPlaneCount: 1})
	if fs.Err() != nil {
		t.Fatal(fs)
	}
	set = manifest.Default(set)
	set.Groups[1].Spec.AdditionalUserData = []v1alpha1.UserData{{Name: "x", Type: "text/x-shellscript", Content: "echo Zq7UserData"}}
	return &Collector{
		Env:    &cluster.Env{Now: time.Now},
		Live:   &inventory.Live{Manifests: set, Config: aws.Config{Region: "us-east-1"}},
		Client: client,
		Scope: Scope{Machines: []inventory.Machine{
			{ID: "i-1", Group: "control-plane", Slot: "a", Role: inventory.RoleControlPlane, State: "running", Node: "n1", NodeState: inventory.NodeReady},
			{ID: "i-2", Group: "workers", Role: inventory.RoleWorker, State: "running", Node: "n2", NodeState: inventory.NodeMissing},
			{ID: "i-3", Group: "workers", Role: inventory.RoleWorker, State: "terminated"},
		}},
	}
}

// everySource returns all sources of a cluster whose API answers.
func everySource(t *testing.T) []Source {
	t.Helper()
	c := newCollectorFor(t, func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		_, _ = w.Write([]byte(podList))
	})
	sources, _ := c.Sources(t.Context())
	return sources
}

// TestSources: which files a bundle has depends on what answers.
func TestSources(t *testing.T) {
	paths := func(sources []Source) (out []string) {
		for _, s := range sources {
			out = append(out, s.Path)
		}
		return out
	}
	got := paths(everySource(t))
	if !slices.IsSorted(got) || len(slices.Compact(slices.Clone(got))) != len(got) {
		t.Errorf("paths are not sorted, or not unique: %v", got)
	}
	for _, want := range []string{
		"manifests/cluster.yaml", "manifests/group-workers.yaml", "state/history.json", "machines/i-1/console.txt", "machines/i-1/journal-etcd.txt",
		"machines/i-1/journal-kubelet.txt", "machines/i-2/console.txt", "kubernetes/readyz.txt", "etcd/members.json", "aws/instances.json",
		"kubernetes/logs/etcd-x_main.txt", "kubernetes/logs/etcd-x_main_previous.txt", "health.json",
	} {
		if !slices.Contains(got, want) {
			t.Errorf("%s is missing", want)
		}
	}
	for _, not := range []string{"machines/i-2/journal-kubelet.txt", "machines/i-3/console.txt"} {
		if slices.Contains(got, not) {
			t.Errorf("%s is planned", not)
		}
	}
	for _, path := range got {
		if strings.Contains(path, "pki") || strings.Contains(path, "secret") {
			t.Errorf("%s is planned", path)
		}
	}
}

// TestUserDataIsLeftOut: the content of user data is not even looked at.
func TestUserDataIsLeftOut(t *testing.T) {
	for _, s := range everySource(t) {
		if !strings.HasPrefix(s.Path, "manifests/") {
			continue
		}
		f := s.readFile(t.Context(), NewRedactor())
		if f.Error != "" || len(f.Body) == 0 || bytes.Contains(f.Body, []byte("Zq7UserData")) {
			t.Errorf("%s: %s\n%s", s.Path, f.Error, f.Body)
		}
	}
}

// TestFailedSourceDoesNotStopTheRest: the index names it with its error, and the archive has the others.
func TestFailedSourceDoesNotStopTheRest(t *testing.T) {
	sources := []Source{
		{Path: "b.txt", Title: "second", Read: func(context.Context) (any, error) { return nil, errors.New("access denied <script>") }},
		{Path: "a.txt", Title: "first", Read: func(context.Context) (any, error) { return "content", nil }},
		{Path: "c.json", Title: "no JSON", Read: func(context.Context) (any, error) { return make(chan int), nil }},
		{Path: "d.txt", Title: "long", Read: func(context.Context) (any, error) { return strings.Repeat("line\n", maxFileSize/4), nil }},
	}
	seen := 0
	files := Collect(t.Context(), sources, func(File) { seen++ })
	if seen != 4 || files[0].Path != "a.txt" || files[1].Error == "" || files[2].Error == "" || !files[3].Truncated {
		t.Fatalf("%d, %+v", seen, files[:3])
	}
	h := Header{Cluster: "demo", CreatedAt: time.Unix(1_700_000_000, 5), Tool: "v1", Notes: []string{"a note"}}
	packed, err := Archive(h, files)
	if err != nil {
		t.Fatal(err)
	}
	again, err := Archive(h, files)
	if err != nil || !bytes.Equal(packed, again) {
		t.Errorf("the same files give other bytes (%v)", err)
	}
	got := unpack(t, packed)
	index := got["slipway-support-demo/index.html"]
	for _, want := range []string{`<a href="a.txt">`, "not collected: access denied &lt;script&gt;", "4 sources, 2 of which failed", "a note", "(only the end)"} {
		if !strings.Contains(index, want) {
			t.Errorf("the index lacks %q:\n%s", want, index)
		}
	}
	if got["slipway-support-demo/a.txt"] != "content" || len(got) != 3 {
		t.Errorf("%d files", len(got))
	}
}

// TestSelectMachines: of many machines, those that matter most are looked into.
func TestSelectMachines(t *testing.T) {
	var all []inventory.Machine
	for range 9 {
		all = append(all, inventory.Machine{ID: "w", Role: inventory.RoleWorker, NodeState: inventory.NodeReady})
	}
	all = append(all, inventory.Machine{ID: "bad", Role: inventory.RoleWorker, NodeState: inventory.NodeMissing}, inventory.Machine{ID: "cp", Role: inventory.RoleControlPlane})
	got, note := SelectMachines(Scope{Machines: all, MaxMachines: 3})
	if len(got) != 3 || got[0].ID != "cp" || got[1].ID != "bad" || !strings.Contains(note, "3 of 11 machines") {
		t.Errorf("%+v %q", got, note)
	}
	if got, note := SelectMachines(Scope{Machines: all}); len(got) != 11 || note != "" {
		t.Errorf("%d %q", len(got), note)
	}
}
