// SPDX-License-Identifier: Apache-2.0

package resourcetype

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/slipway-k8s/slipway/internal/region/cloudformation/template"
)

// RollingUpdate is the progress of a rolling update of a group. It is saved with the resource, so that a
// restarted region resumes it: the names of its fields are the format on disk.
type RollingUpdate struct {
	Old          []string // IDs of the instances that are still to be replaced
	Total        int      // number of instances to replace at the beginning
	MaxSize      int      // maximum size of the group
	Begun        bool     // FinalMin and FinalDesired are set
	FinalMin     int      // minimum size to restore at the end
	FinalDesired int      // desired capacity to restore at the end
	Raised       bool     // the capacity is raised for the update
	Batch        []string // IDs of the instances of the current batch
	Shrink       int      // instances of the batch that the raised capacity has replaced already
}

// rollingUpdatePolicy is an AutoScalingRollingUpdate policy.
type rollingUpdatePolicy struct {
	batchSize, minInService, minSuccessPercent int
	pauseTime                                  time.Duration
	waitOnSignals                              bool
	suspendProcesses                           []any
}

// parseRollingUpdatePolicy returns the AutoScalingRollingUpdate policy of an UpdatePolicy; nil if it has
// none.
func parseRollingUpdatePolicy(policy template.Object) (*rollingUpdatePolicy, error) {
	p, ok := policy["AutoScalingRollingUpdate"].(template.Object)
	if !ok {
		return nil, nil //nolint:nilnil // no policy is not an error
	}

	r := &rollingUpdatePolicy{
		batchSize:         template.IntOr(p["MaxBatchSize"], 1),
		minInService:      template.IntOr(p["MinInstancesInService"], 0),
		minSuccessPercent: template.IntOr(p["MinSuccessfulInstancesPercent"], 100),
		waitOnSignals:     template.StringAt(p, "WaitOnResourceSignals") == "true",
		suspendProcesses:  template.ListAt(p, "SuspendProcesses"),
	}

	var otherwise time.Duration
	if r.waitOnSignals {
		otherwise = 5 * time.Minute
	}

	var err error
	r.pauseTime, err = ParseISODuration(template.StringAt(p, "PauseTime"), otherwise)
	if r.waitOnSignals && r.pauseTime == 0 {
		r.pauseTime = 5 * time.Minute
	}

	return r, err
}

// runRollingUpdate updates a group and, if its policy requires that, replaces its instances in batches.
func (req *Request) runRollingUpdate(ctx context.Context, in template.Object) error {
	p, err := parseRollingUpdatePolicy(req.Policy)
	if err != nil {
		return err
	}

	r, err := req.beginRollingUpdate(ctx, p)
	if err != nil {
		return err
	}

	if err := req.runOperation(ctx, "autoscaling", "UpdateAutoScalingGroup", in); err != nil {
		return err
	}

	if r == nil {
		return req.waitForCapacity(ctx)
	}

	if p.minInService >= template.IntOr(template.ValueAt(in, "MaxSize"), r.MaxSize) && r.Total > 0 {
		return template.ValidationError("MinInstancesInService must be less than the autoscaling group's MaxSize")
	}

	err = req.replaceInBatches(ctx, p, r)
	if len(p.suspendProcesses) > 0 {
		if resumeErr := req.runOperation(ctx, "autoscaling", "ResumeProcesses", template.Object{
			"AutoScalingGroupName": req.PhysicalID,
			"ScalingProcesses":     p.suspendProcesses,
		}); err == nil {
			err = resumeErr
		}
	}

	return err
}

// beginRollingUpdate begins a rolling update, or continues the one that an earlier process began. It returns
// nil if no instance has to be replaced.
func (req *Request) beginRollingUpdate(ctx context.Context, p *rollingUpdatePolicy) (*RollingUpdate, error) {
	if p == nil || !req.propertyChanged(LaunchProperties()...) && !req.Rollback {
		return nil, nil //nolint:nilnil // no rolling update is not an error
	}

	g, err := req.describeAutoScalingGroup(ctx)
	if err != nil {
		return nil, err
	}

	if g == nil {
		return nil, errNoGroup
	}

	update, err := req.Engine.BeginRollingUpdate(req, func() RollingUpdate {
		obsolete := req.obsoleteInstances(g)

		return RollingUpdate{
			Old:     obsolete,
			Total:   len(obsolete),
			MaxSize: template.IntOr(template.ValueAt(g, "MaxSize"), 0),
		}
	})
	if err == nil && len(p.suspendProcesses) > 0 {
		err = req.runOperation(ctx, "autoscaling", "SuspendProcesses", template.Object{
			"AutoScalingGroupName": req.PhysicalID,
			"ScalingProcesses":     p.suspendProcesses,
		})
	}

	return &update, err
}

// change changes the stored rolling update and r with it.
func (r *RollingUpdate) change(req *Request, change func(*RollingUpdate)) error {
	stored, err := req.Engine.ChangeRollingUpdate(req, change)
	*r = stored

	return err
}

