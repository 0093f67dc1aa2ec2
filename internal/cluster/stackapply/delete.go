// SPDX-License-Identifier: Apache-2.0

package stackapply

import (
	"context"
	"errors"
	"slices"

	"github.com/slipway-k8s/slipway/internal/cluster"
	"github.com/slipway-k8s/slipway/internal/cluster/clusterstate"
	"github.com/slipway-k8s/slipway/internal/infra/aws/cleanup"
	"github.com/slipway-k8s/slipway/internal/infra/graph"
	"github.com/slipway-k8s/slipway/internal/infra/plan"
	"github.com/slipway-k8s/slipway/internal/infra/stack"
	"github.com/slipway-k8s/slipway/internal/lib/store"
)

// Deleter deletes a cluster that CloudFormation created: its stack, then the resources that the stack leaves.
type Deleter struct {
	session     *cluster.Session
	destroyData bool
	client      stack.Stack
	progress    cluster.Progress
	info        stack.Info
	// steps are those of the stack, then those of other resources of the cluster.
	steps []plan.Step
	// retained are the steps that would delete data; they are not carried out.
	retained []plan.Step
	// launchers are the policies with which Karpenter launches machines.
	launchers []plan.ActualResource
	blockers  []cleanup.Blocker
}

// HasStack reports whether CloudFormation created a cluster: as its state records; if the state is lost
// (inState is false), whether AWS has its stack.
func HasStack(
	ctx context.Context,
	session *cluster.Session,
	s store.Store,
	inState bool,
) (bool, error) {
	via, err := clusterstate.ReadProvisioner(ctx, s, session.Name)
	if err != nil || via != "" || inState {
		return via == clusterstate.CloudFormation, err
	}

	st, _ := newStackClient(session, newStackNames())
	info, err := st.Describe(ctx)

	return info.ID != "", err
}

// Plan finds what is deleted and what is retained.
func (d *Deleter) Plan(ctx context.Context) error {
	d.client, d.progress = newStackClient(d.session, newStackNames())
	_, err := addTemplateNames(ctx, d.client)
	if err != nil {
		return err
	}

	d.info, err = d.client.WaitForOperation(ctx)
	d.progress.End()
	if err != nil {
		return err
	}

	if err := d.session.CheckStack(ctx, d.session.State, d.info); err != nil {
		return err
	}

	resources, err := d.client.ListResources(ctx)
	if err != nil {
		return err
	}

	held := map[graph.Addr]bool{}
	for _, s := range d.client.DeletionSteps(resources) {
		held[s.Addr] = true
		d.addStep(s)
	}

	actual, err := d.readResources(ctx)
	if err != nil {
		return err
	}

	d.launchers = cleanup.FindLaunchers(actual)
	rest := slices.DeleteFunc(actual, func(a plan.ActualResource) bool {
		return held[a.Addr] || len(held) > 0 && len(a.Resource.Kind().KeyProperties) > 0
	})
	p, findings := plan.Compute(&graph.Graph{}, rest, plan.Options{DestroyData: true})
	for _, s := range p.Steps {
		d.addStep(s)
	}

	return findings.Err()
}

// readResources returns what AWS has of the cluster, and what programs in the cluster created. Their data
// is left out unless it is destroyed too.
func (d *Deleter) readResources(ctx context.Context) ([]plan.ActualResource, error) {
	actual, err := d.session.ReadAgain(ctx)
	if err != nil {
		return nil, err
	}

	r, err := d.session.Cloud.FindLeftovers(ctx, actual)
	if err != nil {
		return nil, err
	}

	d.blockers = r.Blockers
	actual = append(actual, r.Resources...)
	if d.destroyData {
		return append(actual, r.Data...), nil
	}

	d.retained = slices.DeleteFunc(d.retained, func(k plan.Step) bool {
		return slices.ContainsFunc(r.Data, func(a plan.ActualResource) bool { return a.ID == k.ID })
	})

	for _, a := range r.Data {
		d.retained = append(d.retained, plan.Step{
			Action: plan.Delete,
			Addr:   a.Addr,
			Kind:   a.Resource.Kind().Name,
			ID:     a.ID,
		})
	}

	return actual, nil
}

