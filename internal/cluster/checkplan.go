// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/slipway-k8s/slipway/internal/cluster/clusterstate"
	"github.com/slipway-k8s/slipway/internal/infra/aws/discovery"
	"github.com/slipway-k8s/slipway/internal/infra/awskind"
	"github.com/slipway-k8s/slipway/internal/infra/graph"
	"github.com/slipway-k8s/slipway/internal/infra/plan"
	"github.com/slipway-k8s/slipway/internal/lib/diag"
	"github.com/slipway-k8s/slipway/internal/machine/node"
	"github.com/slipway-k8s/slipway/internal/manifest"
)

// PlanOptions are the risks that a request takes.
type PlanOptions struct {
	// DestroyData allows the plan to destroy volumes and keys that the manifests no longer have.
	DestroyData bool
	// RecreateLostVolumes allows the plan to create etcd volumes again whose data is gone.
	RecreateLostVolumes bool
	// AbsentVolume is the id of a volume that is planned without: it is set aside before the plan is carried out. Empty: none.
	AbsentVolume string
}

// withoutAbsentVolume returns the resources without the volume that is planned without.
func (o PlanOptions) withoutAbsentVolume(actual []plan.ActualResource) []plan.ActualResource {
	if o.AbsentVolume == "" {
		return actual
	}

	return slices.DeleteFunc(slices.Clone(actual), func(r plan.ActualResource) bool {
		_, isVolume := r.Resource.(awskind.Volume)

		return isVolume && r.ID == o.AbsentVolume
	})
}

// CheckManifestChanges returns what the manifests of d change that cannot change in place since the last
// apply, even if that did not succeed.
func (session *Session) CheckManifestChanges(ctx context.Context, d *Desired) (diag.Findings, error) {
	last, err := session.readLastApplied(ctx, d.View)
	if err != nil {
		return nil, err
	}

	applied, err := clusterstate.FixedManifests(ctx, d.View, session.Name, last.LastApplied)
	if err != nil {
		return nil, err
	}

	changes := manifest.CheckChanges(applied, d.Manifests)
	if d.ForStack {
		changes = append(changes, manifest.CheckStackChanges(applied, d.Manifests)...)
	}

	return changes, nil
}

// checkPlan returns why d.Plan must not be applied, in addition to findings. A change of the manifests that
// cannot be made in place is the cause of all other findings, which are then left out. An empty plan needs no
// call.
func (session *Session) checkPlan(
	ctx context.Context,
	d *Desired,
	findings diag.Findings,
	options PlanOptions,
) (diag.Findings, error) {
	if d.Plan.IsEmpty() && len(d.Unpublished) == 0 {
		return findings, nil
	}

	changes, err := session.CheckManifestChanges(ctx, d)
	if err != nil || changes.Err() != nil {
		return changes, err
	}

	lost, err := session.findLostVolumes(ctx, d)
	if err != nil {
		return findings, err
	}

	zones := map[string]bool{}

	for _, a := range d.Plan.Actual() {
		if s, ok := a.Resource.(awskind.Subnet); ok {
			zones[s.Zone] = true
		}
	}

	findings = append(findings, session.CheckZones(ctx, d.Manifests, zones)...)

	return append(findings, lost.Findings(d.Manifests.Cluster, options.RecreateLostVolumes)...), nil
}

// findLostVolumes returns the etcd volumes that d.Plan creates although they existed before: they are in the
// last-applied record, or their slot has had data.
func (session *Session) findLostVolumes(ctx context.Context, d *Desired) (LostVolumes, error) {
	missing := map[graph.Addr]bool{}
	for _, s := range d.Plan.Steps {
		missing[s.Addr] = s.Action == plan.Create
	}

	exists := func(addr graph.Addr) bool { return !missing[addr] }
	candidates := FindLostVolumes(d.Graph, exists, func(graph.Addr, string) bool { return true })
	if len(candidates.Lost) == 0 {
		return candidates, nil
	}

	last, err := session.readLastApplied(ctx, d.View)
	if err != nil {
		return candidates, err
	}

	joined, err := session.JoinedSlots(ctx, d)
	if err != nil {
		return candidates, err
	}

	lost := FindLostVolumes(d.Graph, exists, func(addr graph.Addr, slot string) bool {
		return slices.Contains(joined, slot) ||
			slices.ContainsFunc(last.Resources, func(r plan.AppliedResource) bool { return r.Addr == addr })
	})

	return session.withoutAbsent(ctx, d, lost)
}

// JoinedSlots returns the slots whose etcd member has had data, by the records of the machines.
func (session *Session) JoinedSlots(ctx context.Context, d *Desired) ([]string, error) {
	prefix := node.EtcdJoinedKey(session.Name, "")
	keys, err := d.ListedMachineStore().List(ctx, prefix)
	if err != nil {
		return nil, fmt.Errorf("list the etcd members that have had data: %w", err)
	}

	var slots []string
	for _, key := range keys {
		slots = append(slots, strings.TrimPrefix(key, prefix))
	}

	return slots, nil
}

// CheckZones reports the zones of subnets that do not exist in the cluster's region. Zones that are known to
// exist are not looked up; without others no call is made.
func (session *Session) CheckZones(
	ctx context.Context,
	set manifest.Set,
	known map[string]bool,
) (fs diag.Findings) {
	unknown := map[string]string{} // the path of the first subnet, by zone
	for i, s := range set.Cluster.Spec.Networking.Subnets {
		if !known[s.Zone] && unknown[s.Zone] == "" && s.ID == "" {
			unknown[s.Zone] = fmt.Sprintf(
				"cluster/%s: spec.networking.subnets[%d].zone",
				set.Cluster.Metadata.Name,
				i,
			)
		}
	}

	if len(unknown) == 0 {
		return nil
	}

	zones, err := discovery.ListZones(ctx, session.Config)
	if errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded) {
		return nil
	}

	if err != nil {
		fs.Warnf("aws: zones", "", "allow ec2:DescribeAvailabilityZones", "could not be checked: %s", err)
		return fs
	}

	for zone, path := range unknown {
		if !slices.Contains(zones, zone) {
			fs.Errorf(
				path,
				zone,
				"use one of "+strings.Join(zones, ", "),
				"does not exist in region %s for this account",
				session.Config.Region,
			)
		}
	}

	slices.SortFunc(fs, func(a, b diag.Finding) int { return strings.Compare(a.Path, b.Path) })

	return fs
}