// Clone returns a copy that shares nothing with r.
func (r *RollingUpdate) Clone() RollingUpdate {
	c := *r
	c.Old = slices.Clone(r.Old)
	c.Batch = slices.Clone(r.Batch)

	return c
}

// obsoleteInstances returns the instances to replace. A rollback replaces none if all instances already use
// the launch template that it restores.
func (req *Request) obsoleteInstances(g any) []string {
	var out []string
	for _, i := range template.ListAt(g, "Instances") {
		if state := template.StringAt(i, "LifecycleState"); state == "Terminating" || state == "Terminated" {
			continue
		}

		out = append(out, template.StringAt(i, "InstanceId"))
	}

	if req.Rollback && req.matchesLaunchTemplate(g) {
		return nil
	}

	return out
}

// matchesLaunchTemplate reports whether all instances of a group use the launch template in the properties.
func (req *Request) matchesLaunchTemplate(g any) bool {
	spec, ok := req.Properties["LaunchTemplate"].(template.Object)
	if !ok {
		spec, _ = template.ValueAt(
			req.Properties,
			"MixedInstancesPolicy",
			"LaunchTemplate",
			"LaunchTemplateSpecification",
		).(template.Object)
	}

	for _, i := range template.ListAt(g, "Instances") {
		if template.StringAt(
			i,
			"LaunchTemplate",
			"LaunchTemplateId",
		) != template.StringAt(spec, "LaunchTemplateId") ||
			template.StringAt(i, "LaunchTemplate", "Version") != template.StringAt(spec, "Version") {
			return false
		}
	}

	return spec != nil
}

// addProgressEvent adds an event about the progress of the rolling update.
func (req *Request) addProgressEvent(format string, args ...any) error {
	return req.Engine.AddProgressEvent(req, fmt.Sprintf(format, args...))
}

// replaceInBatches replaces the old instances, batch by batch.
func (req *Request) replaceInBatches(ctx context.Context, p *rollingUpdatePolicy, r *RollingUpdate) error {
	if r.Total == 0 {
		return req.waitForCapacity(ctx)
	}

	if !r.Begun {
		waiting := ""
		if p.waitOnSignals {
			waiting = fmt.Sprintf(
				" Waiting on resource signals with a timeout of %s when new instances are added to the autoscaling group.",
				formatISODuration(p.pauseTime),
			)
		}

		if err := req.addProgressEvent(
			"Rolling update initiated. Terminating %d obsolete instance(s) in batches of %d, while keeping at least %d instance(s) in service.%s",
			r.Total,
			p.batchSize,
			p.minInService,
			waiting,
		); err != nil {
			return err
		}
	}

	if err := req.raiseCapacity(ctx, p, r); err != nil {
		return err
	}

	done := 0

	for len(r.Old) > 0 {
		n := min(p.batchSize, len(r.Old))
		if err := req.replaceBatch(ctx, p, r, slices.Clone(r.Old[:n])); err != nil {
			return err
		}

		done += n
	}

	return req.restoreCapacity(ctx, r)
}

// raiseCapacity raises the capacity of a group for the update, if a batch would leave fewer than
// MinInstancesInService instances in service.
func (req *Request) raiseCapacity(ctx context.Context, p *rollingUpdatePolicy, r *RollingUpdate) error {
	g, err := req.describeAutoScalingGroup(ctx)
	if err != nil {
		return err
	}

	desired := template.IntOr(template.ValueAt(g, "DesiredCapacity"), 0)
	highest := template.IntOr(template.ValueAt(g, "MaxSize"), 0)
	err = r.change(req, func(r *RollingUpdate) {
		if !r.Begun {
			r.Begun = true
			r.FinalMin = template.IntOr(template.ValueAt(g, "MinSize"), 0)
			r.FinalDesired = desired
		}
	})

	batch := min(p.batchSize, r.Total)
	if err != nil || r.FinalDesired-batch >= p.minInService || r.Raised {
		return err
	}

	want := min(p.minInService+batch, highest)
	if want <= desired {
		return nil
	}

	if err := req.addProgressEvent(
		"Temporarily setting autoscaling group MinSize and DesiredCapacity to %d.",
		want,
	); err != nil {
		return err
	}

	if err := r.change(req, func(r *RollingUpdate) { r.Raised = true }); err != nil {
		return err
	}

	if err := req.Engine.ClearSignals(req); err != nil {
		return err
	}

	if err := req.runOperation(ctx, "autoscaling", "UpdateAutoScalingGroup", template.Object{
		"AutoScalingGroupName": req.PhysicalID,
		"MinSize":              want,
		"DesiredCapacity":      want,
	}); err != nil {
		return err
	}

	return req.waitForNewInstances(ctx, p, want-desired)
}

