// SPDX-License-Identifier: Apache-2.0

package supportbundle

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/aws/aws-sdk-go-v2/service/ec2"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	"github.com/slipway-k8s/slipway/internal/cluster"
	"github.com/slipway-k8s/slipway/internal/cluster/clusterstate"
	"github.com/slipway-k8s/slipway/internal/cluster/inventory"
	"github.com/slipway-k8s/slipway/internal/cluster/logs"
	"github.com/slipway-k8s/slipway/internal/cluster/validate"
	"github.com/slipway-k8s/slipway/internal/manifest"
)

// Collector knows the sources of one cluster.
type Collector struct {
	// Env is the caller.
	Env *cluster.Env
	// Live is the cluster.
	Live *inventory.Live
	// Scope limits what is read.
	Scope Scope
	// APIError is why the Kubernetes API does not answer; nil if it does.
	APIError error
	// Client of the Kubernetes API; nil if it does not answer.
	Client kubernetes.Interface
}

// NewCollector reads which machines the cluster has and whether its Kubernetes API answers. A failure of either is in
// the bundle, not an error.
func NewCollector(ctx context.Context, env *cluster.Env, live *inventory.Live, scope Scope) *Collector {
	c := &Collector{Env: env, Live: live, Scope: scope}
	contents, err := live.Read(ctx)
	c.Scope.Machines = contents.Machines
	c.APIError = contents.NodesError
	if err != nil {
		c.APIError = err
	}

	if c.APIError == nil {
		c.Client, c.APIError = live.Kubernetes(ctx)
	}

	return c
}

// Sources returns the files of the bundle, sorted by path, and notes for its index.
func (c *Collector) Sources(ctx context.Context) ([]Source, []string) {
	machines, note := SelectMachines(c.Scope)
	reader := logs.Reader{Client: c.Client, Consoles: ec2.NewFromConfig(c.Live.Config), Now: c.Env.Now}
	out := slices.Concat(c.stateSources(), c.healthSources(), c.awsSources(), c.kubernetesSources())
	for _, m := range machines {
		if !m.IsGone() {
			out = append(out, machineSources(m, reader, c.Scope.Since)...)
		}
	}

	out = append(out, c.podLogSources(ctx, reader)...)
	slices.SortFunc(out, func(a, b Source) int { return strings.Compare(a.Path, b.Path) })

	return out, slices.DeleteFunc([]string{note}, func(s string) bool { return s == "" })
}

// stateSources returns the manifests and the records of the state store. Keys and certificates are never read.
func (c *Collector) stateSources() []Source {
	name := c.Live.Name()
	set := c.Live.Manifests
	out := []Source{
		{
			Path:  "manifests/cluster.yaml",
			Title: "manifest of the cluster, with defaults",
			Read:  func(context.Context) (any, error) { return dropUserData(set.Cluster) },
		},
		{
			Path:  "state/history.json",
			Title: "last operations on the cluster",
			Read: func(ctx context.Context) (any, error) {
				return c.Env.Coordinator(c.Live.State, name).ListRecords(ctx, maxRecords)
			},
		},
		c.appliedSource(clusterstate.LastAppliedKey(name)),
		{
			Path:  "state/catalogue.yaml",
			Title: "pinned asset catalogue",
			Read: func(ctx context.Context) (any, error) {
				o, err := c.Live.State.Get(ctx, manifest.AssetsKey(name))
				return o.Body, err
			},
		},
	}

	for _, g := range set.Groups {
		out = append(out, Source{
			Path:  "manifests/group-" + g.Metadata.Name + ".yaml",
			Title: "manifest of group " + g.Metadata.Name + ", with defaults, without user data",
			Read:  func(context.Context) (any, error) { return dropUserData(g) },
		})
	}

	return out
}

const maxRecords = 50

// appliedSource returns the last-applied record without its copy of the manifests, which has user data.
func (c *Collector) appliedSource(key string) Source {
	return newSource("state/applied.json", "what was applied last", func(ctx context.Context) (any, error) {
		o, err := c.Live.State.Get(ctx, key)
		if err != nil {
			return nil, err
		}

		record, err := parseJSON(o.Body)
		if fields, ok := record.(map[string]any); ok {
			delete(fields, "manifests")
		}

		return record, err
	})
}

// healthSources returns what slipway itself finds.
func (c *Collector) healthSources() []Source {
	return []Source{
		{
			Path:  "health.json",
			Title: "findings of slipway validate",
			Read: func(ctx context.Context) (any, error) {
				return validate.Wait(ctx, c.Env, validate.Request{Name: c.Live.Name()})
			},
		},
		{
			Path:  "machines/machines.json",
			Title: "all machines with their nodes and the problems that their agents report",
			Read:  func(context.Context) (any, error) { return c.Scope.Machines, nil },
		},
	}
}

