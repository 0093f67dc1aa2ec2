// SPDX-License-Identifier: Apache-2.0

package validate

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/credentials"
	"github.com/aws/aws-sdk-go-v2/service/ec2"
	"github.com/google/go-cmp/cmp"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/kubernetes/fake"
	k8stesting "k8s.io/client-go/testing"

	"github.com/slipway-k8s/slipway/internal/cluster/health"
	"github.com/slipway-k8s/slipway/internal/machine/report"
)

var now = time.Date(2026, 11, 22, 6, 0, 0, 0, time.UTC)

// answeringEC2 is an EC2 client whose calls all get this answer.
func answeringEC2(status int, body string) *ec2.Client {
	return ec2.NewFromConfig(aws.Config{
		Region: "us-east-1", RetryMaxAttempts: 1, Credentials: credentials.NewStaticCredentialsProvider("k", "s", ""),
		HTTPClient: doer(func(*http.Request) (*http.Response, error) {
			return &http.Response{StatusCode: status, Header: http.Header{}, Body: io.NopCloser(strings.NewReader(body))}, nil
		}),
	})
}

type doer func(*http.Request) (*http.Response, error)

func (d doer) Do(r *http.Request) (*http.Response, error) { return d(r) }

// TestFailedConsoleIsNoError: before, one console that could not be read ended validate with an error.
func TestFailedConsoleIsNoError(t *testing.T) {
	g := &collector{ec2: answeringEC2(http.StatusServiceUnavailable,
		`<Response><Errors><Error><Code>RequestLimitExceeded</Code><Message>Request limit exceeded.</Message></Error></Errors></Response>`)}
	f := health.Facts{Instances: []health.Instance{{ID: "i-1", State: "running"}}, Reports: map[string]health.MachineReport{}}
	g.readConsoles(t.Context(), &f)
	want := []health.Unread{{What: "the console of i-1", Error: "RequestLimitExceeded: Request limit exceeded."}}
	if diff := cmp.Diff(want, g.unread); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

func reportOf(machine string, at time.Time, causes ...string) string {
	r := report.Report{Machine: machine, Time: at, NextSeconds: 5}
	for _, cause := range causes {
		r.Conditions = append(r.Conditions, report.Condition{Component: report.Kubelet, State: report.Failed, Cause: cause})
	}
	body, err := json.Marshal(r)
	if err != nil {
		panic(err)
	}
	return string(body)
}

// TestReadKubernetes reads nodes with their leases and reports, members and pods with failed probes from an API.
func TestReadKubernetes(t *testing.T) {
	renewed := metav1.NewMicroTime(now.Add(-4 * time.Second))
	node := func(name, id, reported string) *corev1.Node {
		n := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name, Annotations: map[string]string{report.Annotation: reported}}}
		n.Spec.ProviderID = "aws:///us-east-1a/" + id
		n.Status.Conditions = []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionTrue}, {Type: corev1.NodeDiskPressure, Status: corev1.ConditionTrue, Message: "full"}}
		return n
	}
	lease := func(namespace, name string, notes map[string]string) *coordinationv1.Lease {
		l := &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name, Annotations: notes}}
		l.Spec.RenewTime = &renewed
		return l
	}
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "kube-system", Name: "coredns", UID: "u-1"}}
	pod.Spec.NodeName, pod.Status.Phase = "ip-1", corev1.PodRunning
	probe := &corev1.Event{ObjectMeta: metav1.ObjectMeta{Namespace: "kube-system", Name: "e"}, Reason: "Unhealthy", InvolvedObject: corev1.ObjectReference{Kind: "Pod", UID: "u-1"}, Message: "Readiness probe failed: HTTP probe failed with statuscode: 503"}
	g := &collector{now: func() time.Time { return now }, clock: &serverClock{}, client: fake.NewSimpleClientset(
		node("ip-1", "i-1", reportOf("i-1", now.Add(-time.Minute))),
		node("ip-2", "i-2", reportOf("i-1", now, "forged")), // a machine can write its own Node only
		lease("kube-node-lease", "ip-1", nil),
		lease("kube-system", "slipway-etcd-a", map[string]string{"slipway.dev/instance": "i-1", report.Annotation: reportOf("i-1", now.Add(-5*time.Second), "from the lease")}),
		lease("kube-system", "slipway-etcd-b", map[string]string{"slipway.dev/healthy": "true"}),
		lease("kube-system", "kube-scheduler", nil),
		pod, probe,
	)}
	api, err := g.readKubernetes(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	f := health.Facts{Reports: map[string]health.MachineReport{}, Instances: []health.Instance{
		{ID: "i-1", NodeName: "ip-1", State: "running"}, {ID: "i-2", NodeName: "ip-2", State: "running"}, {ID: "i-0", NodeName: "ip-1", State: "terminated"},
	}}
	api.addTo(&f)
	if n := f.Nodes[0]; n.Instance != "i-1" || !n.Ready || !n.LeaseRenewed.Equal(renewed.Time) || len(n.Pressure) != 1 {
		t.Errorf("node %+v", n)
	}
	if r := f.Reports["i-1"]; len(f.Reports) != 1 || !r.PublishedAt.Equal(renewed.Time) || len(r.Conditions) != 1 || r.Conditions[0].Cause != "from the lease" {
		t.Errorf("reports %+v, want the newest of i-1 and no forged one", f.Reports)
	}
	wantMembers := []health.Member{{Slot: "b", Healthy: true, ReportedAt: renewed.Time}}
	if diff := cmp.Diff(wantMembers, f.Members); diff != "" {
		t.Errorf("members of agents without reports (-want +got):\n%s", diff)
	}
	wantPods := []health.Pod{{Namespace: "kube-system", Name: "coredns", Node: "ip-1", Reason: "not Ready: readiness probe failed: 503"}}
	if diff := cmp.Diff(wantPods, f.Pods); diff != "" {
		t.Errorf("pods (-want +got):\n%s", diff)
	}
}

