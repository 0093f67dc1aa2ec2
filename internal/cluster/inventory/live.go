// SPDX-License-Identifier: Apache-2.0

package inventory

import (
	"context"
	"time"

	sdk "github.com/aws/aws-sdk-go-v2/aws"
	"k8s.io/client-go/kubernetes"

	"github.com/slipway-k8s/slipway/internal/cluster"
	"github.com/slipway-k8s/slipway/internal/cluster/access"
	"github.com/slipway-k8s/slipway/internal/cluster/clusterstate"
	"github.com/slipway-k8s/slipway/internal/lib/store"
	"github.com/slipway-k8s/slipway/internal/manifest"
)

// nodesTimeout limits the wait for the Kubernetes API, which may be unreachable from here.
const nodesTimeout = 10 * time.Second

// Live reads one cluster as it runs.
type Live struct {
	// Manifests of the cluster, with defaults.
	Manifests manifest.Set
	// Config is for calls to the cluster's region.
	Config sdk.Config
	// State is the state store, and Sealer opens its secrets.
	State  store.Store
	Sealer store.Sealer

	env     *cluster.Env
	session *cluster.Session
	client  kubernetes.Interface // nil until the API was found
}

// Open loads the manifests of a cluster and prepares the calls to its region. It makes no call to AWS except to
// an S3 state store.
func Open(ctx context.Context, env *cluster.Env, name string) (*Live, error) {
	s, sealer, err := env.Stores.State(ctx)
	if err != nil {
		return nil, err
	}

	set, err := clusterstate.LoadManifests(ctx, s, name)
	if err != nil {
		return nil, err
	}

	session, err := cluster.Open(ctx, env, name, set.Cluster.Spec.CloudProvider.AWS.Region)
	if err != nil {
		return nil, err
	}

	return &Live{Manifests: set, Config: session.Config, State: s, Sealer: sealer, env: env, session: session}, nil
}

// Name returns the name of the cluster.
func (l *Live) Name() string { return l.Manifests.Cluster.Metadata.Name }

// Ownership returns the record of the cluster's id, which tells its resources from those of another cluster of
// this name.
func (l *Live) Ownership(ctx context.Context) (clusterstate.Ownership, error) {
	own, _, err := clusterstate.ReadOwnership(ctx, l.State, l.Name())
	return own, err
}

// ReadMachines returns the machines of the cluster, sorted, without what Kubernetes knows of them.
func (l *Live) ReadMachines(ctx context.Context) ([]Machine, error) {
	own, err := l.Ownership(ctx)
	if err != nil {
		return nil, err
	}

	return NewReader(l.Name(), own, l.Config).ReadMachines(ctx)
}

// Kubernetes returns a client of the cluster's API. Its requests have no timeout but that of their context.
func (l *Live) Kubernetes(ctx context.Context) (kubernetes.Interface, error) {
	if l.client != nil {
		return l.client, nil
	}

	client, err := access.NewKubeClient(ctx, l.Config, access.Request{
		Store:      l.State,
		Sealer:     l.Sealer,
		Cluster:    l.Name(),
		User:       l.env.User,
		Now:        l.env.Now,
		LongLiving: true,
	})
	if err != nil {
		return nil, err
	}

	l.client = client

	return client, nil
}

// Nodes returns the nodes of the cluster. It gives up after ten seconds.
func (l *Live) Nodes(ctx context.Context) ([]Node, error) {
	ctx, cancel := context.WithTimeout(ctx, nodesTimeout)
	defer cancel()
	client, err := l.Kubernetes(ctx)
	if err != nil {
		return nil, err
	}

	return ReadNodes(ctx, client)
}

// addDesired adds the current node document of each group. Without an answer of the machine store the machines keep
// what their agents have reported.
func (l *Live) addDesired(ctx context.Context, machines []Machine) {
	desired, err := cluster.Load(ctx, l.env, l.Name())
	if err != nil {
		return
	}

	documents, err := l.session.ReadCurrentDocuments(ctx, desired)
	if err == nil && len(documents) > 0 {
		AddDesired(machines, documents)
	}
}

// Contents is what a cluster consists of at one time.
type Contents struct {
	// Machines in AWS, sorted.
	Machines []Machine
	// Nodes in Kubernetes, sorted; nil if the API was not read.
	Nodes []Node
	// NodesError is why the API was not read; nil if it was.
	NodesError error
}

// Read returns the machines and the nodes, joined. Without an answer of the Kubernetes API it returns the
// machines alone.
func (l *Live) Read(ctx context.Context) (Contents, error) {
	machines, err := l.ReadMachines(ctx)
	if err != nil {
		return Contents{}, err
	}

	out := Contents{Machines: machines}
	if len(machines) == 0 {
		return out, nil
	}

	nodes, err := l.Nodes(ctx)
	if err != nil {
		out.NodesError = err
		return out, nil //nolint:nilerr // it is in the result
	}

	out.Machines, out.Nodes = Join(machines, nodes)
	l.addDesired(ctx, out.Machines)
	Sort(out.Machines, out.Nodes)

	return out, nil
}