// kubernetesSources returns objects of Kubernetes that are no secrets: no Secret and no ConfigMap is read.
func (c *Collector) kubernetesSources() []Source {
	paths := map[string]string{
		"nodes.json":       "/api/v1/nodes",
		"pods.json":        "/api/v1/pods",
		"events.json":      "/api/v1/events",
		"services.json":    "/api/v1/services",
		"endpoints.json":   "/apis/discovery.k8s.io/v1/endpointslices",
		"leases.json":      "/apis/coordination.k8s.io/v1/leases",
		"deployments.json": "/apis/apps/v1/deployments",
		"daemonsets.json":  "/apis/apps/v1/daemonsets",
		"apiservices.json": "/apis/apiregistration.k8s.io/v1/apiservices",
		"volumes.json":     "/api/v1/persistentvolumes",
		"version.json":     "/version",
		"readyz.txt":       "/readyz?verbose",
		"livez.txt":        "/livez?verbose",
		"etcd-health.txt":  "/readyz/etcd?verbose",
	}

	var out []Source
	for _, file := range slices.Sorted(maps.Keys(paths)) {
		path := paths[file]
		out = append(out, Source{
			Path:  "kubernetes/" + file,
			Title: "GET " + path + " of the Kubernetes API",
			Read:  func(ctx context.Context) (any, error) { return c.get(ctx, path) },
		})
	}

	return append(out, Source{
		Path:  "etcd/members.json",
		Title: "etcd members as their own machines report them",
		Read:  c.readMembers,
	})
}

// get returns what the API answers: a tree if it is JSON.
func (c *Collector) get(ctx context.Context, path string) (any, error) {
	if c.APIError != nil {
		return nil, c.APIError
	}

	body, err := c.Client.CoreV1().RESTClient().Get().RequestURI(path).DoRaw(ctx)
	if len(body) > 0 && strings.Contains(path, "verbose") {
		return body, nil // a failed check is an answer too
	}

	if err != nil {
		return nil, fmt.Errorf("GET %s: %w", path, err)
	}

	return parseJSON(body)
}

// etcdLeasePrefix is the start of the names of the leases on which agents report their etcd members.
const etcdLeasePrefix = "slipway-etcd-"

func (c *Collector) readMembers(ctx context.Context) (any, error) {
	if c.APIError != nil {
		return nil, c.APIError
	}

	leases, err := c.Client.CoordinationV1().Leases(metav1.NamespaceSystem).List(ctx, metav1.ListOptions{})
	if err != nil {
		return nil, fmt.Errorf("list leases: %w", err)
	}

	out := map[string]any{}

	for _, l := range leases.Items {
		if slot, ok := strings.CutPrefix(l.Name, etcdLeasePrefix); ok {
			out[slot] = map[string]any{"annotations": l.Annotations, "renewTime": l.Spec.RenewTime}
		}
	}

	return out, nil
}

// podLogSources returns the logs of the system's pods: of each container, also of the one that ran before if it was
// restarted.
func (c *Collector) podLogSources(ctx context.Context, reader logs.Reader) []Source {
	if c.APIError != nil {
		return nil
	}

	ctx, cancel := context.WithTimeout(ctx, sourceTimeout)
	defer cancel()
	pods, err := c.Client.CoreV1().Pods(metav1.NamespaceSystem).List(ctx, metav1.ListOptions{})
	if err != nil {
		return nil // kubernetes/pods.json has the same error
	}

	var out []Source
	for _, p := range pods.Items {
		for _, status := range p.Status.ContainerStatuses {
			container := logs.Container{Namespace: p.Namespace, Pod: p.Name, Name: status.Name}
			opt := logs.Options{Tail: maxLogLines, Since: c.Scope.Since}
			out = append(out, podLogSource(reader, container, opt))
			if status.RestartCount > 0 {
				out = append(out, podLogSource(reader, container, logs.Options{Tail: maxLogLines, Previous: true}))
			}
		}
	}

	return out
}

func podLogSource(reader logs.Reader, c logs.Container, opt logs.Options) Source {
	path := "kubernetes/logs/" + c.Pod + "_" + c.Name
	title := "log of container " + c.Name + " of pod " + c.Namespace + "/" + c.Pod
	if opt.Previous {
		path += "_previous"
		title += " before its last restart"
	}

	return Source{Path: path + ".txt", Title: title, Read: func(ctx context.Context) (any, error) {
		return reader.ReadContainer(ctx, c, opt)
	}}
}
