// SPDX-License-Identifier: Apache-2.0

package cloudformation

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/slipway-k8s/slipway/internal/region/cloudformation/template"
)

// rollingUpdate is a rolling update that is under way; it survives a restart.
type rollingUpdate struct {
	Old          []string // instances to replace
	Total        int      // how many they were
	MaxSize      int      // of the group
	Begun        bool     // the sizes below are known
	FinalMin     int      // the group's own sizes, which may be raised for a while
	FinalDesired int
	Raised       bool     // they are raised
	Batch        []string // instances that are being replaced now
	Shrink       int      // how many of those are not replaced, since others took their places before
}

// rollingUpdatePolicy is an AutoScalingRollingUpdate policy.
type rollingUpdatePolicy struct {
	batchSize, minInService, minSuccessPercent int
	pauseTime                                  time.Duration
	waitOnSignals                              bool
	suspendProcesses                           []any
}

func parseRollingUpdatePolicy(policy template.Object) (rollingUpdatePolicy, bool, error) {
	p, ok := policy["AutoScalingRollingUpdate"].(template.Object)
	if !ok {
		return rollingUpdatePolicy{}, false, nil
	}

	r := rollingUpdatePolicy{
		batchSize:         intOr(p["MaxBatchSize"], 1),
		minInService:      intOr(p["MinInstancesInService"], 0),
		minSuccessPercent: intOr(p["MinSuccessfulInstancesPercent"], 100),
		waitOnSignals:     template.StringAt(p, "WaitOnResourceSignals") == "true",
		suspendProcesses:  template.ListAt(p, "SuspendProcesses"),
	}

	var otherwise time.Duration
	if r.waitOnSignals {
		otherwise = 5 * time.Minute
	}

	var err error
	r.pauseTime, err = parseISODuration(template.StringAt(p, "PauseTime"), otherwise)
	if r.waitOnSignals && r.pauseTime == 0 {
		r.pauseTime = 5 * time.Minute
	}

	return r, true, err
}

// runRollingUpdate updates a group and, where its policy says so, replaces its instances in batches.
func (j *handlerRequest) runRollingUpdate(in template.Object) error {
	p, ok, err := parseRollingUpdatePolicy(j.policy)
	if err != nil {
		return err
	}

	r, err := j.beginRollingUpdate(p, ok)
	if err != nil {
		return err
	}

	if err := j.runOperation("autoscaling", "UpdateAutoScalingGroup", in); err != nil {
		return err
	}

	if r == nil {
		return j.waitForCapacity()
	}

	if p.minInService >= intOr(template.ValueAt(in, "MaxSize"), r.MaxSize) && r.Total > 0 {
		return template.ValidationError("MinInstancesInService must be less than the autoscaling group's MaxSize")
	}

	err = j.replaceInBatches(p, r)
	if len(p.suspendProcesses) > 0 {
		if resumeErr := j.runOperation("autoscaling", "ResumeProcesses", template.Object{"AutoScalingGroupName": j.physicalID, "ScalingProcesses": p.suspendProcesses}); err == nil {
			err = resumeErr
		}
	}

	return err
}

// beginRollingUpdate begins a rolling update, or finds the one that an earlier process began; nil if nothing is to be replaced.
func (j *handlerRequest) beginRollingUpdate(
	p rollingUpdatePolicy,
	asked bool,
) (*rollingUpdate, error) { //revive:disable-line:flag-parameter
	if !asked || !j.propertyChanged(launchProperties()...) && !j.rollback {
		return nil, nil //nolint:nilnil // nothing to do is no error
	}

	g, err := j.describeAutoScalingGroup()
	if err != nil {
		return nil, err
	}

	if g == nil {
		return nil, errNoGroup
	}

	var out *rollingUpdate
	err = j.engine.store.WithLock(func() error {
		res := j.engine.state.Stacks[j.stackID].Resources[j.logicalID]
		if res.RollingUpdate == nil {
			res.RollingUpdate = &rollingUpdate{
				Old: j.obsoleteInstances(g), MaxSize: intOr(template.ValueAt(g, "MaxSize"), 0),
			}
			res.RollingUpdate.Total = len(res.RollingUpdate.Old)
			j.engine.store.MarkChanged()
		}

		out = res.RollingUpdate

		return nil
	})
	if err == nil && len(p.suspendProcesses) > 0 {
		err = j.runOperation(
			"autoscaling",
			"SuspendProcesses",
			template.Object{"AutoScalingGroupName": j.physicalID, "ScalingProcesses": p.suspendProcesses},
		)
	}

	return out, err
}

