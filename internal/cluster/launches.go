// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"

	"github.com/slipway-k8s/slipway/api/v1alpha1"
	"github.com/slipway-k8s/slipway/internal/cluster/clusterstate"
	"github.com/slipway-k8s/slipway/internal/infra/aws/discovery"
	"github.com/slipway-k8s/slipway/internal/infra/model"
	"github.com/slipway-k8s/slipway/internal/lib/diag"
	"github.com/slipway-k8s/slipway/internal/lib/pki"
	"github.com/slipway-k8s/slipway/internal/lib/store"
	"github.com/slipway-k8s/slipway/internal/machine/kube"
	"github.com/slipway-k8s/slipway/internal/machine/node"
	"github.com/slipway-k8s/slipway/internal/manifest"
)

// publishedLaunches are the launches of Karpenter as the machine store has them.
type publishedLaunches struct {
	node.Launches

	// object that has them; without an ETag there is none.
	object store.Object
}

// LaunchPublisher reads and writes what Karpenter launches the machines of a cluster with. It may
// not be used concurrently.
type LaunchPublisher struct {
	session *Session
	desired *Desired
}

// NewLaunchPublisher returns the publisher of what d wants.
func NewLaunchPublisher(session *Session, d *Desired) LaunchPublisher {
	return LaunchPublisher{session: session, desired: d}
}

// read returns the published launches, as they were when the view was opened or as they were
// written since. Those that the cluster's CA did not sign count as none, and are overwritten.
func (p LaunchPublisher) read(ctx context.Context) (publishedLaunches, error) {
	if p.desired.publishedLaunches != nil {
		return *p.desired.publishedLaunches, nil
	}

	out, err := p.readFrom(ctx, p.desired.publishedStore())
	if err == nil {
		p.desired.publishedLaunches = &out
	}

	return out, err
}

// readFrom is read for a store that is read now.
func (p LaunchPublisher) readFrom(ctx context.Context, from store.Store) (publishedLaunches, error) {
	key := node.LaunchesKey(p.session.Name)
	out := publishedLaunches{object: store.Object{Key: key}}
	o, err := from.Get(ctx, key)
	if errors.Is(err, store.ErrNotFound) {
		return out, nil
	}

	if err != nil {
		return out, err
	}

	public, err := pki.LoadPublicBundle(ctx, p.desired.View, p.session.Name)
	if err != nil {
		return out, err
	}

	out.object = o
	launches, err := node.VerifyLaunches(o.Body, public.CAs[pki.KubernetesCA], p.session.Name)
	if err == nil {
		out.Launches = launches
	}

	return out, nil
}

// readNow returns the launches as the machine store has them now.
func (p LaunchPublisher) readNow(ctx context.Context) (publishedLaunches, error) {
	if err := p.session.ResolveMachineStore(ctx, p.desired); err != nil {
		return publishedLaunches{}, err
	}

	return p.readFrom(ctx, p.desired.MachineStore)
}

// keepsKarpenter reports whether Karpenter's role must stay in a cluster that has no group of
// Karpenter any more: machines run that it launched. The first apply after it has ended them
// deletes the role.
func (p LaunchPublisher) keepsKarpenter(ctx context.Context, former publishedLaunches) (bool, error) {
	if former.object.ETag == "" || len(manifest.KarpenterGroups(p.desired.Manifests.Groups)) > 0 {
		return false, nil
	}

	if len(former.Pools) > 0 {
		return true, nil
	}

	return discovery.HasKarpenterMachines(ctx, p.session.Config, p.session.Name)
}

// next returns the launches with what is wanted, and whether they differ from the published ones.
func (p LaunchPublisher) next(former publishedLaunches) (node.Launches, bool) {
	if len(p.desired.launches) == 0 && former.object.ETag == "" {
		return node.Launches{}, false // a cluster without Karpenter
	}

	return node.NewLaunches(node.LaunchesInput{
		Cluster:     p.session.Name,
		Former:      former.Launches,
		Current:     p.desired.launches,
		FirstSerial: p.session.Env.Now().Unix(),
	})
}

// addUnpublished adds the key of the launches to the unpublished ones if they differ from what is
// wanted.
func (p LaunchPublisher) addUnpublished(ctx context.Context) error {
	former, err := p.read(ctx)
	if err != nil {
		return err
	}

	if _, changed := p.next(former); changed {
		p.desired.Unpublished = append(p.desired.Unpublished, former.object.Key)
		slices.Sort(p.desired.Unpublished)
	}

	return nil
}

// Publish lets machines of Karpenter's groups join that run what is wanted. It writes nothing if
// they may already. Karpenter itself launches them so after a rolling update only, except in new
// groups. The result has the groups that wait for one, sorted.
func (p LaunchPublisher) Publish(ctx context.Context) ([]string, error) {
	former, err := p.read(ctx)
	if err != nil {
		return nil, err
	}

	next, changed := p.next(former)
	if !changed {
		return nil, nil
	}

	if err := p.write(ctx, former, next); err != nil {
		return nil, err
	}

	return slices.Sorted(maps.Keys(next.Next)), nil
}

