// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"context"
	"errors"
	"slices"

	"github.com/slipway-k8s/slipway/internal/cluster/operation"
	"github.com/slipway-k8s/slipway/internal/infra/aws/cleanup"
	"github.com/slipway-k8s/slipway/internal/infra/awskind"
	"github.com/slipway-k8s/slipway/internal/infra/graph"
	"github.com/slipway-k8s/slipway/internal/infra/plan"
	"github.com/slipway-k8s/slipway/internal/infra/stack"
)

// stackDeletion is how a cluster goes that CloudFormation made: its stack, then what is left of it.
type stackDeletion struct {
	*clusterSession
	client   stack.Stack
	progress *progressPrinter
	info     stack.Info
	// steps are the stack's, then those of what it does not hold.
	steps []plan.Step
	// retained is data that stays.
	retained []plan.Step
	blockers []cleanup.Blocker
}

// isDataKind says whether a kind holds what can not be made again, or what data can not be read without.
func isDataKind(kind string) bool {
	return kind == awskind.Volume{}.Kind().Name || kind == awskind.KMSKey{}.Kind().Name ||
		kind == awskind.KMSAlias{}.Kind().Name
}

// deletesByStack says whether a cluster goes by its stack: as its state says, else, where that is lost, as AWS does.
func (t *clusterSession) deletesByStack(
	ctx context.Context,
	known bool,
) (bool, error) {
	via, err := readProvisioner(ctx, t.guardedState, t.name)
	if err != nil || via != "" || known {
		return via == provisionerStack, err
	}

	st, _ := t.newStackClient(newStackNames())
	info, err := st.Describe(ctx)

	return info.ID != "", err
}

// deleteByStack shows and deletes a cluster that CloudFormation made.
func (t *clusterSession) deleteByStack(
	ctx context.Context,
	op *operation.Operation,
	all *desiredState,
) error {
	d := &stackDeletion{clusterSession: t}
	left := guardObjects(op, all.deletion.objects)
	if err := d.planDeletion(ctx); err != nil {
		return err
	}

	p := plan.Plan{Steps: d.steps}
	if err := d.printDeletion(p, left); err != nil {
		return err
	}

	if p.IsEmpty() && len(d.retained) > 0 {
		return nil
	}

	if err := t.app.confirm("Destroy cluster " + t.name + " and its stack?"); err != nil {
		return err
	}

	if err := t.recordStart(ctx, &desiredState{forStack: true}, p, 0); err != nil {
		return err
	}

	if err := d.deleteStackAndRest(ctx); err != nil {
		return withHint(err, "what is gone is gone; mend the cause and run it again")
	}

	if len(d.retained) > 0 {
		t.app.printMessage("cluster %s is gone but for its data", t.name)
		return nil
	}

	if err := deleteAllObjects(ctx, left, t.name); err != nil {
		return err
	}

	t.app.printMessage("cluster %s is gone", t.name)

	return nil
}

// guardObjects writes into the stores only while op has its lock; without op, as it is.
func guardObjects(op *operation.Operation, left []storeObjects) []storeObjects {
	for i := range left {
		if op != nil {
			left[i].store = op.GuardStore(left[i].store)
		}
	}

	return left
}

// printDeletion shows what goes and what stays.
func (d *stackDeletion) printDeletion(p plan.Plan, left []storeObjects) error {
	if err := d.app.printPlan(formatTable, d.name, &desiredState{plan: p, destroy: true}); err != nil {
		return err
	}

	for _, k := range d.retained {
		d.app.printMessage(
			"%s (%s) stays in AWS, with the state that its data is read by: --destroy-data destroys all of it",
			k.Addr,
			k.ID,
		)
	}

	if len(d.retained) == 0 {
		d.printObjectCounts(left)
	}

	d.app.printDeletionNotes(deletionSet{blockers: d.blockers})

	return nil
}

// planDeletion finds what goes and what stays.
func (d *stackDeletion) planDeletion(ctx context.Context) error {
	d.client, d.progress = d.newStackClient(newStackNames())
	_, err := addTemplateNames(ctx, d.client)
	if err != nil {
		return err
	}

	d.info, err = d.client.WaitForOperation(ctx)
	d.progress.endLine()
	if err != nil {
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

	have, err := d.readResources(ctx)
	if err != nil {
		return err
	}

	rest := slices.DeleteFunc(have, func(a plan.ActualResource) bool {
		return held[a.Addr] || len(held) > 0 && len(a.Resource.Kind().KeyProperties) > 0
	})
	p, findings := plan.Compute(&graph.Graph{}, rest, plan.Options{DestroyData: true})
	for _, s := range p.Steps {
		d.addStep(s)
	}

	return findings.Err()
}

// readResources finds what exists of the cluster, and what its programs made beside it. Data of theirs is left out unless it goes.
func (d *stackDeletion) readResources(ctx context.Context) ([]plan.ActualResource, error) {
	have, err := d.cloud.Read(ctx)
	if err != nil {
		return nil, err
	}

	r, err := d.cloud.FindLeftovers(ctx, have)
	if err != nil {
		return nil, err
	}

	d.blockers = r.Blockers
	have = append(have, r.Resources...)
	if d.options.destroyData {
		return append(have, r.Data...), nil
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

	return have, nil
}

func (d *stackDeletion) addStep(s plan.Step) {
	if isDataKind(s.Kind) && !d.options.destroyData {
		d.retained = append(d.retained, s)
		return
	}

	d.steps = append(d.steps, s)
}

// deleteStackAndRest deletes the stack, then what it left. What programs in the cluster made may be in the stack's way; it goes once
// the machines that would make it again are gone, and the stack after it.
func (d *stackDeletion) deleteStackAndRest(ctx context.Context) error {
	for again := range 2 {
		if d.info.ID == "" {
			break
		}

		err := d.client.Delete(ctx, d.info, len(d.steps))
		d.progress.endLine()
		if err == nil {
			break
		}

		if again > 0 {
			return err
		}

		d.app.printMessage("%v", err)
		d.app.printMessage(
			"what no stack holds may be in the way: it goes first, then the stack is tried again",
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

// deleteRemaining deletes what bears the cluster's tag; beside leaves out what the stack still holds.
func (d *stackDeletion) deleteRemaining(
	ctx context.Context,
	beside bool,
) error {
	have, err := d.readResources(ctx)
	if err != nil {
		return err
	}

	held := map[string]bool{}
	if beside {
		resources, err := d.client.ListResources(ctx)
		if err != nil {
			return err
		}

		for _, r := range resources {
			held[r.ID] = true
		}
	}

	have = slices.DeleteFunc(have, func(a plan.ActualResource) bool {
		kind := a.Resource.Kind()
		return held[a.ID] || beside && len(kind.KeyProperties) > 0 ||
			isDataKind(kind.Name) && !d.options.destroyData
	})

	p, findings := plan.Compute(&graph.Graph{}, have, plan.Options{DestroyData: true})

	return errors.Join(findings.Err(), d.executePlan(ctx, p, d.cloud))
}