// obsoleteInstances are the instances that were not launched as the group is to launch them. Going back, those are spared that
// already are what they should be again.
func (j *handlerRequest) obsoleteInstances(g any) []string {
	var out []string
	for _, i := range template.ListAt(g, "Instances") {
		if state := template.StringAt(i, "LifecycleState"); state == "Terminating" || state == "Terminated" {
			continue
		}

		out = append(out, template.StringAt(i, "InstanceId"))
	}

	if j.rollback && j.matchesLaunchTemplate(g) {
		return nil
	}

	return out
}

// matchesLaunchTemplate tells whether all of a group's instances come from the launch template that it goes back to.
func (j *handlerRequest) matchesLaunchTemplate(g any) bool {
	spec, ok := j.props["LaunchTemplate"].(template.Object)
	if !ok {
		spec, _ = template.ValueAt(j.props, "MixedInstancesPolicy", "LaunchTemplate", "LaunchTemplateSpecification").(template.Object)
	}

	for _, i := range template.ListAt(g, "Instances") {
		if template.StringAt(i, "LaunchTemplate", "LaunchTemplateId") != template.StringAt(spec, "LaunchTemplateId") ||
			template.StringAt(i, "LaunchTemplate", "Version") != template.StringAt(spec, "Version") {
			return false
		}
	}

	return spec != nil
}

// addProgressEvent tells what the rolling update does.
func (j *handlerRequest) addProgressEvent(format string, args ...any) error {
	return j.engine.store.WithLock(func() error {
		st := j.engine.state.Stacks[j.stackID]
		r := st.Resources[j.logicalID]
		j.engine.addEvent(st, stackEvent{
			Logical:  r.Logical,
			Physical: r.Physical,
			Type:     r.Type,
			Status:   r.Status,
			Reason:   fmt.Sprintf(format, args...),
		})

		return nil
	})
}

// replaceInBatches replaces the old instances, batch by batch.
func (j *handlerRequest) replaceInBatches(p rollingUpdatePolicy, r *rollingUpdate) error {
	if r.Total == 0 {
		return j.waitForCapacity()
	}

	if !r.Begun {
		waiting := ""
		if p.waitOnSignals {
			waiting = fmt.Sprintf(
				" Waiting on resource signals with a timeout of %s when new instances are added to the autoscaling group.",
				formatISODuration(p.pauseTime),
			)
		}

		if err := j.addProgressEvent("Rolling update initiated. Terminating %d obsolete instance(s) in batches of %d, while keeping at least %d instance(s) in service.%s", r.Total, p.batchSize, p.minInService, waiting); err != nil {
			return err
		}
	}

	if err := j.raiseCapacity(p, r); err != nil {
		return err
	}

	done := 0

	for len(r.Old) > 0 {
		n := min(p.batchSize, len(r.Old))
		if err := j.replaceBatch(p, r, slices.Clone(r.Old[:n])); err != nil {
			return err
		}

		done += n
	}

	return j.restoreCapacity(r)
}

// raiseCapacity lets a group have more instances for a while, where otherwise too few would serve.
func (j *handlerRequest) raiseCapacity(p rollingUpdatePolicy, r *rollingUpdate) error {
	g, err := j.describeAutoScalingGroup()
	if err != nil {
		return err
	}

	desired := intOr(template.ValueAt(g, "DesiredCapacity"), 0)
	highest := intOr(template.ValueAt(g, "MaxSize"), 0)
	err = j.engine.store.WithLock(func() error {
		if !r.Begun {
			r.Begun, r.FinalMin, r.FinalDesired = true, intOr(template.ValueAt(g, "MinSize"), 0), desired
		}

		j.engine.store.MarkChanged()
		return nil
	})

	batch := min(p.batchSize, r.Total)
	if err != nil || r.FinalDesired-batch >= p.minInService || r.Raised {
		return err
	}

	want := min(p.minInService+batch, highest)
	if want <= desired {
		return nil
	}

	if err := j.addProgressEvent("Temporarily setting autoscaling group MinSize and DesiredCapacity to %d.", want); err != nil {
		return err
	}

	if err := j.engine.store.WithLock(func() error { r.Raised = true; j.engine.store.MarkChanged(); return nil }); err != nil {
		return err
	}

	if err := j.clearSignals(); err != nil {
		return err
	}

	if err := j.runOperation("autoscaling", "UpdateAutoScalingGroup", template.Object{"AutoScalingGroupName": j.physicalID, "MinSize": want, "DesiredCapacity": want}); err != nil {
		return err
	}

	return j.waitForNewInstances(p, want-desired)
}

// restoreCapacity takes back what raise did.
func (j *handlerRequest) restoreCapacity(r *rollingUpdate) error {
	if !r.Raised {
		return j.waitForCapacity()
	}

	err := j.runOperation(
		"autoscaling",
		"UpdateAutoScalingGroup",
		template.Object{
			"AutoScalingGroupName": j.physicalID,
			"MinSize":              r.FinalMin,
			"DesiredCapacity":      r.FinalDesired,
		},
	)
	if err != nil {
		return err
	}

	return j.waitForCapacity()
}

