// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/slipway-k8s/slipway/internal/lib/diag"
)

// run is one run: its directory, and what it does in AWS.
type run struct {
	harness

	id        runID
	directory runDirectory
	program   program
	inventory inventory
	report    *report
	// created is set once a cluster may exist in the state store.
	created bool
	// broken is the name of the step that failed; empty if none has.
	broken string
}

// runNew makes a new run: all steps, the deletion, the sweep and the report. The error says how the run failed.
func (h harness) runNew(ctx context.Context) error {
	id := newRunID(h.now())
	directory, err := h.createRunDirectory(id)
	if err != nil {
		return err
	}

	r, err := h.openRun(ctx, directory)
	if err != nil {
		return err
	}

	r.printLine("run %s in %s at %s; its directory is %s", id, h.settings.region, h.account.describePlace(), directory.path)
	r.printLine("the cluster is deleted after %s at the latest, and when this program is interrupted", h.settings.timeout)
	r.printLine("if this program is killed, the next run deletes what is left, or: make e2e-aws SWEEP=%s", id)

	limited, stop := context.WithTimeoutCause(ctx, h.settings.timeout, errTimeLimit)
	for _, s := range r.changeSteps() {
		r.runStep(limited, s)
	}

	stop()

	// A signal or the time limit ends the steps above, never the deletion.
	deletion, stop := context.WithTimeoutCause(context.WithoutCancel(ctx), deletionLimit, errTimeLimit)
	defer stop()
	r.deleteAndSweep(deletion)

	return r.finishReport()
}

// openRun prepares the commands and the report of a run.
func (h harness) openRun(ctx context.Context, d runDirectory) (*run, error) {
	r := &run{
		harness:   h,
		id:        d.record.ID,
		directory: d,
		inventory: newInventory(h.account, d.record.ID),
	}

	var err error
	if r.program, err = h.newProgram(d); err != nil {
		return nil, err
	}

	version, err := r.readVersion(ctx)
	if err != nil {
		return nil, err
	}

	r.report = &report{ID: r.id, Differences: []string{}, Environment: environment{
		Started:   d.record.Started,
		Account:   maskedAccount,
		Region:    h.settings.region,
		Endpoint:  h.account.describePlace(),
		Slipway:   version,
		Topology:  h.settings.topology,
		Machines:  h.settings.machines,
		TimeLimit: h.settings.timeout.String(),
	}}

	return r, nil
}

// readVersion returns the versions of slipway and Go, and the platform.
func (r *run) readVersion(ctx context.Context) (string, error) {
	result, err := r.program.runCommand(ctx, "version", "-o", "json")
	var version struct{ Version, Go, Platform string }
	if err == nil {
		err = json.Unmarshal([]byte(result.stdout), &version)
	}

	if err != nil {
		return "", fmt.Errorf("read the version of %s: %w", r.program.path, err)
	}

	return version.Version + " (" + version.Go + ", " + version.Platform + ")", nil
}

// runStep runs a step unless an earlier one failed or it needs machines, and adds its result to the report.
func (r *run) runStep(ctx context.Context, s step) {
	result := stepReport{Name: s.name, Result: resultPassed}
	begin := r.now()

	switch {
	case r.broken != "":
		result.Result = resultNotRun
		result.Reason = r.broken + " failed"
	case s.needsMachines && !r.settings.machines:
		result.Result = resultSkipped
		result.Reason = variableMachines + "=no"
	default:
		if err := s.do(ctx, &result); err != nil {
			result.Result = resultFailed
			result.Reason = r.program.mask.hideSecrets(describeFailure(ctx, err))
			r.broken = s.name
		}
	}

	result.Seconds = r.now().Sub(begin).Round(time.Millisecond).Seconds()
	r.report.Steps = append(r.report.Steps, result)
	r.printStep(result)
	if err := r.report.writeReport(r.directory.path); err != nil { // also for a run that is killed later
		r.printError(err)
	}
}

// describeFailure returns an error with the cause of a context that ended.
func describeFailure(ctx context.Context, err error) string {
	if cause := context.Cause(ctx); cause != nil && !errors.Is(err, cause) {
		return cause.Error() + ": " + err.Error()
	}

	return err.Error()
}

// printStep prints the result of a step.
func (r *run) printStep(s stepReport) {
	line := fmt.Sprintf("%-15s %-8s %7.1f s", s.Name, s.Result, s.Seconds)
	if s.Calls != nil {
		line += fmt.Sprintf("  %d calls, %d changing", s.Calls.All, s.Calls.Changing)
	}

	if s.Reason != "" {
		line += "  " + firstLine(s.Reason)
	}

	r.printLine("%s", line)
}

// deleteAndSweep deletes the cluster and then everything else that has the id of the run.
func (r *run) deleteAndSweep(ctx context.Context) {
	failed := r.broken
	r.broken = ""
	if r.created {
		r.runStep(ctx, r.deleteStep())
	}

	deleted := r.created && r.broken == ""
	r.broken = ""
	r.runStep(ctx, step{name: "sweep", do: func(ctx context.Context, _ *stepReport) error { return r.sweepResources(ctx, deleted) }})
	r.broken = failed
}

// finishReport compares the run with the local region, writes the report and prints it. The error says that the run failed.
func (r *run) finishReport() error {
	differences, err := r.report.findDifferences()
	if err != nil {
		return err
	}

	r.report.Differences = differences
	r.report.decideResult()
	if err := r.report.writeReport(r.directory.path); err != nil {
		return err
	}

	r.printLine("\n%s", r.report.formatText())
	r.printLine("report: %s/report.txt and report.json", r.directory.path)
	if r.report.Sweep != nil && r.report.Sweep.isClean() {
		err = r.directory.markClean()
	}

	if r.report.Result == resultFailed {
		err = errors.Join(err, diag.WithHint(
			fmt.Errorf("run %s failed", r.id),
			"attach "+r.directory.path+"/report.json to a bug report; the output of all commands is next to it",
		))
	}

	return err
}
