// SPDX-License-Identifier: Apache-2.0

package destroy

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/slipway-k8s/slipway/api/v1alpha1"
	"github.com/slipway-k8s/slipway/internal/cluster"
	"github.com/slipway-k8s/slipway/internal/cluster/clusterstate"
	"github.com/slipway-k8s/slipway/internal/cluster/inventory"
	"github.com/slipway-k8s/slipway/internal/cluster/operation"
	"github.com/slipway-k8s/slipway/internal/infra/awskind"
	"github.com/slipway-k8s/slipway/internal/infra/graph"
	"github.com/slipway-k8s/slipway/internal/infra/model"
	"github.com/slipway-k8s/slipway/internal/infra/plan"
	"github.com/slipway-k8s/slipway/internal/lib/diag"
	"github.com/slipway-k8s/slipway/internal/lib/store"
	"github.com/slipway-k8s/slipway/internal/manifest"
)

// GroupRequest asks for the deletion of one instance group.
type GroupRequest struct {
	// Cluster is the name of the cluster.
	Cluster string
	// Group is the name of the group.
	Group string
}

// GroupResult is how the deletion of a group ended.
type GroupResult struct {
	// Deleted is set if something was deleted.
	Deleted bool
	// ByStack is set if CloudFormation created the cluster: only the manifest was deleted, and the next apply
	// deletes the group's resources.
	ByStack bool
	// ByKarpenter is set if Karpenter starts the group's machines: only the manifest was deleted. After the next apply the control
	// plane deletes its NodePool, and Karpenter drains and ends its machines.
	ByKarpenter bool
}

// RunGroup shows and deletes one instance group under the cluster's lock: its resources in AWS, then its
// manifest. Nothing else of the cluster changes. It can be repeated after a failure, and also deletes a group
// that is only left in AWS. The control plane is refused.
func RunGroup(ctx context.Context, env *cluster.Env, req GroupRequest) (GroupResult, error) {
	state, _, err := env.Stores.State(ctx)
	if err != nil {
		return GroupResult{}, err
	}

	if err := clusterstate.RequireCluster(ctx, state, req.Cluster); err != nil {
		return GroupResult{}, err
	}

	if env.ReadOnly {
		return runGroupLocked(ctx, env, nil, state, req)
	}

	var result GroupResult
	err = env.RunOperation(
		ctx,
		cluster.OperationRequest{Store: state, Cluster: req.Cluster, Kind: "delete"},
		func(ctx context.Context, op *operation.Operation, guarded store.Store) (err error) {
			result, err = runGroupLocked(ctx, env, op, guarded, req)
			return err
		},
	)

	return result, err
}

// runGroupLocked is RunGroup under the lock of op; without an operation it cannot get past the approval.
func runGroupLocked(
	ctx context.Context,
	env *cluster.Env,
	op *operation.Operation,
	guarded store.Store,
	req GroupRequest,
) (GroupResult, error) {
	set, err := clusterstate.LoadManifests(ctx, guarded, req.Cluster)
	if err != nil {
		return GroupResult{}, err
	}

	if err := checkRemovable(set, req.Group); err != nil {
		return GroupResult{}, err
	}

	d := groupDeletion{request: req, set: set, state: guarded}
	if d.signed, err = clusterstate.VerifyDocuments(ctx, guarded, req.Cluster); err != nil {
		return GroupResult{}, err
	}

	d.session, err = cluster.Open(ctx, env, req.Cluster, set.Cluster.Spec.CloudProvider.AWS.Region)
	if err != nil {
		return GroupResult{}, err
	}

	d.session.UseOperation(op, guarded)
	if err := d.plan(ctx, guarded); err != nil {
		return GroupResult{}, err
	}

	if err := cluster.CheckRevision(ctx, d.session, d.signed); err != nil {
		return GroupResult{}, err
	}

	return d.run(ctx, op)
}

// groupDeletion is the planned deletion of one group.
type groupDeletion struct {
	request GroupRequest
	set     manifest.Set
	session *cluster.Session
	review  cluster.Review
	byStack bool
	// byKarpenter is set if Karpenter starts the group's machines.
	byKarpenter bool
	state       store.Store // guarded by the lock
	signed      clusterstate.Signed
}

