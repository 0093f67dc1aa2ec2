// SPDX-License-Identifier: Apache-2.0

package upgrade

import (
	"fmt"

	"github.com/slipway-k8s/slipway/internal/lib/asset"
)

// Component is a program besides Kubernetes whose version the asset catalogue sets.
type Component struct {
	// Name of the file or image in the catalogue.
	Name string
	// From and To are its versions before and after the upgrade.
	From, To string
}

// ChangedComponents returns the components whose default version differs between two catalogues.
func ChangedComponents(before, after asset.Catalog) []Component {
	var out []Component
	for _, name := range []string{
		"etcd", "containerd", "runc", "cni-plugins", "pause", "coredns", "flannel", "flannel-cni-plugin",
		"amazon-k8s-cni", "amazon-k8s-cni-init",
	} {
		c := Component{Name: name, From: firstOf(before.Versions(name)), To: firstOf(after.Versions(name))}
		if c.From != c.To {
			out = append(out, c)
		}
	}

	return out
}

func firstOf(versions []string) string {
	if len(versions) == 0 {
		return ""
	}

	return versions[0]
}

// checkEtcd returns why etcd cannot be upgraded between two catalogues; empty if it can. Like Kubernetes, etcd is
// upgraded one minor version at a time, and its data cannot be read by an earlier minor version
// (https://etcd.io/docs/v3.6/upgrades/).
func checkEtcd(changed []Component) string {
	for _, c := range changed {
		if c.Name != "etcd" || c.From == "" {
			continue
		}

		from, errFrom := ParseVersion(c.From)
		to, errTo := ParseVersion(c.To)

		switch {
		case errFrom != nil || errTo != nil:
			return fmt.Sprintf("the versions of etcd in the asset catalogues, %q and %q, cannot be compared", c.From, c.To)
		case to.Compare(from) < 0:
			return fmt.Sprintf("the asset catalogue has etcd %s, older than the cluster's %s", to, from)
		case to.Major != from.Major || to.minorsAhead(from) > 1:
			return fmt.Sprintf("the asset catalogue has etcd %s, and the cluster %s: etcd is upgraded one minor "+
				"version at a time", to, from)
		}
	}

	return ""
}
