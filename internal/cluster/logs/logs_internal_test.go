// SPDX-License-Identifier: Apache-2.0

package logs

import (
	"bytes"
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/service/ec2"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"github.com/slipway-k8s/slipway/internal/cluster/inventory"
	"github.com/slipway-k8s/slipway/internal/lib/diag"
)

func machines() []inventory.Machine {
	return []inventory.Machine{
		{ID: "i-1", Group: "control-plane", Slot: "a", Role: inventory.RoleControlPlane, State: "running", Node: "n1", NodeState: inventory.NodeReady},
		{ID: "i-2", Group: "workers", Role: inventory.RoleWorker, State: "running", Node: "n2", NodeState: inventory.NodeReady},
		{ID: "i-3", Group: "gpu", Role: inventory.RoleWorker, State: "running", Node: "n3", NodeState: inventory.NodeMissing},
	}
}

func TestChooseSource(t *testing.T) {
	down := errors.New("connection refused")
	for _, c := range []struct {
		name, want string // kind, component and machines
		req        Request
		api        error
		err        string
	}{
		{name: "pods of a component", req: Request{Target: "kube-apiserver"}, want: "pods kube-apiserver []"},
		{name: "pods on a machine", req: Request{Target: "kube-apiserver", Machine: "control-plane-a"}, want: "pods kube-apiserver [i-1]"},
		{name: "a unit", req: Request{Target: "kubelet"}, want: "journal kubelet [i-1 i-2]"},
		{name: "a unit of the control plane", req: Request{Target: "etcd"}, want: "journal etcd [i-1]"},
		{name: "a machine", req: Request{Target: "i-2"}, want: "journal  [i-2]"},
		{name: "a machine that has not joined", req: Request{Target: "gpu"}, want: "console  [i-3]"},
		{name: "the console", req: Request{Target: "i-2", Console: true}, want: "console  [i-2]"},
		{name: "a machine without the API", req: Request{Target: "i-2"}, api: down, want: "console  [i-2]"},
		{name: "a component without the API", req: Request{Target: "kubelet"}, api: down, err: "read the logs of kubelet: connection refused"},
		{name: "a misspelled component", req: Request{Target: "kube-apisrver"}, err: `the cluster has no machine "kube-apisrver"`},
		{name: "an unknown machine of a component", req: Request{Target: "kubelet", Machine: "x"}, err: `the cluster has no machine "x"`},
		{name: "the console of a component", req: Request{Target: "kubelet", Console: true}, err: "a component has no console"},
		{name: "the previous unit", req: Request{Target: "kubelet", Previous: true}, err: "has no previous container"},
		{name: "the previous machine", req: Request{Target: "i-1", Previous: true}, err: "machine i-1 has no previous logs"},
	} {
		got, err := ChooseSource(c.req, Facts{Machines: machines(), APIError: c.api})
		if c.err != "" {
			if err == nil || !strings.Contains(err.Error(), c.err) || len(diag.Hints(err)) == 0 {
				t.Errorf("%s: got %v, want an error with a hint: %s", c.name, err, c.err)
			}
			continue
		}
		ids := []string{}
		for _, m := range got.Machines {
			ids = append(ids, m.ID)
		}
		if text := fmt.Sprint(got.Kind, " ", got.Component.Name, " ", ids); err != nil || text != c.want {
			t.Errorf("%s: got %q, %v, want %q", c.name, text, err, c.want)
		}
		if (got.Kind == Console && !c.req.Console) != (got.Note != "") {
			t.Errorf("%s: note %q", c.name, got.Note)
		}
	}
}

// consoles answers with one console.
type consoles string

// GetConsoleOutput implements [ConsoleAPI].
func (c consoles) GetConsoleOutput(_ context.Context, in *ec2.GetConsoleOutputInput, _ ...func(*ec2.Options)) (*ec2.GetConsoleOutputOutput, error) {
	text := base64.StdEncoding.EncodeToString([]byte(string(c)))
	return &ec2.GetConsoleOutputOutput{InstanceId: in.InstanceId, Output: &text}, nil
}

// newReader returns a reader of a Kubernetes API that answers by path and query.
func newReader(t *testing.T, answers map[string]string) Reader {
	t.Helper()
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		uri := r.URL.Path
		if r.URL.RawQuery != "" {
			uri += "?" + r.URL.RawQuery
		}
		answer, ok := answers[uri]
		if !ok {
			http.Error(w, "no answer for "+uri, http.StatusNotFound)
			return
		}
		if strings.HasPrefix(answer, "{") {
			w.Header().Set("Content-Type", "application/json")
		}
		_, _ = w.Write([]byte(answer))
	}))
	t.Cleanup(server.Close)
	client, err := kubernetes.NewForConfig(&rest.Config{Host: server.URL})
	if err != nil {
		t.Fatal(err)
	}
	return Reader{Client: client, Consoles: consoles("one\r\ntwo\nthree\n"), Now: func() time.Time { return time.Unix(1_700_000_000, 0) }}
}

