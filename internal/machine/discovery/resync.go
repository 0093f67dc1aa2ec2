// SPDX-License-Identifier: Apache-2.0

package discovery

import (
	"context"
	"fmt"
	"slices"
)

// resync is one run that makes the records those of the machines. It remembers what it wrote: a run that read the machines
// before they ended may write their records after [Function.Remove] has removed them, when no other run follows. Such records would
// prevent the deletion of the zone, so the run takes them back.
type resync struct {
	Function
	// written are the records that the run wrote last, for the machines in use.
	written []Record
	inUse   []Machine
}

// compare compares the records with the machines and changes them, until it finds no difference. It returns the machines too.
func (r *resync) compare(ctx context.Context) (result Result, machines []Machine, err error) {
	var conflict error
	for range maxRounds {
		var changes []Change
		if machines, changes, err = r.plan(ctx); err != nil {
			return result, nil, err
		}

		result.Machines = len(machines)
		if len(changes) == 0 {
			return result, machines, nil
		}

		conflict = r.changeRecords(ctx, changes)
		if conflict == nil {
			r.remember(changes, machines)
			result.Changes += len(changes)

			continue
		}

		if !isConflict(conflict) {
			return result, nil, conflict
		}
	}

	if conflict != nil {
		return result, nil, conflict
	}

	return result, nil, fmt.Errorf("the records of zone %s differ again after %d changes of them", r.Zone, maxRounds)
}

// plan returns the machines, and the changes that make the records theirs.
func (r *resync) plan(ctx context.Context) ([]Machine, []Change, error) {
	machines, err := r.listMachines(ctx)
	if err != nil {
		return nil, nil, err
	}

	present, err := r.listRecords(ctx)
	if err != nil {
		return nil, nil, err
	}

	changes := PlanChanges(r.Cluster, machines, present)
	if len(machines) > 0 || len(r.written) == 0 {
		return machines, changes, nil
	}

	ended, err := r.haveEnded(ctx, r.inUse)
	if err != nil || !ended {
		return machines, changes, err
	}

	return machines, planReturn(r.written, present), nil
}

// planReturn returns the changes that delete written records, unless another run has changed them.
func planReturn(written, present []Record) []Change {
	var out []Change
	for _, w := range written {
		if slices.ContainsFunc(present, w.equals) {
			out = append(out, Change{Delete: true, Record: w})
		}
	}

	return out
}

// remember adds what was written to what the run wrote before.
func (r *resync) remember(changes []Change, machines []Machine) {
	for _, c := range changes {
		r.written = slices.DeleteFunc(r.written, c.Record.isSameSet)
		if !c.Delete {
			r.written = append(r.written, c.Record)
		}
	}

	r.inUse = machines
}