// plan finds what exists of the group. It changes nothing.
func (d *groupDeletion) plan(ctx context.Context, s store.Store) error {
	d.review = cluster.Review{
		Kind:    cluster.ReviewDeleteGroup,
		Cluster: d.request.Cluster,
		Group:   d.request.Group,
		Destroy: true,
	}
	group, inState := d.set.Group(d.request.Group)
	d.byKarpenter = group.Spec.UsesKarpenter()
	if inState {
		keys := []string{manifest.GroupKey(d.request.Cluster, d.request.Group)}
		d.review.Deletion.Objects = []cluster.ObjectSet{{Store: s, Keys: keys}}
	}

	via, err := clusterstate.ReadProvisioner(ctx, s, d.request.Cluster)
	if err != nil {
		return err
	}

	actual, err := d.session.ReadResources(ctx, s, d.set)
	if err != nil {
		return err
	}

	d.byStack = via == clusterstate.CloudFormation
	if !d.byStack {
		if err := d.planResources(actual); err != nil {
			return err
		}
	}

	if d.review.IsEmpty() {
		return newUnknownGroupError(d.set, d.request.Group)
	}

	return d.noteMachines(ctx)
}

// planResources plans the deletion of the group's resources in AWS.
func (d *groupDeletion) planResources(actual []plan.ActualResource) error {
	own := selectGroup(actual, d.request, d.session.Config.Region)
	for _, a := range own {
		g, isGroup := a.Resource.(awskind.AutoScalingGroup)
		if isGroup && g.Tags[awskind.TagRole] == inventory.RoleControlPlane {
			return newControlPlaneError(d.request.Group)
		}
	}

	var findings diag.Findings
	d.review.Plan, findings = plan.Compute(&graph.Graph{}, own, plan.Options{})

	return findings.Err()
}

// noteMachines reports the machines that the deletion terminates.
func (d *groupDeletion) noteMachines(ctx context.Context) error {
	own := clusterstate.Ownership{ID: d.session.ClusterID()}
	machines, err := inventory.NewReader(d.request.Cluster, own, d.session.Config).ReadMachines(ctx)
	if err != nil {
		return err
	}

	var running []string
	for _, m := range machines {
		if m.Group == d.request.Group && !m.IsGone() {
			running = append(running, m.ID)
		}
	}

	if len(running) > 0 && !d.byKarpenter {
		d.session.Env.Notifyf(
			"machines that are terminated, without draining their nodes: %s",
			strings.Join(running, ", "),
		)
	}

	return nil
}

// run shows the deletion, has it approved, and carries it out.
func (d *groupDeletion) run(ctx context.Context, op *operation.Operation) (GroupResult, error) {
	env := d.session.Env
	guardObjects(op, d.review.Deletion.Objects)
	if err := env.Show(d.review); err != nil {
		return GroupResult{}, err
	}

	if err := env.Approve(ctx, d.review); err != nil {
		return GroupResult{}, err
	}

	if err := d.session.RecordStart(ctx, nil, d.review); err != nil {
		return GroupResult{}, err
	}

	if err := d.session.Walk(ctx, d.review.Plan, d.session.Cloud); err != nil {
		return GroupResult{}, diag.WithHint(err, "fix the cause and rerun to delete the rest")
	}

	if err := d.deleteObjects(ctx); err != nil {
		return GroupResult{}, err
	}

	own := func(a graph.Addr) bool { return isGroupAddress(a, d.request.Group) }
	if err := d.session.RecordDeleted(ctx, d.request.Group, own); err != nil {
		return GroupResult{}, err
	}

	return GroupResult{Deleted: true, ByStack: d.byStack, ByKarpenter: d.byKarpenter}, nil
}

