// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"strings"

	"github.com/slipway-k8s/slipway/internal/lib/privatefile"
)

// machineType is the default type of machines in 'slipway create cluster'.
const machineType = "t3.large"

// outputLines is how much of the output of a failed command is in the report.
const outputLines = 60

// How long 'slipway validate' waits for a new cluster and after a replacement of machines.
const (
	validateLimit = "20m"
	repairLimit   = "10m"
)

// step is a part of a run.
type step struct {
	name string
	// needsMachines is set if the step fails in a region without machines.
	needsMachines bool
	do            func(context.Context, *stepReport) error
}

// changeSteps are all steps before the deletion.
func (r *run) changeSteps() []step {
	name := r.id.clusterName()
	return []step{
		{name: "state-init", do: r.commandStep([]int{0}, "state", "init", "--yes")},
		{name: "tag-store", do: func(ctx context.Context, _ *stepReport) error { return r.inventory.tagStore(ctx) }},
		{name: "create", do: r.createCluster},
		{name: "preflight", do: r.commandStep([]int{0, 2}, "preflight", name, "-v")},
		{name: "plan", do: r.planCluster},
		{name: "apply", do: r.commandStep([]int{0}, "apply", name, "--yes", "-v")},
		{
			name:          "validate",
			needsMachines: true,
			do:            r.commandStep([]int{0}, "validate", "cluster", name, "--wait", validateLimit),
		},
		{name: "plan-again", do: r.commandStep([]int{0}, "plan", name, "-v")}, // 2 would be changes
		{name: "drift", do: r.commandStep([]int{0}, "drift", name, "-v")},     // 2 would be drift
		{
			name:          "rolling-update",
			needsMachines: true,
			do:            r.commandStep([]int{0}, "rolling-update", "cluster", name, "--group", "workers", "--force", "--yes"),
		},
		{
			name:          "validate-again",
			needsMachines: true,
			do:            r.commandStep([]int{0}, "validate", "cluster", name, "--wait", repairLimit),
		},
	}
}

// deleteStep deletes the cluster. An interrupted command may have left its lock, which ends after 70 s.
func (r *run) deleteStep() step {
	name := r.id.clusterName()
	return step{
		name: "delete",
		do:   r.commandStep([]int{0}, "delete", "cluster", name, "--yes", "--destroy-data", "--lock-timeout", "2m", "-v"),
	}
}

// commandStep returns a step that runs slipway, which must exit with one of codes.
func (r *run) commandStep(codes []int, args ...string) func(context.Context, *stepReport) error {
	return func(ctx context.Context, report *stepReport) error {
		_, err := r.runSlipway(ctx, report, codes, args...)
		return err
	}
}

// runSlipway runs slipway, which must exit with one of codes, and adds what it printed to the report of a step.
func (r *run) runSlipway(ctx context.Context, report *stepReport, codes []int, args ...string) (commandResult, error) {
	report.Command = r.program.mask.hideSecrets(strings.Join(args, " "))
	result, err := r.program.runCommand(ctx, args...)
	report.Warnings = append(report.Warnings, parseWarnings(result.stderr)...)
	if calls, ok := parseCalls(result.stderr); ok {
		report.Calls = &calls
	}

	if err == nil && !slices.Contains(codes, result.exitCode) {
		err = fmt.Errorf("exit status %d: %s", result.exitCode, findError(result.stderr))
	}

	if err != nil {
		output := r.program.mask.hideSecrets(result.stdout) + result.stderr
		report.Output = lastLines(output, outputLines)
	}

	return result, err
}

// findError returns the error that a command has printed.
func findError(stderr string) string {
	for line := range strings.Lines(stderr) {
		if text, ok := strings.CutPrefix(strings.TrimSpace(line), "error: "); ok {
			return text
		}
	}

	return "see its output"
}

// createCluster writes the manifests of the cluster, with the tag of the run, to the state store.
func (r *run) createCluster(ctx context.Context, report *stepReport) error {
	zones := r.settings.zones
	if len(zones) == 0 {
		found, err := r.account.findZones(ctx, r.settings.zoneCount(), machineType)
		if err != nil {
			return err
		}

		zones = found
	}

	args := append([]string{"create", "cluster", r.id.clusterName()}, r.settings.topologyFlags(zones)...)
	printed, err := r.runSlipway(ctx, report, []int{0}, append(args, "--dry-run")...)
	if err != nil {
		return err
	}

	manifest, err := addRunTag(printed.stdout, r.id)
	if err != nil {
		return err
	}

	file := filepath.Join(r.directory.path, "cluster.yaml")
	if err := privatefile.Write(file, []byte(manifest)); err != nil {
		return fmt.Errorf("write the manifests of cluster %s: %w", r.id, err)
	}

	r.created = true
	_, err = r.runSlipway(ctx, report, []int{0}, "create", "-f", filepath.Base(file), "--yes")

	return err
}

// addRunTag returns manifests with the tag of the run in spec.tags of the cluster, which is their first document.
func addRunTag(manifest string, id runID) (string, error) {
	const spec = "\nspec:\n"
	before, after, found := strings.Cut(manifest, spec)
	if !found || strings.Contains(before, "\n---\n") {
		return "", errors.New("add the tag of the run: the first manifest of 'slipway create cluster --dry-run' has no spec")
	}

	return before + spec + "  tags:\n    " + runTag + ": " + string(id) + "\n" + after, nil
}

// planCluster makes the plan and prints its cost, before anything that costs is created.
func (r *run) planCluster(ctx context.Context, report *stepReport) error {
	result, err := r.runSlipway(ctx, report, []int{2}, "plan", r.id.clusterName(), "-o", "json", "-v")
	if err != nil {
		return err
	}

	r.report.Cost, err = estimateCost(result.stdout, r.settings.timeout)
	if err != nil {
		return err
	}

	r.printLine("%s", r.report.Cost.describeCost())

	return nil
}
