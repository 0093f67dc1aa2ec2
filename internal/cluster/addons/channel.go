// SPDX-License-Identifier: Apache-2.0

package addons

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/slipway-k8s/slipway/api/v1alpha1"
	"github.com/slipway-k8s/slipway/internal/cluster"
	"github.com/slipway-k8s/slipway/internal/cluster/addons/source"
	"github.com/slipway-k8s/slipway/internal/cluster/clusterstate"
	"github.com/slipway-k8s/slipway/internal/lib/asset"
	"github.com/slipway-k8s/slipway/internal/lib/diag"
	"github.com/slipway-k8s/slipway/internal/lib/store"
	"github.com/slipway-k8s/slipway/internal/machine/addon/applier"
	"github.com/slipway-k8s/slipway/internal/machine/addon/bundle"
	"github.com/slipway-k8s/slipway/internal/machine/addon/published"
	"github.com/slipway-k8s/slipway/internal/manifest"
)

// Channel is a channel with the objects of the add-ons that were chosen for a cluster.
type Channel struct {
	// Name of the channel.
	Name string
	// Releases in the order in which they are applied.
	Releases []applier.Release
	// Unfit are add-ons of which no version is for the cluster's version of Kubernetes.
	Unfit []string
	// Source is where the control plane reads the channel from. Then it has no releases here. Nil: nowhere.
	Source *published.Source
}

// Load chooses the versions of a channel for the cluster and reads their objects. Paths in the channel are relative to
// the directory.
func (s *Session) Load(ctx context.Context, text []byte, directory string) (Channel, error) {
	parsed, findings := manifest.ParseAddonChannel(text)
	if err := findings.Err(); err != nil {
		return Channel{}, err
	}

	if parsed.Spec.Source != nil {
		return Channel{}, diag.WithHint(
			fmt.Errorf("channel %s: %w", parsed.Metadata.Name, ErrFollowed),
			"publish it: slipway addons publish; or give the file channel.yaml of a checkout of the source",
		)
	}

	choice, err := bundle.Choose(parsed.Spec.Addons, s.Kubernetes)
	if err != nil {
		return Channel{}, err
	}

	waves, err := bundle.Waves(choice.Addons)
	if err != nil {
		return Channel{}, err
	}

	values, err := s.clusterValues(ctx, choice.Addons)
	if err != nil {
		return Channel{}, err
	}

	out := Channel{Name: parsed.Metadata.Name, Unfit: choice.Unfit}
	reader := source.Reader{
		Directory:  directory,
		Kubernetes: s.Kubernetes,
		Values:     values,
		ReadState:  s.readState,
		ReadSecret: s.readSecret,
	}

	var errs []error

	for n, wave := range waves {
		for _, a := range wave {
			objects, err := reader.Objects(ctx, a)
			if err != nil {
				errs = append(errs, fmt.Errorf("add-on %s: %w", a.Name, err))
				continue
			}

			release := applier.Release{Addon: a, Channel: out.Name, Wave: n + 1, Objects: objects}
			out.Releases = append(out.Releases, release)
		}
	}

	return out, errors.Join(errs...)
}

// Plan returns what an apply of the channel would do.
func (s *Session) Plan(ctx context.Context, c Channel) (applier.Plan, error) {
	plan, err := s.Applier.Plan(ctx, c.Name, c.Releases)
	plan.Left = slices.DeleteFunc(plan.Left, func(i applier.Inventory) bool { return slices.Contains(c.Unfit, i.Name) })

	return plan, err
}

// Left returns the add-ons that were applied from this channel and that it no longer has. Those of which only protected
// objects are left are among them if the applier deletes one of these.
func (c Channel) Left(all []applier.Inventory, a *applier.Applier) []string {
	var out []string

	for _, i := range all {
		named := func(r applier.Release) bool { return r.Addon.Name == i.Name }
		has := slices.ContainsFunc(c.Releases, named) || slices.Contains(c.Unfit, i.Name)
		deletes := func(e applier.Entry) bool { return a.Deletes(e.Reference, all) }
		if i.Channel == c.Name && !has && (i.State != applier.Deleted || slices.ContainsFunc(i.Objects, deletes)) {
			out = append(out, i.Name)
		}
	}

	return out
}

// clusterValues returns the values that parameters of add-ons can be taken from. A cluster that was never applied has no asset
// catalogue yet: then only its manifest names a container registry.
func (s *Session) clusterValues(ctx context.Context, list []v1alpha1.Addon) (map[string]string, error) {
	catalog, err := cluster.ReadCatalog(ctx, s.state, s.Cluster)
	if errors.Is(err, store.ErrNotFound) {
		catalog, err = asset.Catalog{ContainerRegistry: s.Cluster.Spec.Assets.ContainerRegistry}, nil
	}

	if err != nil {
		return nil, fmt.Errorf("find out the container registry of cluster %s: %w", s.Cluster.Metadata.Name, err)
	}

	values := manifest.AddonClusterValues(s.Cluster, catalog.ImagePrefix())

	return values, s.addCloudValues(ctx, list, values)
}

// readState returns an object of the cluster's add-ons in the state store.
func (s *Session) readState(ctx context.Context, path string) ([]byte, error) {
	key := clusterstate.AddonPrefix(s.Cluster.Metadata.Name) + path

	object, err := s.state.Get(ctx, key)
	if err != nil {
		return nil, fmt.Errorf("%s of %s: %w", key, s.state.URL(), err)
	}

	return object.Body, s.verify(ctx, object)
}