func TestCopy(t *testing.T) {
	const pods = "/api/v1/namespaces/kube-system/pods"
	r := newReader(t, map[string]string{
		pods + "?labelSelector=component%3Dkube-apiserver": `{"items":[
			{"metadata":{"namespace":"kube-system","name":"kube-apiserver-n1"},"spec":{"nodeName":"n1","containers":[{"name":"m"}]}},
			{"metadata":{"namespace":"kube-system","name":"kube-apiserver-n9"},"spec":{"nodeName":"n9","containers":[{"name":"m"},{"name":"s"}]}}]}`,
		pods + "/kube-apiserver-n1/log?container=m":                                                 "\x1ba\x07\r\n\u009bb\u202e",
		pods + "/kube-apiserver-n9/log?container=m":                                                 "c\n",
		pods + "/kube-apiserver-n9/log?container=s":                                                 "",
		pods + "/kube-apiserver-n1/log?container=m&previous=true&sinceSeconds=60&tailLines=5":       "old\n",
		"/api/v1/nodes/n1/proxy/logs/?query=kubelet&sinceTime=2023-11-14T22%3A08%3A20Z&tailLines=2": "k1\nk2\n",
		"/api/v1/nodes/n1/proxy/logs/?query=etcd&query=kubelet&query=containerd&query=slipway-node": "all\n",
		"/api/v1/nodes/n2/proxy/logs/?query=kubelet&sinceTime=2023-11-14T22%3A08%3A20Z&tailLines=2": "",
		"/api/v1/nodes/n2/proxy/logs/?query=kubelet&query=containerd&query=slipway-node":            "<!doctype html>\n<pre>",
		"/api/v1/nodes/n2/proxy/logs/?query=kubelet":                                                "x\n",
	})
	for _, c := range []struct {
		name, want, err string
		req             Request
		opt             Options
	}{
		{name: "all pods", req: Request{Target: "kube-apiserver"}, want: "[kube-apiserver-n1] a\n[kube-apiserver-n1] b\n[kube-apiserver-n9/m] c\n"},
		{name: "one pod", req: Request{Target: "kube-apiserver", Machine: "i-1"}, want: "a\nb\n"},
		{name: "previous", req: Request{Target: "kube-apiserver", Machine: "i-1"}, opt: Options{Previous: true, Since: time.Minute, Tail: 5}, want: "old\n"},
		{name: "no pod", req: Request{Target: "kube-apiserver", Machine: "i-2"}, err: "no pod of kube-apiserver"},
		{name: "units", req: Request{Target: "kubelet"}, opt: Options{Since: 5 * time.Minute, Tail: 2}, want: "[control-plane-a] k1\n[control-plane-a] k2\n"},
		{name: "machine", req: Request{Target: "i-1"}, want: "all\n"},
		{name: "an old kubelet", req: Request{Target: "i-2"}, err: "the kubelet of i-2 does not serve its journal"},
		{name: "console", req: Request{Target: "i-2", Console: true}, opt: Options{Tail: 2}, want: "two\nthree\n"},
		{name: "not found", req: Request{Target: "etcd"}, err: "read the journal of i-1"},
	} {
		src, err := ChooseSource(c.req, Facts{Machines: machines()})
		if err != nil {
			t.Errorf("%s: %v", c.name, err)
			continue
		}
		var out bytes.Buffer
		err = r.Copy(t.Context(), src, c.opt, &out)
		if c.err != "" {
			if err == nil || !strings.Contains(err.Error(), c.err) || len(diag.Hints(err)) == 0 {
				t.Errorf("%s: got %v, want an error with a hint: %s", c.name, err, c.err)
			}
			continue
		}
		if err != nil || out.String() != c.want {
			t.Errorf("%s: got %q, %v, want %q", c.name, out.String(), err, c.want)
		}
	}
}

// TestFollowEndsWithItsContext: an interrupted -f is no error.
func TestFollowEndsWithItsContext(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	var out bytes.Buffer
	r := newReader(t, nil)
	done := make(chan error)
	go func() {
		done <- r.Copy(ctx, Source{Kind: Console, Machines: machines()[:1]}, Options{Follow: true}, &out)
	}()
	time.AfterFunc(50*time.Millisecond, cancel)
	if err := <-done; err != nil || out.String() != "one\ntwo\nthree\n" {
		t.Errorf("got %q, %v", out.String(), err)
	}
}

func TestNewLines(t *testing.T) {
	split := func(s string) []string { return strings.Split(s, "") }
	for _, c := range []struct{ before, now, want string }{
		{"", "abc", "abc"},
		{"abc", "abc", ""},
		{"abc", "abcde", "de"},
		{"abc", "bcde", "de"},
		{"abc", "cde", "de"},
		{"x", "xx", "x"},
		{"abc", "xyz", "xyz"},
		{"abab", "abababab", "abab"},
	} {
		if got := NewLines(split(c.before), split(c.now)); strings.Join(got, "") != c.want {
			t.Errorf("%q, %q: got %q, want %q", c.before, c.now, got, c.want)
		}
	}
}

// FuzzNewLines: what is new is an end of what is there, and a log that only grew shows what was added.
func FuzzNewLines(f *testing.F) {
	f.Add("a\nb", "c")
	f.Fuzz(func(t *testing.T, before, added string) {
		old := strings.Split(before, "\n")
		more := strings.Split(added, "\n")
		if got := NewLines(old, slices.Concat(old, more)); !slices.Equal(got, more) {
			t.Errorf("got %q, want %q", got, more)
		}
		got := NewLines(old, more)
		if !slices.Equal(got, more[len(more)-len(got):]) {
			t.Errorf("%q is not an end of %q", got, more)
		}
	})
}