// deleteObjects deletes the manifest of the group, if it has one.
func (d *groupDeletion) deleteObjects(ctx context.Context) error {
	change := cluster.SignedChange{
		Cluster:   d.request.Cluster,
		Region:    d.session.Config.Region,
		Before:    d.signed,
		Documents: map[string][]byte{},
	}

	for _, set := range d.review.Deletion.Objects {
		for _, key := range set.Keys {
			change.Documents[key] = nil
		}
	}

	if len(change.Documents) == 0 {
		return nil
	}

	return d.session.Env.RunSigned(ctx, d.state, change, func() error {
		for _, set := range d.review.Deletion.Objects {
			for _, key := range set.Keys {
				if err := set.Store.Delete(ctx, key); err != nil {
					return err
				}
			}
		}

		return nil
	})
}

// isGroupAddress reports whether the resource at an address belongs to one group alone, see selectGroup.
func isGroupAddress(a graph.Addr, group string) bool {
	kind, name, _ := strings.Cut(string(a), "/")
	switch kind {
	case awskind.AutoScalingGroup{}.Kind().Name, awskind.LaunchTemplate{}.Kind().Name:
		return name == group
	case awskind.LifecycleHook{}.Kind().Name:
		return name == group || name == model.LaunchHookNode(group)
	case awskind.IAMRole{}.Kind().Name, awskind.InstanceProfile{}.Kind().Name:
		return name == "worker-"+group
	case awskind.IAMRolePolicy{}.Kind().Name:
		rest, ok := strings.CutPrefix(name, "worker-"+group)
		return ok && slices.Contains([]string{"", "-additional", "-session-manager"}, rest)
	}

	return false
}

// checkRemovable returns an error if the cluster cannot exist without the group. A group that is not in the
// manifests may be left in AWS.
func checkRemovable(set manifest.Set, group string) error {
	g, ok := set.Group(group)
	if !ok {
		return nil
	}

	if g.Spec.Role == v1alpha1.RoleControlPlane {
		return newControlPlaneError(group)
	}

	rest := set
	rest.Groups = slices.DeleteFunc(
		slices.Clone(set.Groups),
		func(g v1alpha1.InstanceGroup) bool { return g.Metadata.Name == group },
	)

	if err := manifest.Validate(rest).Err(); err != nil {
		return fmt.Errorf(
			"delete group %s: the rest of the cluster would not be valid: %w",
			group,
			err,
		)
	}

	return nil
}

func newControlPlaneError(group string) error {
	return diag.WithHint(
		fmt.Errorf("group %s is the control plane: a cluster cannot exist without it", group),
		"delete the whole cluster with: slipway delete cluster NAME",
	)
}

func newUnknownGroupError(set manifest.Set, group string) error {
	var names []string
	for _, g := range set.Groups {
		names = append(names, g.Metadata.Name)
	}

	hint := "see: slipway get groups " + set.Cluster.Metadata.Name
	if near := diag.Nearest(group, names); near != "" {
		hint = "did you mean " + near + "?"
	}

	return diag.WithHint(
		fmt.Errorf(
			"cluster %s has no group %s, in the state store or in AWS: %w",
			set.Cluster.Metadata.Name,
			group,
			store.ErrNotFound,
		),
		hint,
	)
}

// selectGroup returns the resources that only one group uses: its auto scaling group, its launch template, and
// its role if it has one of its own.
func selectGroup(actual []plan.ActualResource, req GroupRequest, region string) []plan.ActualResource {
	role := model.GroupRoleName(req.Cluster, region, req.Group)
	var out []plan.ActualResource

	for _, a := range actual {
		own := false
		switch r := a.Resource.(type) {
		case awskind.AutoScalingGroup:
			own = r.Tags[awskind.TagGroup] == req.Group
		case awskind.LifecycleHook:
			own = r.Group.Literal() == model.GroupName(req.Cluster, req.Group)
		case awskind.LaunchTemplate:
			own = r.Name == req.Group+"."+req.Cluster
		case awskind.IAMRole:
			own = r.Name == role
		case awskind.InstanceProfile:
			own = r.Name == role
		case awskind.IAMRolePolicy:
			own = r.Role.Literal() == role
		}

		if own {
			out = append(out, a)
		}
	}

	return out
}
