// SPDX-License-Identifier: Apache-2.0

package validate

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	"github.com/slipway-k8s/slipway/internal/cluster/health"
	"github.com/slipway-k8s/slipway/internal/machine/kube"
	"github.com/slipway-k8s/slipway/internal/machine/report"
)

// apiFacts is what one collection reads from the Kubernetes API.
type apiFacts struct {
	nodes      []corev1.Node
	nodeLeases []coordinationv1.Lease
	leases     []coordinationv1.Lease // of kube-system
	pods       []corev1.Pod           // of the system
	unhealthy  []corev1.Event         // failed probes of the system's pods
	now        time.Time
}

// systemNamespaces are the namespaces whose pods are part of the cluster itself.
func systemNamespaces() []string { return []string{metav1.NamespaceSystem, "kube-flannel"} }

// readKubernetes reads nodes, leases and system pods. If the API does not answer, it tries once more with a new
// connection: the load balancer may have chosen an API server that hangs, and takes some seconds to notice.
func (g *collector) readKubernetes(ctx context.Context) (apiFacts, error) {
	f, err := g.tryKubernetes(ctx)
	if err != nil && ctx.Err() == nil {
		g.client = nil
		f, err = g.tryKubernetes(ctx)
	}

	return f, err
}

func (g *collector) tryKubernetes(ctx context.Context) (apiFacts, error) {
	ctx, cancel := context.WithTimeout(ctx, apiTimeout)
	defer cancel()
	if g.client == nil {
		client, err := g.connect(ctx)
		if err != nil {
			return apiFacts{}, err
		}

		g.client = client
	}

	f, err := readObjects(ctx, g.client)
	if err != nil {
		return apiFacts{}, err
	}

	f.now = g.clock.correct(g.now())
	f.unhealthy = g.readFailedProbes(ctx, f.pods)

	return f, nil
}

// readObjects lists all objects at the same time, so that an API that hangs costs one timeout.
func readObjects(ctx context.Context, client kubernetes.Interface) (apiFacts, error) {
	f := apiFacts{}
	reads, ctx := errgroup.WithContext(ctx)
	reads.Go(func() error {
		list, err := client.CoreV1().Nodes().List(ctx, metav1.ListOptions{})
		if err == nil {
			f.nodes = list.Items
		}

		return wrapRead("nodes", err)
	})

	readLeases := func(namespace string, into *[]coordinationv1.Lease) {
		reads.Go(func() error {
			list, err := client.CoordinationV1().Leases(namespace).List(ctx, metav1.ListOptions{})
			if err == nil {
				*into = list.Items
			}

			return wrapRead("leases in "+namespace, err)
		})
	}

	readLeases(metav1.NamespaceSystem, &f.leases)
	readLeases(corev1.NamespaceNodeLease, &f.nodeLeases)
	var mu sync.Mutex // of f.pods
	for _, namespace := range systemNamespaces() {
		reads.Go(func() error {
			pods, err := listSystemPods(ctx, client, namespace)
			mu.Lock()
			defer mu.Unlock()
			f.pods = append(f.pods, pods...)

			return wrapRead("pods in "+namespace, err)
		})
	}

	if err := reads.Wait(); err != nil {
		return apiFacts{}, err
	}

	return f, nil
}

func wrapRead(what string, err error) error {
	if err != nil {
		return fmt.Errorf("list %s: %w", what, err)
	}

	return nil
}

func listSystemPods(ctx context.Context, client kubernetes.Interface, namespace string) ([]corev1.Pod, error) {
	list, err := client.CoreV1().Pods(namespace).List(ctx, metav1.ListOptions{})
	if err != nil {
		return nil, err
	}

	var out []corev1.Pod
	for _, p := range list.Items {
		// Pods that completed or are being deleted do not count.
		if p.Status.Phase != corev1.PodSucceeded && p.DeletionTimestamp == nil {
			out = append(out, p)
		}
	}

	return out, nil
}

// readFailedProbes returns the events of failed probes if a pod runs and is not ready: only they say why.
func (g *collector) readFailedProbes(ctx context.Context, pods []corev1.Pod) []corev1.Event {
	namespaces := map[string]bool{}
	for _, p := range pods {
		if p.Status.Phase == corev1.PodRunning && !isReady(p) {
			namespaces[p.Namespace] = true
		}
	}

	var out []corev1.Event
	for namespace := range namespaces {
		options := metav1.ListOptions{FieldSelector: "reason=Unhealthy,involvedObject.kind=Pod"}
		list, err := g.client.CoreV1().Events(namespace).List(ctx, options)
		if err != nil {
			g.addUnread("events in "+namespace, err)
			continue
		}

		out = append(out, list.Items...)
	}

	return out
}

