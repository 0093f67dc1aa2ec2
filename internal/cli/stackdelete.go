// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"context"
	"errors"
	"slices"

	"github.com/slipway-k8s/slipway/internal/cluster/operation"
	"github.com/slipway-k8s/slipway/internal/infra/aws"
	"github.com/slipway-k8s/slipway/internal/infra/awskind"
	"github.com/slipway-k8s/slipway/internal/infra/graph"
	"github.com/slipway-k8s/slipway/internal/infra/plan"
	"github.com/slipway-k8s/slipway/internal/infra/stack"
)

// stackDeletion is how a cluster goes that CloudFormation made: its stack, then what is left of it.
type stackDeletion struct {
	*target
	stack stack.Stack
	show  *progress
	info  stack.Info
	// steps are the stack's, then those of what it does not hold.
	steps []plan.Step
	// kept is data that stays.
	kept     []plan.Step
	blockers []aws.Blocker
}

// holdsData says whether a kind holds what can not be made again, or what data can not be read without.
func holdsData(kind string) bool {
	return kind == awskind.Volume{}.Kind().Name || kind == awskind.Key{}.Kind().Name || kind == awskind.Alias{}.Kind().Name
}

// deletesStack says whether a cluster goes by its stack: as its state says, else, where that is lost, as AWS does.
func (t *target) deletesStack(ctx context.Context, known bool) (bool, error) { //nolint:revive // a fact, not a mode
	via, err := readWay(ctx, t.state, t.name)
	if err != nil || via != "" || known {
		return via == viaStack, err
	}
	st, _ := t.newStack(newNames())
	info, err := st.Describe(ctx)
	return info.ID != "", err
}

// deleteStack shows and deletes a cluster that CloudFormation made.
func (t *target) deleteStack(ctx context.Context, op *operation.Op, all *desired) error {
	d := &stackDeletion{target: t}
	left := guarded(op, all.demise.objects)
	if err := d.weigh(ctx); err != nil {
		return err
	}
	p := plan.Plan{Steps: d.steps}
	if err := d.tell(p, left); err != nil {
		return err
	}
	if p.Empty() && len(d.kept) > 0 {
		return nil
	}
	if err := t.a.confirm("Destroy cluster " + t.name + " and its stack?"); err != nil {
		return err
	}
	if err := t.begun(ctx, &desired{stack: true}, p, 0); err != nil {
		return err
	}
	if err := d.carryOut(ctx); err != nil {
		return withHint(err, "what is gone is gone; mend the cause and run it again")
	}
	if len(d.kept) > 0 {
		t.a.say("cluster %s is gone but for its data", t.name)
		return nil
	}
	if err := removeAll(ctx, left, t.name); err != nil {
		return err
	}
	t.a.say("cluster %s is gone", t.name)
	return nil
}

// guarded writes into the stores only while op has its lock; without op, as it is.
func guarded(op *operation.Op, left []leftover) []leftover {
	for i := range left {
		if op != nil {
			left[i].store = op.Guard(left[i].store)
		}
	}
	return left
}

// tell shows what goes and what stays.
func (d *stackDeletion) tell(p plan.Plan, left []leftover) error {
	if err := d.a.printPlan(formatTable, d.name, &desired{plan: p, destroy: true}); err != nil {
		return err
	}
	for _, k := range d.kept {
		d.a.say("%s (%s) stays in AWS, with the state that its data is read by: --destroy-data destroys all of it", k.Addr, k.ID)
	}
	if len(d.kept) == 0 {
		d.tellObjects(left)
	}
	d.a.tellDemise(demise{blockers: d.blockers})
	return nil
}

// weigh finds what goes and what stays.
func (d *stackDeletion) weigh(ctx context.Context) error {
	d.stack, d.show = d.newStack(newNames())
	_, err := learnNames(ctx, d.stack)
	if err != nil {
		return err
	}
	d.info, err = d.stack.Attach(ctx)
	d.show.end()
	if err != nil {
		return err
	}
	resources, err := d.stack.Resources(ctx)
	if err != nil {
		return err
	}
	held := map[graph.Addr]bool{}
	for _, s := range d.stack.Deletion(resources) {
		held[s.Addr] = true
		d.add(s)
	}
	have, err := d.read(ctx)
	if err != nil {
		return err
	}
	rest := slices.DeleteFunc(have, func(a plan.Actual) bool {
		return held[a.Addr] || len(held) > 0 && len(a.Resource.Kind().Key) > 0
	})
	p, findings := plan.Make(&graph.Graph{}, rest, plan.Options{DestroyData: true})
	for _, s := range p.Steps {
		d.add(s)
	}
	return findings.Err()
}

// read finds what exists of the cluster, and what its programs made beside it. Data of theirs is left out unless it goes.
func (d *stackDeletion) read(ctx context.Context) ([]plan.Actual, error) {
	have, err := d.cloud.Read(ctx)
	if err != nil {
		return nil, err
	}
	r, err := d.cloud.Remains(ctx, have)
	if err != nil {
		return nil, err
	}
	d.blockers = r.Blockers
	have = append(have, r.Leftovers...)
	if d.o.destroyData {
		return append(have, r.Data...), nil
	}
	d.kept = slices.DeleteFunc(d.kept, func(k plan.Step) bool {
		return slices.ContainsFunc(r.Data, func(a plan.Actual) bool { return a.ID == k.ID })
	})
	for _, a := range r.Data {
		d.kept = append(d.kept, plan.Step{Action: plan.Delete, Addr: a.Addr, Kind: a.Resource.Kind().Name, ID: a.ID})
	}
	return have, nil
}

func (d *stackDeletion) add(s plan.Step) {
	if holdsData(s.Kind) && !d.o.destroyData {
		d.kept = append(d.kept, s)
		return
	}
	d.steps = append(d.steps, s)
}

// carryOut deletes the stack, then what it left. What programs in the cluster made may be in the stack's way; it goes once
// the machines that would make it again are gone, and the stack after it.
func (d *stackDeletion) carryOut(ctx context.Context) error {
	for again := range 2 {
		if d.info.ID == "" {
			break
		}
		err := d.stack.Delete(ctx, d.info, len(d.steps))
		d.show.end()
		if err == nil {
			break
		}
		if again > 0 {
			return err
		}
		d.a.say("%v", err)
		d.a.say("what no stack holds may be in the way: it goes first, then the stack is tried again")
		if err := d.sweep(ctx, true); err != nil {
			return err
		}
		if d.info, err = d.stack.Describe(ctx); err != nil {
			return err
		}
	}
	return d.sweep(ctx, false)
}

// sweep deletes what bears the cluster's tag; beside leaves out what the stack still holds.
func (d *stackDeletion) sweep(ctx context.Context, beside bool) error { //nolint:revive // two ways to look at the same thing
	have, err := d.read(ctx)
	if err != nil {
		return err
	}
	held := map[string]bool{}
	if beside {
		resources, err := d.stack.Resources(ctx)
		if err != nil {
			return err
		}
		for _, r := range resources {
			held[r.ID] = true
		}
	}
	have = slices.DeleteFunc(have, func(a plan.Actual) bool {
		kind := a.Resource.Kind()
		return held[a.ID] || beside && len(kind.Key) > 0 || holdsData(kind.Name) && !d.o.destroyData
	})
	p, findings := plan.Make(&graph.Graph{}, have, plan.Options{DestroyData: true})
	return errors.Join(findings.Err(), d.walk(ctx, p, d.cloud))
}