// TestHungServerIsTriedAgain: the load balancer may choose an API server that hangs. A second connection reaches
// another one.
func TestHungServerIsTriedAgain(t *testing.T) {
	connections := 0
	g := &collector{now: func() time.Time { return now }, clock: &serverClock{}, connect: func(context.Context) (kubernetes.Interface, error) {
		connections++
		client := fake.NewSimpleClientset()
		if connections == 1 {
			client.PrependReactor("list", "nodes", func(k8stesting.Action) (bool, runtime.Object, error) {
				return true, nil, context.DeadlineExceeded
			})
		}
		return client, nil
	}}
	if _, err := g.readKubernetes(t.Context()); err != nil || connections != 2 {
		t.Errorf("after %d connections: %v", connections, err)
	}
}

func TestNotReadyReason(t *testing.T) {
	exit := &corev1.ContainerStateTerminated{ExitCode: 137, Reason: "OOMKilled", FinishedAt: metav1.NewTime(now.Add(-20 * time.Second)), Message: "first\nlast words\n"}
	waiting := func(reason, message string) corev1.ContainerState {
		return corev1.ContainerState{Waiting: &corev1.ContainerStateWaiting{Reason: reason, Message: message}}
	}
	tests := map[string]struct {
		status corev1.PodStatus
		want   string
	}{
		"a crash loop": {
			corev1.PodStatus{Phase: corev1.PodRunning, ContainerStatuses: []corev1.ContainerStatus{{Name: "c", RestartCount: 3, State: waiting("CrashLoopBackOff", "back-off 40s restarting failed container=c pod=x"), LastTerminationState: corev1.ContainerState{Terminated: exit}}}},
			"container c: CrashLoopBackOff, restarted 3 times; last exit 137 (OOMKilled) 20s ago: last words",
		},
		"an image": {
			corev1.PodStatus{Phase: corev1.PodPending, ContainerStatuses: []corev1.ContainerStatus{{Name: "c", State: waiting("ImagePullBackOff", `Back-off pulling image "x"`)}}},
			`container c: ImagePullBackOff: Back-off pulling image "x"`,
		},
		"an init container that has ended": {
			corev1.PodStatus{Phase: corev1.PodPending, InitContainerStatuses: []corev1.ContainerStatus{{Name: "init", State: corev1.ContainerState{Terminated: exit}}}},
			"container init: ended with 137 (OOMKilled) 20s ago: last words",
		},
		"not scheduled": {
			corev1.PodStatus{Phase: corev1.PodPending, Conditions: []corev1.PodCondition{{Type: corev1.PodScheduled, Status: corev1.ConditionFalse, Message: "0/3 nodes are available"}}},
			"not scheduled: 0/3 nodes are available",
		},
		"not ready, without an event": {
			corev1.PodStatus{Phase: corev1.PodRunning, Conditions: []corev1.PodCondition{{Type: corev1.PodReady, Status: corev1.ConditionFalse, Message: "containers with unready status: [c]"}}},
			"not Ready: containers with unready status: [c]",
		},
		"failed": {corev1.PodStatus{Phase: corev1.PodFailed, Reason: "Evicted", Message: "low on disk"}, "phase Failed Evicted low on disk"},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			if got := notReadyReason(corev1.Pod{Status: tt.status}, nil, now); got != tt.want {
				t.Errorf("got  %s\nwant %s", got, tt.want)
			}
		})
	}
}

func TestDescribeAPIError(t *testing.T) {
	request := func(err error) error {
		return &url.Error{Op: "Get", URL: "https://api.example.com:443/api/v1/nodes", Err: err}
	}
	for want, err := range map[string]error{
		"answers 403 Forbidden: the API server has started, and its authorizer is not ready yet": apierrors.NewForbidden(schema.GroupResource{Resource: "nodes"}, "", nil),
		"https://api.example.com:443 does not answer: connect: connection refused":               request(errors.New("connect: connection refused")),
		"https://api.example.com:443 does not answer within 3s":                                  request(context.DeadlineExceeded),
		"does not answer within 3s":         wrapRead("nodes", context.DeadlineExceeded),
		"cluster demo has no load balancer": errors.New("cluster demo has no load balancer"),
	} {
		if got := describeAPIError(err); got != want {
			t.Errorf("got  %s\nwant %s", got, want)
		}
	}
}

