// SPDX-License-Identifier: Apache-2.0

package apply

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/slipway-k8s/slipway/internal/cluster/publish"
	"github.com/slipway-k8s/slipway/internal/infra/awskind"
	"github.com/slipway-k8s/slipway/internal/infra/graph"
	"github.com/slipway-k8s/slipway/internal/infra/plan"
	"github.com/slipway-k8s/slipway/internal/lib/diag"
	"github.com/slipway-k8s/slipway/internal/lib/store"
	"github.com/slipway-k8s/slipway/internal/machine/node"
)

const (
	// leavePoll is the time between two looks whether etcd members have left.
	leavePoll = 3 * time.Second
	// leavePatience is how long to wait for members that leave, since the last change of what they wait for.
	leavePatience = 15 * time.Minute
)

// resize is how a plan changes the size of the control plane: the slots whose Auto Scaling groups it creates or deletes.
type resize struct {
	joining, leaving []string
}

// findResize returns how a plan changes the size of a control plane that exists.
func findResize(p plan.Plan) resize {
	var out resize
	for _, s := range p.Steps {
		switch s.Action {
		case plan.Create:
			if slot := slotOf(s.Desired()); slot != "" {
				out.joining = append(out.joining, slot)
			}
		case plan.Delete:
			if slot := slotOf(s.Actual()); slot != "" {
				out.leaving = append(out.leaving, slot)
			}
		case plan.Update, plan.Replace:
		}
	}

	exists := slices.ContainsFunc(p.Actual(), func(a plan.ActualResource) bool { return slotOf(a.Resource) != "" })
	if !exists {
		return resize{}
	}

	slices.Sort(out.joining)
	slices.Sort(out.leaving)

	return out
}

// slotOf returns the slot of an Auto Scaling group of the control plane; empty for other resources.
func slotOf(r graph.Resource) string {
	if group, ok := r.(awskind.AutoScalingGroup); ok {
		return group.Tags[awskind.TagSlot]
	}

	return ""
}

// prepareResize makes the new size known to the machines before any machine is created or ended, and waits until the members
// of slots that leave were removed from etcd by the agent of its leader. It may be called again: what was done is not repeated.
func (p *direct) prepareResize(ctx context.Context) error {
	change := findResize(p.desired.Plan)
	if len(change.joining)+len(change.leaving) == 0 {
		return nil
	}

	if err := publish.WriteObjects(ctx, p.session, p.desired); err != nil {
		return err
	}

	p.published = true
	if err := publish.WriteRevisions(ctx, p.session, p.desired); err != nil {
		return err
	}

	return p.awaitAbsent(ctx, change.leaving)
}

// checkEtcdStarted returns an error if slots leave an etcd that was never started: the machines that stay would wait for them.
func (p *direct) checkEtcdStarted(ctx context.Context, leaving []string) error {
	if len(leaving) == 0 {
		return nil
	}

	_, err := p.desired.MachineStore.Get(ctx, node.EtcdMarkerKey(p.session.Name))
	if errors.Is(err, store.ErrNotFound) {
		return diag.WithHint(
			fmt.Errorf("slot %s cannot leave the control plane: etcd was never started", strings.Join(leaving, ", ")),
			"wait until the cluster works: slipway validate cluster "+p.session.Name+" --wait 10m; nothing was changed",
		)
	}

	if err != nil {
		return fmt.Errorf("read whether etcd was started: %w", err)
	}

	return nil
}

// awaitAbsent waits until the slots have no member.
func (p *direct) awaitAbsent(ctx context.Context, slots []string) error {
	if len(slots) == 0 {
		return nil
	}

	env := p.session.Env
	env.Notifyf("waiting until etcd has no member of slot %s", strings.Join(slots, ", "))
	since := env.Now()
	told := ""

	for {
		present, err := p.findPresent(ctx, slots)
		if err != nil || len(present) == 0 {
			return err
		}

		reason, err := p.readLeaveReason(ctx)
		if err != nil {
			return err
		}

		if reason != told {
			env.Notifyf("etcd: %s", reason)
			told = reason
			since = env.Now()
		}

		if env.Now().Sub(since) >= leavePatience {
			return leaveTimeout(p.session.Name, present, reason)
		}

		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(leavePoll):
		}
	}
}

// leaveTimeout is why members have not left.
func leaveTimeout(cluster string, slots []string, reason string) error {
	if reason == "" {
		reason = "no machine has answered yet"
	}

	return diag.WithHint(
		fmt.Errorf("etcd still has a member of slot %s after %s: %s", strings.Join(slots, ", "), leavePatience, reason),
		"no machine was ended; see what does not work: slipway validate cluster "+cluster+"; if the machines are of an earlier version, "+
			"replace them first: slipway rolling-update cluster "+cluster+"; then rerun to resume",
	)
}

// findPresent returns the slots that were not recorded as absent.
func (p *direct) findPresent(ctx context.Context, slots []string) ([]string, error) {
	var out []string
	for _, slot := range slots {
		absent, err := p.session.IsSlotAbsent(ctx, p.desired, slot)
		if err != nil {
			return nil, err
		}

		if !absent {
			out = append(out, slot)
		}
	}

	return out, nil
}

// readLeaveReason returns what the removal of members waits for; empty if nothing is known.
func (p *direct) readLeaveReason(ctx context.Context) (string, error) {
	o, err := p.desired.MachineStore.Get(ctx, node.EtcdResizeKey(p.session.Name))
	if errors.Is(err, store.ErrNotFound) {
		return "", nil
	}

	if err != nil {
		return "", fmt.Errorf("read what the removal of etcd members waits for: %w", err)
	}

	var record struct {
		Reason string `json:"reason"`
	}
	if err := json.Unmarshal(o.Body, &record); err != nil {
		return "", fmt.Errorf("read %s: %w", o.Key, err)
	}

	return record.Reason, nil
}
