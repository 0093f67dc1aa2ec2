// SPDX-License-Identifier: Apache-2.0

package cloudformation

import (
	"fmt"
	"slices"
	"strings"
	"time"
)

// roll is a rolling update that is under way; it survives a restart.
type roll struct {
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

// rolling is an AutoScalingRollingUpdate policy.
type rolling struct {
	batch, least, percent int
	pause                 time.Duration
	wait                  bool
	suspend               []any
}

func rollingOf(policy tree) (rolling, bool, error) {
	p, ok := policy["AutoScalingRollingUpdate"].(tree)
	if !ok {
		return rolling{}, false, nil
	}
	r := rolling{
		batch: number(p["MaxBatchSize"], 1), least: number(p["MinInstancesInService"], 0),
		percent: number(p["MinSuccessfulInstancesPercent"], 100), wait: textOf(p, "WaitOnResourceSignals") == "true",
		suspend: list0(p, "SuspendProcesses"),
	}
	var otherwise time.Duration
	if r.wait {
		otherwise = 5 * time.Minute
	}
	var err error
	r.pause, err = duration(textOf(p, "PauseTime"), otherwise)
	if r.wait && r.pause == 0 {
		r.pause = 5 * time.Minute
	}
	return r, true, err
}

// roll updates a group and, where its policy says so, replaces its instances in batches.
func (j *job) roll(in tree) error {
	p, ok, err := rollingOf(j.policy)
	if err != nil {
		return err
	}
	r, err := j.rollState(p, ok)
	if err != nil {
		return err
	}
	if err := j.do("autoscaling", "UpdateAutoScalingGroup", in); err != nil {
		return err
	}
	if r == nil {
		return j.stabilize()
	}
	if p.least >= number(at(in, "MaxSize"), r.MaxSize) && r.Total > 0 {
		return invalid("MinInstancesInService must be less than the autoscaling group's MaxSize")
	}
	err = j.batches(p, r)
	if len(p.suspend) > 0 {
		if resumeErr := j.do("autoscaling", "ResumeProcesses", tree{"AutoScalingGroupName": j.id, "ScalingProcesses": p.suspend}); err == nil {
			err = resumeErr
		}
	}
	return err
}

// rollState begins a rolling update, or finds the one that an earlier process began; nil if nothing is to be replaced.
func (j *job) rollState(p rolling, asked bool) (*roll, error) { //revive:disable-line:flag-parameter
	if !asked || !j.differs(launching()...) && !j.rollback {
		return nil, nil //nolint:nilnil // nothing to do is no error
	}
	g, err := j.group()
	if err != nil {
		return nil, err
	}
	if g == nil {
		return nil, errNoGroup
	}
	var out *roll
	err = j.s.book.Do(func() error {
		res := j.s.st.Stacks[j.stack].Resources[j.logical]
		if res.Roll == nil {
			res.Roll = &roll{
				Old: j.obsolete(g), MaxSize: number(at(g, "MaxSize"), 0),
			}
			res.Roll.Total = len(res.Roll.Old)
			j.s.book.Dirty()
		}
		out = res.Roll
		return nil
	})
	if err == nil && len(p.suspend) > 0 {
		err = j.do("autoscaling", "SuspendProcesses", tree{"AutoScalingGroupName": j.id, "ScalingProcesses": p.suspend})
	}
	return out, err
}

// obsolete are the instances that were not launched as the group is to launch them. Going back, those are spared that
// already are what they should be again.
func (j *job) obsolete(g any) []string {
	var out []string
	for _, i := range list0(g, "Instances") {
		if state := textOf(i, "LifecycleState"); state == "Terminating" || state == "Terminated" {
			continue
		}
		out = append(out, textOf(i, "InstanceId"))
	}
	if j.rollback && j.untouched(g) {
		return nil
	}
	return out
}

// untouched tells whether all of a group's instances come from the launch template that it goes back to.
func (j *job) untouched(g any) bool {
	spec, ok := j.props["LaunchTemplate"].(tree)
	if !ok {
		spec, _ = at(j.props, "MixedInstancesPolicy", "LaunchTemplate", "LaunchTemplateSpecification").(tree)
	}
	for _, i := range list0(g, "Instances") {
		if textOf(i, "LaunchTemplate", "LaunchTemplateId") != textOf(spec, "LaunchTemplateId") || textOf(i, "LaunchTemplate", "Version") != textOf(spec, "Version") {
			return false
		}
	}
	return spec != nil
}

// say tells what the rolling update does.
func (j *job) say(format string, args ...any) error {
	return j.s.book.Do(func() error {
		st := j.s.st.Stacks[j.stack]
		r := st.Resources[j.logical]
		j.s.note(st, event{Logical: r.Logical, Physical: r.Physical, Type: r.Type, Status: r.Status, Reason: fmt.Sprintf(format, args...)})
		return nil
	})
}

// batches replaces the old instances, batch by batch.
func (j *job) batches(p rolling, r *roll) error {
	if r.Total == 0 {
		return j.stabilize()
	}
	if !r.Begun {
		waiting := ""
		if p.wait {
			waiting = fmt.Sprintf(" Waiting on resource signals with a timeout of %s when new instances are added to the autoscaling group.", iso(p.pause))
		}
		if err := j.say("Rolling update initiated. Terminating %d obsolete instance(s) in batches of %d, while keeping at least %d instance(s) in service.%s", r.Total, p.batch, p.least, waiting); err != nil {
			return err
		}
	}
	if err := j.raise(p, r); err != nil {
		return err
	}
	done := 0
	for len(r.Old) > 0 {
		n := min(p.batch, len(r.Old))
		if err := j.batch(p, r, slices.Clone(r.Old[:n])); err != nil {
			return err
		}
		done += n
	}
	return j.lower(r)
}

// raise lets a group have more instances for a while, where otherwise too few would serve.
func (j *job) raise(p rolling, r *roll) error {
	g, err := j.group()
	if err != nil {
		return err
	}
	desired, highest := number(at(g, "DesiredCapacity"), 0), number(at(g, "MaxSize"), 0)
	err = j.s.book.Do(func() error {
		if !r.Begun {
			r.Begun, r.FinalMin, r.FinalDesired = true, number(at(g, "MinSize"), 0), desired
		}
		j.s.book.Dirty()
		return nil
	})
	batch := min(p.batch, r.Total)
	if err != nil || r.FinalDesired-batch >= p.least || r.Raised {
		return err
	}
	want := min(p.least+batch, highest)
	if want <= desired {
		return nil
	}
	if err := j.say("Temporarily setting autoscaling group MinSize and DesiredCapacity to %d.", want); err != nil {
		return err
	}
	if err := j.s.book.Do(func() error { r.Raised = true; j.s.book.Dirty(); return nil }); err != nil {
		return err
	}
	if err := j.clearSignals(); err != nil {
		return err
	}
	if err := j.do("autoscaling", "UpdateAutoScalingGroup", tree{"AutoScalingGroupName": j.id, "MinSize": want, "DesiredCapacity": want}); err != nil {
		return err
	}
	return j.fresh(p, want-desired)
}

// lower takes back what raise did.
func (j *job) lower(r *roll) error {
	if !r.Raised {
		return j.stabilize()
	}
	err := j.do("autoscaling", "UpdateAutoScalingGroup", tree{"AutoScalingGroupName": j.id, "MinSize": r.FinalMin, "DesiredCapacity": r.FinalDesired})
	if err != nil {
		return err
	}
	return j.stabilize()
}

// beginBatch says what a batch does and forgets earlier signals, unless an earlier process did.
func (j *job) beginBatch(r *roll, ids []string) error {
	if slices.Equal(r.Batch, ids) {
		return nil
	}
	g, err := j.group()
	if err != nil {
		return err
	}
	shrink := 0
	if r.Raised { // the extra instances took places already: the last of the old ones make room
		shrink = max(0, number(at(g, "DesiredCapacity"), 0)-r.FinalDesired-(len(r.Old)-len(ids)))
	}
	err = j.say("Terminating instance(s) [%s]; replacing with %d new instance(s).", strings.Join(ids, ","), max(len(ids)-shrink, 0))
	if err != nil {
		return err
	}
	return j.s.book.Do(func() error {
		r.Batch, r.Shrink = ids, shrink
		j.s.st.Stacks[j.stack].Resources[j.logical].Signals = nil
		j.s.book.Dirty()
		return nil
	})
}

// retire terminates the instances of a batch.
func (j *job) retire(r *roll, ids []string) error {
	for i, id := range ids {
		less := i < r.Shrink
		if less {
			if err := j.do("autoscaling", "UpdateAutoScalingGroup", tree{"AutoScalingGroupName": j.id, "MinSize": r.FinalMin}); err != nil {
				return err
			}
		}
		err := j.do("autoscaling", "TerminateInstanceInAutoScalingGroup", tree{"InstanceId": id, "ShouldDecrementDesiredCapacity": less})
		if err != nil && code(err) != "ValidationError" { // it has ended by itself
			return err
		}
	}
	return j.wait(func() (bool, error) {
		g, err := j.group()
		return !slices.ContainsFunc(list0(g, "Instances"), func(i any) bool { return slices.Contains(ids, textOf(i, "InstanceId")) }), err
	})
}

// batch terminates some old instances and waits for those that take their places.
func (j *job) batch(p rolling, r *roll, ids []string) error {
	if err := j.beginBatch(r, ids); err != nil {
		return err
	}
	if err := j.retire(r, ids); err != nil {
		return err
	}
	left := len(r.Old) - len(ids)
	if err := j.say("Successfully terminated instance(s) [%s] (Progress %d%%).", strings.Join(ids, ","), 100*(r.Total-left)/r.Total); err != nil {
		return err
	}
	if err := j.fresh(p, max(len(ids)-r.Shrink, 0)); err != nil {
		return err
	}
	return j.s.book.Do(func() error {
		r.Old = slices.DeleteFunc(r.Old, func(id string) bool { return slices.Contains(ids, id) })
		j.s.book.Dirty()
		return nil
	})
}

func (j *job) clearSignals() error {
	return j.s.book.Do(func() error {
		j.s.st.Stacks[j.stack].Resources[j.logical].Signals = nil
		j.s.book.Dirty()
		return nil
	})
}

// fresh waits for new instances: until they serve, and then until they say so, or for a while.
func (j *job) fresh(p rolling, n int) error {
	if err := j.stabilize(); err != nil || n <= 0 {
		return err
	}
	if !p.wait {
		if p.pause == 0 {
			return nil
		}
		if err := j.say("New instance(s) added to autoscaling group - Pausing for %s.", iso(p.pause)); err != nil {
			return err
		}
		return pastTimeout(j.s.poll(j.ctx, p.pause, func() (bool, error) { return false, nil }))
	}
	if err := j.say("New instance(s) added to autoscaling group - Waiting on %d resource signal(s) with a timeout of %s.", n, iso(p.pause)); err != nil {
		return err
	}
	return j.s.await(j, j.resource(), await{count: n, percent: p.percent, timeout: p.pause})
}

func pastTimeout(err error) error {
	if err == errTooLong { //nolint:errorlint // poll returns it as it is
		return nil
	}
	return err
}

// iso is a duration as templates write it.
func iso(d time.Duration) string { return "PT" + strings.ToUpper(d.String()) }
