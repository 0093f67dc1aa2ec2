// SPDX-License-Identifier: Apache-2.0

package upgrade

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"k8s.io/client-go/kubernetes"

	"github.com/slipway-k8s/slipway/internal/cluster"
	"github.com/slipway-k8s/slipway/internal/cluster/access"
	"github.com/slipway-k8s/slipway/internal/cluster/clusterstate"
	"github.com/slipway-k8s/slipway/internal/cluster/manifests"
	"github.com/slipway-k8s/slipway/internal/cluster/rollingupdate"
	"github.com/slipway-k8s/slipway/internal/lib/asset"
	"github.com/slipway-k8s/slipway/internal/lib/diag"
	"github.com/slipway-k8s/slipway/internal/lib/store"
)

// upgrader carries out one upgrade.
type upgrader struct {
	env     *cluster.Env
	request Request
	state   store.Store
	sealer  store.Sealer
	session *cluster.Session

	stack      bool          // the cluster is a CloudFormation stack
	catalog    asset.Catalog // of the upgrade
	newCatalog bool          // catalog must be written
	components []Component   // that catalog changes
	available  []Version     // of Kubernetes, in catalog
	target     Version
	replaced   int
}

// newUpgrader reads the cluster's state and chooses the target.
func newUpgrader(ctx context.Context, env *cluster.Env, req Request) (*upgrader, error) {
	state, sealer, err := env.Stores.State(ctx)
	if err != nil {
		return nil, err
	}

	u := &upgrader{env: env, request: req, state: state, sealer: sealer}
	set, err := clusterstate.LoadManifests(ctx, state, req.Name)
	if err != nil {
		return nil, err
	}

	u.session, err = cluster.Open(ctx, env, req.Name, set.Cluster.Spec.CloudProvider.AWS.Region)
	if err != nil {
		return nil, err
	}

	via, err := clusterstate.ReadProvisioner(ctx, state, req.Name)
	if err != nil {
		return nil, err
	}

	u.stack = via == clusterstate.CloudFormation
	if via == "" {
		return nil, diag.WithHint(
			fmt.Errorf("cluster %s was not applied by slipway, which therefore cannot upgrade it", req.Name),
			"if Terraform creates it, see docs/operations/upgrade.md; else set spec.kubernetesVersion before the first apply",
		)
	}

	pinned, err := u.loadCatalogs(ctx)
	if err != nil {
		return nil, err
	}

	return u, u.chooseTarget(ctx, pinned)
}

// loadCatalogs loads the catalogue of the upgrade, and returns the one that the cluster is pinned to. The former also
// has the versions of the latter, which machines keep for now.
func (u *upgrader) loadCatalogs(ctx context.Context) (pinned asset.Catalog, err error) {
	if pinned, err = clusterstate.ReadPinnedCatalog(ctx, u.state, u.request.Name); err != nil {
		return pinned, err
	}

	given, err := manifests.LoadCatalog(ctx, u.request.Catalog)
	if err != nil {
		return pinned, err
	}

	u.components = ChangedComponents(pinned, given)
	u.catalog = given.WithMissing(pinned)
	for _, text := range u.catalog.Versions("kubelet") {
		v, err := ParseVersion(text)
		if err != nil {
			return pinned, err
		}

		u.available = append(u.available, v)
	}

	return pinned, nil
}

// chooseTarget sets the target, and whether the catalogue must be written for it.
func (u *upgrader) chooseTarget(ctx context.Context, pinned asset.Catalog) error {
	u.request.Version = asset.NewestPatch(strings.TrimPrefix(u.request.Version, "v"), u.versionNames())
	var err error
	if u.request.Version == "" {
		var o Observation
		if o, err = u.observe(ctx); err != nil {
			return err
		}

		if u.target, err = u.request.chooseTarget(o, u.available); err != nil {
			return err
		}
	} else if u.target, err = ParseVersion(u.request.Version); err != nil {
		return diag.WithHint(err, "use one of "+strings.Join(u.versionNames(), ", "))
	}

	if !slices.Contains(u.available, u.target) {
		return diag.WithHint(
			fmt.Errorf("version %s of Kubernetes is not in the asset catalogue", u.target),
			"use one of "+strings.Join(u.versionNames(), ", ")+", or set --assets to another catalogue",
		)
	}

	u.newCatalog = len(u.components) > 0 || !slices.Contains(pinned.Versions("kubelet"), u.target.String())

	return nil
}

// chooseTarget returns the target of a request without a version.
func (r Request) chooseTarget(o Observation, available []Version) (Version, error) {
	if !r.patchesOnly {
		return defaultTarget(o, available), nil
	}

	target, reason := automaticTarget(o, available)
	if reason != "" {
		return target, diag.WithHint(
			fmt.Errorf("cluster %s is not upgraded automatically: %s", r.Name, reason),
			"complete it first: slipway upgrade cluster "+r.Name,
		)
	}

	return target, nil
}

// defaultTarget returns the version of an unfinished upgrade, else the newest one that can be reached.
func defaultTarget(o Observation, available []Version) Version {
	desired := desiredVersion(o)
	if s := Decide(o, desired); s.Type != StepDone {
		return desired
	}

	return latestReachable(desired, available)
}

// desiredVersion returns the version of the control plane in the manifests.
func desiredVersion(o Observation) Version {
	var desired Version
	for _, g := range o.Groups {
		if g.ControlPlane {
			desired = g.Desired
		}
	}

	return desired
}

// observe reads what decisions depend on.
func (u *upgrader) observe(ctx context.Context) (Observation, error) {
	o := Observation{Stack: u.stack, NewCatalog: u.newCatalog}
	set, err := clusterstate.LoadManifests(ctx, u.state, u.request.Name)
	if err != nil {
		return o, err
	}

	applied, err := clusterstate.ReadAppliedManifests(ctx, u.state, u.request.Name)
	if err != nil {
		return o, err
	}

	if o.CatalogPending, err = clusterstate.IsCatalogPending(ctx, u.state, u.request.Name); err != nil {
		return o, err
	}

	if others := otherChanges(set, applied); len(others) > 0 {
		return o, diag.WithHint(
			fmt.Errorf("the manifests of cluster %s have changes that were not applied: %s",
				u.request.Name, strings.Join(others, "; ")),
			"apply them first: slipway apply "+u.request.Name,
		)
	}

	if o.Groups, err = observeGroups(set, applied); err != nil {
		return o, err
	}

	if !u.stack {
		returned, err := rollingupdate.GroupsRolledBack(ctx, u.session, u.state)
		if err != nil {
			return o, err
		}

		for i := range o.Groups {
			o.Groups[i].RolledBack = slices.Contains(returned, o.Groups[i].Name)
		}
	}

	client, err := u.newClient(ctx)
	if err != nil {
		return o, err
	}

	o.Machines, err = observeMachines(ctx, client, o.Groups)

	return o, err
}

// newClient returns a client of the cluster's API with a connection of its own.
func (u *upgrader) newClient(ctx context.Context) (kubernetes.Interface, error) {
	return access.NewKubeClient(ctx, u.session.Config, u.accessRequest())
}

// accessRequest returns how the cluster's API is reached.
func (u *upgrader) accessRequest() access.Request {
	return access.Request{
		Store:   u.state,
		Sealer:  u.sealer,
		Cluster: u.request.Name,
		User:    u.env.User,
		Now:     u.env.Now,
	}
}