// restoreCapacity restores the capacity that raiseCapacity raised.
func (req *Request) restoreCapacity(ctx context.Context, r *RollingUpdate) error {
	if !r.Raised {
		return req.waitForCapacity(ctx)
	}

	err := req.runOperation(ctx,
		"autoscaling",
		"UpdateAutoScalingGroup",
		template.Object{
			"AutoScalingGroupName": req.PhysicalID,
			"MinSize":              r.FinalMin,
			"DesiredCapacity":      r.FinalDesired,
		},
	)
	if err != nil {
		return err
	}

	return req.waitForCapacity(ctx)
}

// beginBatch adds an event about a batch and deletes earlier signals, unless an earlier process began the
// batch.
func (req *Request) beginBatch(ctx context.Context, r *RollingUpdate, ids []string) error {
	if slices.Equal(r.Batch, ids) {
		return nil
	}

	g, err := req.describeAutoScalingGroup(ctx)
	if err != nil {
		return err
	}

	shrink := 0
	if r.Raised { // the extra instances are replacements already: the last old ones are not replaced
		shrink = max(
			0,
			template.IntOr(template.ValueAt(g, "DesiredCapacity"), 0)-r.FinalDesired-(len(r.Old)-len(ids)),
		)
	}

	err = req.addProgressEvent(
		"Terminating instance(s) [%s]; replacing with %d new instance(s).",
		strings.Join(ids, ","),
		max(len(ids)-shrink, 0),
	)
	if err != nil {
		return err
	}

	if err := req.Engine.ClearSignals(req); err != nil {
		return err
	}

	return r.change(req, func(r *RollingUpdate) {
		r.Batch = ids
		r.Shrink = shrink
	})
}

// terminateInstances terminates the instances of a batch and waits until the group has lost them.
func (req *Request) terminateInstances(ctx context.Context, r *RollingUpdate, ids []string) error {
	for i, id := range ids {
		less := i < r.Shrink
		if less {
			if err := req.runOperation(ctx, "autoscaling", "UpdateAutoScalingGroup", template.Object{
				"AutoScalingGroupName": req.PhysicalID,
				"MinSize":              r.FinalMin,
			}); err != nil {
				return err
			}
		}

		err := req.runOperation(ctx,
			"autoscaling",
			"TerminateInstanceInAutoScalingGroup",
			template.Object{"InstanceId": id, "ShouldDecrementDesiredCapacity": less},
		)
		if err != nil && ErrorCode(err) != "ValidationError" { // the instance has terminated by itself
			return err
		}
	}

	return req.waitUntil(ctx, func() (bool, error) {
		g, err := req.describeAutoScalingGroup(ctx)
		return !slices.ContainsFunc(
			template.ListAt(g, "Instances"),
			func(i any) bool { return slices.Contains(ids, template.StringAt(i, "InstanceId")) },
		), err
	})
}

// replaceBatch terminates some old instances and waits for their replacements.
func (req *Request) replaceBatch(
	ctx context.Context,
	p *rollingUpdatePolicy,
	r *RollingUpdate,
	ids []string,
) error {
	if err := req.beginBatch(ctx, r, ids); err != nil {
		return err
	}

	if err := req.terminateInstances(ctx, r, ids); err != nil {
		return err
	}

	left := len(r.Old) - len(ids)
	if err := req.addProgressEvent(
		"Successfully terminated instance(s) [%s] (Progress %d%%).",
		strings.Join(ids, ","),
		100*(r.Total-left)/r.Total,
	); err != nil {
		return err
	}

	if err := req.waitForNewInstances(ctx, p, max(len(ids)-r.Shrink, 0)); err != nil {
		return err
	}

	return r.change(req, func(r *RollingUpdate) {
		r.Old = slices.DeleteFunc(r.Old, func(id string) bool { return slices.Contains(ids, id) })
	})
}

// waitForNewInstances waits until new instances are in service, and then for their signals or for the pause
// time.
func (req *Request) waitForNewInstances(ctx context.Context, p *rollingUpdatePolicy, n int) error {
	if err := req.waitForCapacity(ctx); err != nil || n <= 0 {
		return err
	}

	if !p.waitOnSignals {
		if p.pauseTime == 0 {
			return nil
		}

		if err := req.addProgressEvent(
			"New instance(s) added to autoscaling group - Pausing for %s.",
			formatISODuration(p.pauseTime),
		); err != nil {
			return err
		}

		err := req.Engine.Poll(ctx, p.pauseTime, func() (bool, error) { return false, nil })
		if errors.Is(err, ErrWaitTimeout) {
			return nil
		}

		return err
	}

	if err := req.addProgressEvent(
		"New instance(s) added to autoscaling group - Waiting on %d resource signal(s) with a timeout of %s.",
		n,
		formatISODuration(p.pauseTime),
	); err != nil {
		return err
	}

	return req.Engine.WaitForSignals(ctx, req, SignalWait{
		Count:             n,
		MinSuccessPercent: p.minSuccessPercent,
		Timeout:           p.pauseTime,
	})
}