// FindWaiting returns those of the groups whose machines Karpenter launches otherwise after a
// rolling update, sorted.
func (p LaunchPublisher) FindWaiting(ctx context.Context, groups []string) ([]string, error) {
	former, err := p.readNow(ctx)
	if err != nil {
		return nil, err
	}

	_, waiting := former.Promote(groups, 0)
	slices.Sort(waiting)

	return waiting, nil
}

// Promote lets Karpenter launch the machines of groups as the last apply wanted it. The result has
// the groups that have changed.
func (p LaunchPublisher) Promote(ctx context.Context, groups []string) ([]string, error) {
	former, err := p.readNow(ctx)
	if err != nil {
		return nil, err
	}

	next, changed := former.Promote(groups, p.session.Env.Now().Unix())
	if len(changed) == 0 {
		return nil, nil
	}

	return changed, p.write(ctx, former, next)
}

// write signs and writes launches, unless another process has changed the former ones in the
// meantime.
func (p LaunchPublisher) write(ctx context.Context, former publishedLaunches, next node.Launches) error {
	if err := p.session.ensureLock(ctx); err != nil {
		return err
	}

	ca, err := p.session.openKubernetesCA(ctx)
	if err != nil {
		return err
	}

	body, err := next.Sign(ca.Key())
	if err != nil {
		return err
	}

	object := store.Object{Key: former.object.Key, Body: body}
	written, err := clusterstate.ReplaceObject(ctx, p.desired.MachineStore, object, former.object)
	if errors.Is(err, store.ErrConflict) {
		return diag.WithHint(
			fmt.Errorf("publish %s: %w", former.object.Key, err),
			"rerun the command: another process wrote the launches of Karpenter at the same time",
		)
	}

	if err != nil {
		return err
	}

	p.desired.publishedLaunches = &publishedLaunches{Launches: next, object: written}
	if p.desired.publishedStore() == store.Store(p.desired.View) {
		p.desired.View.AddObject(written)
	}

	return nil
}

// maxPodsOfKubelet is the kubelet's default of maxPods.
const maxPodsOfKubelet = 110

// karpenterPools returns what Karpenter is told about its groups.
func karpenterPools(set manifest.Set, launches map[string]model.KarpenterLaunch) map[string]node.Pool {
	out := map[string]node.Pool{}
	for _, g := range manifest.KarpenterGroups(set.Groups) {
		l := launches[g.Metadata.Name]
		root := g.Spec.RootVolume
		root.EncryptionKey = l.VolumeKey
		out[g.Metadata.Name] = node.Pool{
			Launch:         node.Launch{UserData: l.UserData, Image: l.Image.ID},
			Profile:        l.Profile,
			Subnets:        l.Subnets,
			SecurityGroups: l.SecurityGroups,
			RootDevice:     l.Image.RootDevice,
			RootVolume:     root,
			HopLimit:       max(g.Spec.InstanceMetadata.HTTPPutResponseHopLimit, 1),
			Tags:           l.Tags,
			Architecture:   set.Arch(g.Spec.MachineType),
			MachineTypes:   manifest.MachineTypes(g.Spec),
			Spot:           manifest.HasSpot(g.Spec),
			NodeLabels:     g.Spec.NodeLabels,
			Taints:         g.Spec.Taints,
			Kubelet:        karpenterKubelet(set, g.Spec),
			Limits: node.PoolLimits{
				Machines:  g.Spec.MaxMachines(),
				Disrupted: cmp.Or(string(g.Spec.RollingUpdate.MaxUnavailable), "1"),
			},
		}
	}

	return out
}

// karpenterKubelet returns the settings by which Karpenter computes what fits on a machine. The
// kubelet reserves a share of the machine, so it is that of the largest type: on others more fits
// than Karpenter thinks, and never less.
func karpenterKubelet(set manifest.Set, spec v1alpha1.InstanceGroupSpec) v1alpha1.Kubelet {
	cpus, memory := 0, 0
	for _, name := range manifest.MachineTypes(spec) {
		if t, known := set.FindInstanceType(name); known {
			cpus = max(cpus, t.VCPU)
			memory = max(memory, t.MemoryMiB)
		}
	}

	reserved, system := kube.ReservedResources(cpus, memory, spec.Kubelet)

	return v1alpha1.Kubelet{
		KubeReserved:   reserved,
		SystemReserved: system,
		EvictionHard:   spec.Kubelet.EvictionHard,
		MaxPods:        cmp.Or(spec.Kubelet.MaxPods, maxPodsOfKubelet),
	}
}
