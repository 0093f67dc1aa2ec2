// SPDX-License-Identifier: Apache-2.0

package rollingupdate

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"

	"github.com/Masterminds/semver/v3"

	"github.com/slipway-k8s/slipway/api/v1alpha1"
	"github.com/slipway-k8s/slipway/internal/cluster"
	"github.com/slipway-k8s/slipway/internal/cluster/clusterstate"
	"github.com/slipway-k8s/slipway/internal/cluster/rollout"
	"github.com/slipway-k8s/slipway/internal/lib/diag"
	"github.com/slipway-k8s/slipway/internal/machine/node"
)

// A control plane never returns to an earlier minor version of Kubernetes or etcd: an API server cannot read objects that a
// later one has stored in a new form, and etcd cannot read the data of a later minor version
// (https://kubernetes.io/releases/version-skew-policy/, https://etcd.io/docs/v3.6/upgrades/).

// documentVersions are the versions in a node document of the control plane.
type documentVersions struct {
	// Kubernetes is such as 1.36.3.
	Kubernetes string
	// Etcd is such as 3.6.5; empty if the asset catalogue does not know the file.
	Etcd string
	// EtcdHash is the SHA-256 of etcd's archive.
	EtcdHash string
}

// describeDowngrade returns which version would be an earlier minor one; empty if none.
func describeDowngrade(now, former documentVersions) string {
	if text := describeOlder("Kubernetes", now.Kubernetes, former.Kubernetes); text != "" {
		return text
	}

	if now.EtcdHash == former.EtcdHash {
		return ""
	}

	if now.Etcd == "" || former.Etcd == "" {
		return "another etcd whose version is not known"
	}

	return describeOlder("etcd", now.Etcd, former.Etcd)
}

// describeOlder returns a former version of a component if its minor version is an earlier one.
func describeOlder(component, now, former string) string {
	a, errNow := semver.NewVersion(now)
	b, errFormer := semver.NewVersion(former)
	if errNow != nil || errFormer != nil {
		return fmt.Sprintf("%s %q, which cannot be compared with %q", component, former, now)
	}

	if b.Major() > a.Major() || b.Major() == a.Major() && b.Minor() >= a.Minor() {
		return ""
	}

	return fmt.Sprintf("%s %s, older than %s", component, former, now)
}

// refuseDowngrade returns an error if the rollback to u.versions would return the control plane to an earlier minor version.
func (u *updater) refuseDowngrade(ctx context.Context, o rollout.Observation) error {
	if u.documents == nil {
		return nil
	}

	for _, g := range o.Groups {
		version := u.versions[groupKey(g.Name, g.Slot)]
		if g.Slot == "" || version == "" || version == g.Version || !hasBegun(o, g, version) {
			continue
		}

		var found [2]documentVersions
		for i, v := range []string{g.Version, version} {
			document, err := u.documents.ReadDocument(ctx, g, v)
			if err != nil {
				return err
			}

			if document == "" {
				return nil // not a template of slipway
			}

			if found[i], err = u.documents.ReadVersions(ctx, g.Name, document); err != nil {
				return fmt.Errorf(
					"read the versions of launch template version %s of slot %s: %w",
					v,
					g.Slot,
					err,
				)
			}
		}

		if text := describeDowngrade(found[0], found[1]); text != "" {
			return diag.WithHint(
				fmt.Errorf("slot %s of %s would return to launch template version %s with %s", g.Slot, g.Name, version, text),
				"the control plane has no way back to an earlier minor version: fix the cause and rerun the upgrade or the "+
					"rolling update, which continues; workers alone roll back with --rollback --group; "+
					"the last resort is a backup of etcd (slipway etcd restore)",
			)
		}
	}

	return nil
}

// hasBegun reports whether an update has begun with a group whose former version is known: no machine has the new one else.
func hasBegun(o rollout.Observation, g rollout.Group, former string) bool {
	return g.Launches != former || slices.ContainsFunc(o.Machines, func(m rollout.Machine) bool {
		return m.Group == g.Name && m.Slot == g.Slot && m.Version == g.Version
	})
}

// ReadVersions implements documentPublisher.
func (s sessionDocuments) ReadVersions(ctx context.Context, group, document string) (documentVersions, error) {
	var out documentVersions
	d, err := cluster.Load(ctx, s.session.Env, s.session.Name)
	if err != nil {
		return out, err
	}

	if err := s.session.ResolveMachineStore(ctx, d); err != nil {
		return out, err
	}

	key := node.DocumentKey(s.session.Name, v1alpha1.RoleControlPlane, group, document)
	o, err := d.MachineStore.Get(ctx, key)
	if err != nil {
		return out, err
	}

	state, _, err := s.session.Env.Stores.State(ctx)
	if err != nil {
		return out, err
	}

	catalog, err := clusterstate.ReadPinnedCatalog(ctx, state, s.session.Name)
	if err != nil {
		return out, err
	}

	// An earlier or later slipway may have written other fields.
	var content struct {
		KubernetesVersion string      `json:"kubernetesVersion"`
		Files             []node.File `json:"files"`
	}
	if err := json.Unmarshal(o.Body, &content); err != nil {
		return out, fmt.Errorf("read %s: %w", key, err)
	}

	out.Kubernetes = content.KubernetesVersion
	i := slices.IndexFunc(content.Files, func(f node.File) bool { return f.Name == node.ComponentEtcd })
	if i < 0 {
		return out, errors.New("the node document " + key + " has no etcd")
	}

	out.EtcdHash = content.Files[i].SHA256
	for _, f := range catalog.Files {
		if f.Name == node.ComponentEtcd && f.SHA256 == out.EtcdHash {
			out.Etcd = f.Version
		}
	}

	return out, nil
}