// beginBatch says what a batch does and forgets earlier signals, unless an earlier process did.
func (j *handlerRequest) beginBatch(r *rollingUpdate, ids []string) error {
	if slices.Equal(r.Batch, ids) {
		return nil
	}

	g, err := j.describeAutoScalingGroup()
	if err != nil {
		return err
	}

	shrink := 0
	if r.Raised { // the extra instances took places already: the last of the old ones make room
		shrink = max(0, intOr(template.ValueAt(g, "DesiredCapacity"), 0)-r.FinalDesired-(len(r.Old)-len(ids)))
	}

	err = j.addProgressEvent(
		"Terminating instance(s) [%s]; replacing with %d new instance(s).",
		strings.Join(ids, ","),
		max(len(ids)-shrink, 0),
	)
	if err != nil {
		return err
	}

	return j.engine.store.WithLock(func() error {
		r.Batch = ids
		r.Shrink = shrink
		j.engine.state.Stacks[j.stackID].Resources[j.logicalID].Signals = nil
		j.engine.store.MarkChanged()

		return nil
	})
}

// terminateInstances terminates the instances of a batch.
func (j *handlerRequest) terminateInstances(r *rollingUpdate, ids []string) error {
	for i, id := range ids {
		less := i < r.Shrink
		if less {
			if err := j.runOperation("autoscaling", "UpdateAutoScalingGroup", template.Object{"AutoScalingGroupName": j.physicalID, "MinSize": r.FinalMin}); err != nil {
				return err
			}
		}

		err := j.runOperation(
			"autoscaling",
			"TerminateInstanceInAutoScalingGroup",
			template.Object{"InstanceId": id, "ShouldDecrementDesiredCapacity": less},
		)
		if err != nil && errorCode(err) != "ValidationError" { // it has ended by itself
			return err
		}
	}

	return j.waitUntil(func() (bool, error) {
		g, err := j.describeAutoScalingGroup()
		return !slices.ContainsFunc(
			template.ListAt(g, "Instances"),
			func(i any) bool { return slices.Contains(ids, template.StringAt(i, "InstanceId")) },
		), err
	})
}

// replaceBatch terminates some old instances and waits for those that take their places.
func (j *handlerRequest) replaceBatch(p rollingUpdatePolicy, r *rollingUpdate, ids []string) error {
	if err := j.beginBatch(r, ids); err != nil {
		return err
	}

	if err := j.terminateInstances(r, ids); err != nil {
		return err
	}

	left := len(r.Old) - len(ids)
	if err := j.addProgressEvent("Successfully terminated instance(s) [%s] (Progress %d%%).", strings.Join(ids, ","), 100*(r.Total-left)/r.Total); err != nil {
		return err
	}

	if err := j.waitForNewInstances(p, max(len(ids)-r.Shrink, 0)); err != nil {
		return err
	}

	return j.engine.store.WithLock(func() error {
		r.Old = slices.DeleteFunc(r.Old, func(id string) bool { return slices.Contains(ids, id) })
		j.engine.store.MarkChanged()
		return nil
	})
}

func (j *handlerRequest) clearSignals() error {
	return j.engine.store.WithLock(func() error {
		j.engine.state.Stacks[j.stackID].Resources[j.logicalID].Signals = nil
		j.engine.store.MarkChanged()
		return nil
	})
}

// waitForNewInstances waits for new instances: until they serve, and then until they say so, or for a while.
func (j *handlerRequest) waitForNewInstances(p rollingUpdatePolicy, n int) error {
	if err := j.waitForCapacity(); err != nil || n <= 0 {
		return err
	}

	if !p.waitOnSignals {
		if p.pauseTime == 0 {
			return nil
		}

		if err := j.addProgressEvent("New instance(s) added to autoscaling group - Pausing for %s.", formatISODuration(p.pauseTime)); err != nil {
			return err
		}

		return ignoreTimeout(
			j.engine.pollUntil(j.ctx, p.pauseTime, func() (bool, error) { return false, nil }),
		)
	}

	if err := j.addProgressEvent("New instance(s) added to autoscaling group - Waiting on %d resource signal(s) with a timeout of %s.", n, formatISODuration(p.pauseTime)); err != nil {
		return err
	}

	return j.engine.waitForSignals(
		j,
		j.storedResource(),
		signalWait{count: n, minSuccessPercent: p.minSuccessPercent, timeout: p.pauseTime},
	)
}

func ignoreTimeout(err error) error {
	if err == errWaitTimeout { //nolint:errorlint // poll returns it as it is
		return nil
	}

	return err
}

// formatISODuration is a duration as templates write it.
func formatISODuration(d time.Duration) string { return "PT" + strings.ToUpper(d.String()) }