// TestConsoleReports: a report on the console counts if it is newer than that of the API and than the boot.
func TestConsoleReports(t *testing.T) {
	line := func(id string, at time.Time) []byte { return []byte("slipway-report: " + reportOf(id, at) + "\n") }
	tests := map[string]struct {
		text      []byte
		published time.Time
		boot      []health.StageReport
		want      bool
	}{
		"newer than the API's":    {text: line("i-1", now), published: now.Add(-time.Minute), want: true},
		"the only one":            {text: line("i-1", now), want: true},
		"older than the API's":    {text: line("i-1", now.Add(-time.Hour)), published: now},
		"older than a restart":    {text: line("i-1", now), boot: []health.StageReport{{Stage: "etcd", Time: now.Add(time.Minute)}}},
		"of another machine":      {text: line("i-2", now)},
		"there is no such report": {text: []byte("kernel: hello\n")},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			reports := map[string]health.MachineReport{"i-1": {PublishedAt: tt.published}}
			addConsoleReport(reports, health.Instance{ID: "i-1", Reports: tt.boot}, tt.text)
			if got := reports["i-1"].FromConsole; got != tt.want {
				t.Errorf("used %v, want %v", got, tt.want)
			}
		})
	}
}

// TestConsolesToRead: without the API all, those of the control plane first; with it those that it says too little of.
func TestConsolesToRead(t *testing.T) {
	f := health.Facts{
		Now: now, Reports: map[string]health.MachineReport{"i-4": {PublishedAt: now.Add(-time.Minute), Report: report.Report{NextSeconds: 5}}},
		Instances: []health.Instance{
			{ID: "i-1", State: "running"},
			{ID: "i-2", State: "running"},
			{ID: "i-3", State: "stopped"},
			{ID: "i-4", Slot: "a", State: "running"},
			{ID: "i-5", State: "running", Bastion: true},
			{ID: "i-6", State: "running"},
		},
		Nodes: []health.Node{{Instance: "i-1", Ready: true, LeaseRenewed: now}, {Instance: "i-4", Ready: true}, {Instance: "i-6", Ready: true, LeaseRenewed: now.Add(-time.Minute)}},
	}
	ids := func() (out []string) {
		for _, at := range consolesToRead(f) {
			out = append(out, f.Instances[at].ID)
		}
		return out
	}
	if diff := cmp.Diff([]string{"i-4", "i-2", "i-6"}, ids()); diff != "" {
		t.Errorf("with the API (-want +got):\n%s", diff)
	}
	f.APIError = "does not answer"
	if diff := cmp.Diff([]string{"i-4", "i-1", "i-2", "i-6"}, ids()); diff != "" {
		t.Errorf("without the API (-want +got):\n%s", diff)
	}
}

// TestServerClock: ages are by the API server's clock if this computer's is wrong.
func TestServerClock(t *testing.T) {
	for name, tt := range map[string]struct{ server, want time.Time }{
		"this computer's is right":      {now.Add(-900 * time.Millisecond), now},
		"it is ten minutes ahead":       {now.Add(-10 * time.Minute), now.Add(-10 * time.Minute)},
		"the answer has no such header": {time.Time{}, now},
	} {
		t.Run(name, func(t *testing.T) {
			c := serverClock{}
			resp := &http.Response{Header: http.Header{}}
			if !tt.server.IsZero() {
				resp.Header.Set("Date", tt.server.UTC().Format(http.TimeFormat))
			}
			c.observe(resp, now)
			if got := c.correct(now); !got.Equal(tt.want) {
				t.Errorf("got %s, want %s", got, tt.want)
			}
		})
	}
}

// TestUninitializedNode: a node is ready for its kubelet, and not for pods, while it has the taint of the cloud controller manager.
func TestUninitializedNode(t *testing.T) {
	n := corev1.Node{Status: corev1.NodeStatus{Conditions: []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionTrue}}}}
	n.Spec.Taints = []corev1.Taint{{Key: "node-role.kubernetes.io/control-plane", Effect: corev1.TaintEffectNoSchedule}}
	if f := nodeFact(n); !f.Ready || f.Uninitialized {
		t.Errorf("without the taint: %+v", f)
	}
	n.Spec.Taints = append(n.Spec.Taints, corev1.Taint{
		Key: "node.cloudprovider.kubernetes.io/uninitialized", Value: "true", Effect: corev1.TaintEffectNoSchedule,
	})
	if f := nodeFact(n); !f.Uninitialized {
		t.Errorf("with the taint: %+v", f)
	}
}
