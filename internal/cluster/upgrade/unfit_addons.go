// SPDX-License-Identifier: Apache-2.0

package upgrade

import (
	"context"
	"fmt"
	"strings"

	"k8s.io/client-go/dynamic"

	"github.com/slipway-k8s/slipway/internal/cluster/access"
	"github.com/slipway-k8s/slipway/internal/lib/diag"
	"github.com/slipway-k8s/slipway/internal/machine/addon/applier"
	"github.com/slipway-k8s/slipway/internal/machine/addon/applier/dynamicclient"
	"github.com/slipway-k8s/slipway/internal/machine/addon/bundle"
)

// UnfitAddon is an add-on of the cluster that is not for the version of an upgrade.
type UnfitAddon struct {
	// Name and Version of the add-on.
	Name, Version string
	// Channel that it was applied from.
	Channel string
	// KubernetesVersion is the range of versions of Kubernetes that it is for.
	KubernetesVersion string
}

// String returns the add-on with its range.
func (u UnfitAddon) String() string {
	return fmt.Sprintf("%s %s of channel %s (for Kubernetes %s)", u.Name, u.Version, u.Channel, u.KubernetesVersion)
}

// unfitAddons returns the add-ons that are not for a version of Kubernetes, by the range that their channel gave.
func unfitAddons(inventories []applier.Inventory, target Version) ([]UnfitAddon, error) {
	version, err := bundle.ParseKubernetesVersion(target.String())
	if err != nil {
		return nil, err
	}

	var out []UnfitAddon
	for _, i := range inventories {
		fits, err := bundle.Supports(i.KubernetesVersion, version)
		if err != nil {
			return nil, fmt.Errorf("add-on %s: %w", i.Name, err)
		}

		if fits || i.State == applier.Deleted {
			continue
		}

		installed := i.Version
		if installed == "" { // its first apply was interrupted or failed
			installed = i.Target
		}

		out = append(out, UnfitAddon{
			Name:              i.Name,
			Version:           installed,
			Channel:           i.Channel,
			KubernetesVersion: i.KubernetesVersion,
		})
	}

	return out, nil
}

// unfitError says that add-ons are not for the version of an upgrade.
func unfitError(p Proposal) error {
	var names []string
	for _, a := range p.Unfit {
		names = append(names, a.String())
	}

	return diag.WithHint(
		fmt.Errorf("%d add-ons of cluster %s are not for Kubernetes %s: %s",
			len(names), p.Cluster, p.To, strings.Join(names, ", ")),
		"apply versions that are for both versions of Kubernetes (slipway addons apply), or widen kubernetesVersion of their "+
			"entries; or set --ignore-addon-versions, and apply other versions after the upgrade",
	)
}

// findUnfitAddons returns the cluster's add-ons that are not for the target.
func (u *upgrader) findUnfitAddons(ctx context.Context) ([]UnfitAddon, error) {
	config, err := access.RESTConfig(ctx, u.session.Config, u.accessRequest())
	if err != nil {
		return nil, err
	}

	client, err := dynamic.NewForConfig(config)
	if err != nil {
		return nil, err
	}

	inventories, err := (&applier.Applier{Client: dynamicclient.New(client)}).Inventories(ctx)
	if err != nil {
		return nil, err
	}

	return unfitAddons(inventories, u.target)
}