// addTo adds the facts of the API to f, which has the instances.
func (a apiFacts) addTo(f *health.Facts) {
	leases := map[string]time.Time{}
	for _, l := range a.nodeLeases {
		leases[l.Name] = renewTime(l)
	}

	instances := map[string]string{} // instance id by node name
	for _, i := range f.Instances {
		if i.State != "terminated" {
			instances[i.NodeName] = i.ID
		}
	}

	for _, n := range a.nodes {
		node := nodeFact(n)
		node.LeaseRenewed = leases[n.Name]
		f.Nodes = append(f.Nodes, node)
		// A machine can write its own Node only, so a report of another machine is not to be trusted.
		addReport(f.Reports, instances[n.Name], n.Annotations[report.Annotation], time.Time{})
	}

	for _, l := range a.leases {
		slot, ok := strings.CutPrefix(l.Name, "slipway-etcd-")
		switch body := l.Annotations[report.Annotation]; {
		case !ok:
		case body != "":
			addReport(f.Reports, l.Annotations["slipway.dev/instance"], body, renewTime(l))
		default:
			f.Members = append(f.Members, memberFact(slot, l))
		}
	}

	for _, p := range a.pods {
		f.Pods = append(f.Pods, podFact(p, a.unhealthy, a.now))
	}
}

// addReport adds the report of a machine if it is its newest one. The time of publication is the report's own
// if published is zero.
func addReport(reports map[string]health.MachineReport, machine, body string, published time.Time) {
	var r report.Report
	if machine == "" || json.Unmarshal([]byte(body), &r) != nil || r.Machine != machine {
		return
	}

	if published.IsZero() {
		published = r.Time
	}

	if published.After(reports[machine].PublishedAt) {
		reports[machine] = health.MachineReport{Report: r, PublishedAt: published}
	}
}

func renewTime(l coordinationv1.Lease) time.Time {
	if l.Spec.RenewTime == nil {
		return time.Time{}
	}

	return l.Spec.RenewTime.Time
}

// nodeFact returns what health needs to know of a node.
func nodeFact(n corev1.Node) health.Node {
	out := health.Node{Name: n.Name, Reason: "no Ready condition yet"}
	out.Instance = n.Spec.ProviderID[strings.LastIndex(n.Spec.ProviderID, "/")+1:]
	out.Uninitialized = slices.ContainsFunc(n.Spec.Taints, func(t corev1.Taint) bool {
		return t.Key == kube.TaintUninitialized
	})
	for _, c := range n.Status.Conditions {
		switch c.Type {
		case corev1.NodeReady:
			out.Ready = c.Status == corev1.ConditionTrue
			out.Reason = c.Message
		case corev1.NodeDiskPressure, corev1.NodeMemoryPressure, corev1.NodePIDPressure, corev1.NodeNetworkUnavailable:
			if c.Status == corev1.ConditionTrue {
				out.Pressure = append(out.Pressure, string(c.Type)+": "+c.Message)
			}
		}
	}

	return out
}

// memberFact reads the state of an etcd member from the annotations of an agent that publishes no reports.
func memberFact(slot string, l coordinationv1.Lease) health.Member {
	return health.Member{
		Slot:       slot,
		Healthy:    l.Annotations["slipway.dev/healthy"] == "true",
		Learner:    l.Annotations["slipway.dev/learner"] == "true",
		Reason:     l.Annotations["slipway.dev/reason"],
		ReportedAt: renewTime(l),
	}
}

// serverClock is the difference between the API server's clock and this computer's, which may be wrong. It is
// safe for concurrent use.
type serverClock struct {
	mu    sync.Mutex
	ahead time.Duration
}

// clockTolerance is the difference of clocks that is ignored: the header has whole seconds.
const clockTolerance = 3 * time.Second

// observe reads the clock from the Date header of an answer.
func (c *serverClock) observe(resp *http.Response, now time.Time) {
	at, err := http.ParseTime(resp.Header.Get("Date"))
	if err != nil {
		return
	}

	c.mu.Lock()
	defer c.mu.Unlock()
	c.ahead = at.Sub(now)
	if c.ahead.Abs() < clockTolerance {
		c.ahead = 0
	}
}

// correct returns the time by the API server's clock.
func (c *serverClock) correct(now time.Time) time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()

	return now.Add(c.ahead)
}

// describeAPIError says why the API could not be read, for an operator.
func describeAPIError(err error) string {
	request, isRequest := errors.AsType[*url.Error](err)
	switch {
	case apierrors.IsForbidden(err):
		return "answers 403 Forbidden: the API server has started, and its authorizer is not ready yet"
	case apierrors.IsUnauthorized(err):
		return "answers 401 Unauthorized: it does not accept the client certificate; the cluster's CA in the state store " +
			"is another one"
	case isRequest && (request.Timeout() || errors.Is(err, context.DeadlineExceeded)):
		return fmt.Sprintf("%s does not answer within %s", serverOf(request), apiTimeout)
	case isRequest:
		return fmt.Sprintf("%s does not answer: %v", serverOf(request), request.Err)
	case errors.Is(err, context.DeadlineExceeded):
		return fmt.Sprintf("does not answer within %s", apiTimeout)
	default:
		return err.Error()
	}
}

// serverOf returns scheme and host of a failed request.
func serverOf(request *url.Error) string {
	u, err := url.Parse(request.URL)
	if err != nil {
		return request.URL
	}

	return u.Scheme + "://" + u.Host
}