// addStep adds a step to those that are carried out, or to the retained ones.
func (d *Deleter) addStep(s plan.Step) {
	if isDataKind(s.Kind) && !d.destroyData {
		d.retained = append(d.retained, s)
		return
	}

	d.steps = append(d.steps, s)
}

// Delete deletes the stack, then what it leaves. Resources that programs in the cluster created may block
// the stack: after a failure it deletes those, once the machines that would create them again are gone, and
// then tries the stack again.
func (d *Deleter) Delete(ctx context.Context) error {
	if err := d.session.MarkOwnership(ctx); err != nil {
		return err
	}

	if err := d.disarmLaunchers(ctx); err != nil {
		return err
	}

	for again := range 2 {
		if d.info.ID == "" {
			break
		}

		err := d.client.Delete(ctx, d.info, len(d.steps))
		d.progress.End()
		if err == nil {
			break
		}

		if again > 0 {
			return err
		}

		d.session.Env.Notifyf("%v", err)
		d.session.Env.Notifyf(
			"resources outside the stack may block it: they are deleted first, then the stack is tried again",
		)
		if err := d.deleteRemaining(ctx, true); err != nil {
			return err
		}

		if d.info, err = d.client.Describe(ctx); err != nil {
			return err
		}
	}

	return d.deleteRemaining(ctx, false)
}

// disarmLaunchers deletes the policy with which Karpenter launches machines, although the stack holds it: otherwise Karpenter
// would replace the machines that the stack deletes.
func (d *Deleter) disarmLaunchers(ctx context.Context) error {
	p, findings := plan.Compute(&graph.Graph{}, d.launchers, plan.Options{DestroyData: true})
	if len(p.Steps) == 0 {
		return findings.Err()
	}

	return errors.Join(findings.Err(), d.session.Walk(ctx, p, d.session.Cloud))
}

// deleteRemaining deletes the resources with the cluster's tag. skipHeld leaves out those that the stack
// still holds.
func (d *Deleter) deleteRemaining(
	ctx context.Context,
	skipHeld bool,
) error {
	actual, err := d.readResources(ctx)
	if err != nil {
		return err
	}

	held := map[string]bool{}
	if skipHeld {
		resources, err := d.client.ListResources(ctx)
		if err != nil {
			return err
		}

		for _, r := range resources {
			held[r.ID] = true
		}
	}

	actual = slices.DeleteFunc(actual, func(a plan.ActualResource) bool {
		kind := a.Resource.Kind()
		return held[a.ID] || skipHeld && len(kind.KeyProperties) > 0 ||
			isDataKind(kind.Name) && !d.destroyData
	})

	p, findings := plan.Compute(&graph.Graph{}, actual, plan.Options{DestroyData: true})

	return errors.Join(findings.Err(), d.session.Walk(ctx, p, d.session.Cloud))
}

// NewDeleter returns a deleter of a cluster. It calls nothing. destroyData deletes the volumes and keys
// that hold data, too.
func NewDeleter(session *cluster.Session, destroyData bool) *Deleter {
	return &Deleter{session: session, destroyData: destroyData}
}

// Review returns what Delete will do, once Plan has found it.
func (d *Deleter) Review() cluster.Review {
	return cluster.Review{
		Kind:    cluster.ReviewDestroyStack,
		Cluster: d.session.Name,
		Plan:    plan.Plan{Steps: d.steps},
		Destroy: true,
		Stack:   cluster.StackReview{Name: d.client.Name, Info: d.info},
		Deletion: cluster.Deletion{
			RetainedSteps: d.retained,
			Blockers:      d.blockers,
		},
	}
}

// RetainsData reports whether data is retained. Delete may find more of it than Plan.
func (d *Deleter) RetainsData() bool { return len(d.retained) > 0 }
