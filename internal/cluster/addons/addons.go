// SPDX-License-Identifier: Apache-2.0

// Package addons applies channels of add-ons to a cluster: it reads a channel and the manifests that it names, fills in
// the cluster's parameters, connects to the Kubernetes API and has package applier plan and apply.
package addons

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/Masterminds/semver/v3"
	"github.com/aws/aws-sdk-go-v2/aws"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/discovery/cached/memory"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/restmapper"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/slipway-k8s/slipway/api/v1alpha1"
	"github.com/slipway-k8s/slipway/internal/cluster"
	"github.com/slipway-k8s/slipway/internal/cluster/access"
	"github.com/slipway-k8s/slipway/internal/cluster/clusterstate"
	"github.com/slipway-k8s/slipway/internal/lib/diag"
	"github.com/slipway-k8s/slipway/internal/lib/store"
	"github.com/slipway-k8s/slipway/internal/machine/addon/applier"
	"github.com/slipway-k8s/slipway/internal/machine/addon/applier/dynamicclient"
	"github.com/slipway-k8s/slipway/internal/machine/addon/bundle"
	"github.com/slipway-k8s/slipway/internal/manifest"
)

// Options are how a cluster is changed.
type Options struct {
	// Kubeconfig is a file whose current context reaches the API. Empty: slipway issues itself a certificate.
	Kubeconfig string
	// Force takes over fields and add-ons that others own.
	Force bool
	// DeleteProtected also deletes namespaces and CustomResourceDefinitions.
	DeleteProtected bool
	// DeleteVolumes also deletes PersistentVolumes and PersistentVolumeClaims.
	DeleteVolumes bool
	// Timeout is how long an add-on may take to become healthy. Zero: five minutes.
	Timeout time.Duration
}

// Session works on the add-ons of one cluster.
type Session struct {
	// Applier changes the cluster.
	Applier *applier.Applier
	// Cluster is the manifest of the cluster.
	Cluster v1alpha1.Cluster
	// Kubernetes is the version of the API server.
	Kubernetes *semver.Version

	// hasKarpenter is set if the cluster has groups of Karpenter, for whose service account Slipway creates a role.
	hasKarpenter bool
	env          *cluster.Env
	state        store.Store
	sealer       store.Sealer // of the state store
	// checkedSigner is the ETag of the signature whose signer was checked, empty for a cluster without one; nil: none was.
	checkedSigner *string
}

// Open reads the manifest of a cluster and connects to its API.
func Open(ctx context.Context, env *cluster.Env, name string, o Options) (*Session, error) {
	s, err := openState(ctx, env, name)
	if err != nil {
		return nil, err
	}

	config, err := connect(ctx, env, s.Cluster, o)
	if err != nil {
		return nil, err
	}

	config.WarningHandler = &warnings{notify: func(text string) { env.Notifyf("warning: %s", text) }}
	if s.Applier, s.Kubernetes, err = newApplier(config, env.Now); err != nil {
		return nil, fmt.Errorf("connect to the Kubernetes API of cluster %s: %w", name, err)
	}

	s.Applier.Force = o.Force
	s.Applier.DeleteProtected = o.DeleteProtected
	s.Applier.DeleteVolumes = o.DeleteVolumes
	s.Applier.Timeout = o.Timeout
	s.Applier.Notify = func(message string) { env.Notifyf("%s", message) }

	return s, nil
}

// OpenOffline reads the manifest of a cluster. The session cannot change the cluster, and has the version of Kubernetes
// that the manifest asks for.
func OpenOffline(ctx context.Context, env *cluster.Env, name string) (*Session, error) {
	s, err := openState(ctx, env, name)
	if err != nil {
		return nil, err
	}

	s.Kubernetes, err = bundle.ParseKubernetesVersion(s.Cluster.Spec.KubernetesVersion)
	if err != nil {
		return nil, err
	}

	return s, nil
}

// openState returns a session with the state store, and with the manifest of a cluster in it.
func openState(ctx context.Context, env *cluster.Env, name string) (*Session, error) {
	state, sealer, err := env.Stores.State(ctx)
	if err != nil {
		return nil, err
	}

	set, err := clusterstate.LoadManifests(ctx, state, name)
	if err != nil {
		return nil, err
	}

	return &Session{
		Cluster:      set.Cluster,
		env:          env,
		state:        state,
		sealer:       sealer,
		hasKarpenter: len(manifest.KarpenterGroups(set.Groups)) > 0,
	}, nil
}

// connect returns how the API of a cluster is reached.
func connect(ctx context.Context, env *cluster.Env, desired v1alpha1.Cluster, o Options) (*rest.Config, error) {
	if o.Kubeconfig != "" {
		config, err := clientcmd.BuildConfigFromFlags("", o.Kubeconfig)
		if err != nil {
			return nil, fmt.Errorf("read kubeconfig %s: %w", o.Kubeconfig, err)
		}

		config.QPS = -1 // as access.RESTConfig

		return config, nil
	}

	state, sealer, err := env.Stores.State(ctx)
	if err != nil {
		return nil, err
	}

	cfg, err := awsConfig(ctx, env, desired)
	if err != nil {
		return nil, err
	}

	return access.RESTConfig(ctx, cfg, access.Request{
		Store:   state,
		Sealer:  sealer,
		Cluster: desired.Metadata.Name,
		User:    env.User,
		Now:     env.Now,
	})
}

// awsConfig returns the configuration of calls to the region of a cluster.
func awsConfig(ctx context.Context, env *cluster.Env, desired v1alpha1.Cluster) (aws.Config, error) {
	return env.AWS(ctx, cmp.Or(env.Region, desired.Spec.CloudProvider.AWS.Region))
}

// newApplier returns an applier for an API, and its version.
func newApplier(config *rest.Config, now func() time.Time) (*applier.Applier, *semver.Version, error) {
	requests, err := discovery.NewDiscoveryClientForConfig(config)
	if err != nil {
		return nil, nil, err
	}

	info, err := requests.ServerVersion()
	if err != nil {
		return nil, nil, diag.WithHint(err, "check that the API is reachable: slipway validate cluster")
	}

	version, err := bundle.ParseKubernetesVersion(info.GitVersion)
	if err != nil {
		return nil, nil, err
	}

	client, err := dynamic.NewForConfig(config)
	if err != nil {
		return nil, nil, err
	}

	return &applier.Applier{
		Client: dynamicclient.New(client),
		Mapper: restmapper.NewDeferredDiscoveryRESTMapper(memory.NewMemCacheClient(requests)),
		Now:    now,
		Wait:   wait,
	}, version, nil
}

// warnings reports each warning of the API server once. The dry run and the apply give the same ones.
type warnings struct {
	notify func(text string)

	mu   sync.Mutex
	seen map[string]bool
}

// HandleWarningHeader implements [rest.WarningHandler].
func (w *warnings) HandleWarningHeader(code int, _, text string) {
	const miscellaneous = 299 // the only code that Kubernetes uses

	w.mu.Lock()
	defer w.mu.Unlock()
	if code != miscellaneous || text == "" || w.seen[text] {
		return
	}

	if w.seen == nil {
		w.seen = map[string]bool{}
	}

	w.seen[text] = true
	w.notify(text)
}

// wait waits until a time has passed or the context ends.
func wait(ctx context.Context, d time.Duration) error {
	timer := time.NewTimer(d)
	defer timer.Stop()

	select {
	case <-ctx.Done():
		return errors.Join(errors.New("interrupted"), context.Cause(ctx))
	case <-timer.C:
		return nil
	}
}
