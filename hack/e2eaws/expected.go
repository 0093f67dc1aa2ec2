// SPDX-License-Identifier: Apache-2.0

package main

import (
	_ "embed"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
)

// expectedJSON has what the same steps do in the local region without machines. TestRunLeavesNothing -update writes it.
//
//go:embed expected.json
var expectedJSON []byte

// expectedSteps is what each step does in the local region, by its name.
type expectedSteps map[string]expectedStep

// expectedStep is what one step does in the local region.
type expectedStep struct {
	// Calls is the number of calls by operation. Commands that wait for AWS read as often as AWS needs them to: of these
	// only the calls that change something are listed.
	Calls map[string]int `json:"calls,omitempty"`
	// Warnings that the command prints.
	Warnings []string `json:"warnings,omitempty"`
}

// readExpected returns what the steps do in the local region with a topology.
func readExpected(topology string) (expectedSteps, error) {
	var all map[string]expectedSteps
	if err := json.Unmarshal(expectedJSON, &all); err != nil {
		return nil, fmt.Errorf("read what the local region does: %w", err)
	}

	return all[topology], nil
}

// isWaitingStep reports whether a step waits for AWS.
func isWaitingStep(name string) bool { return slices.Contains([]string{"apply", "delete"}, name) }

// isReading reports whether an operation, such as EC2:DescribeVpcs, changes nothing.
func isReading(operation string) bool {
	_, name, _ := strings.Cut(operation, ":")
	return slices.ContainsFunc([]string{"Describe", "Get", "List", "Head"}, func(prefix string) bool {
		return strings.HasPrefix(name, prefix)
	})
}

// summarizeStep returns what a step has done, for the comparison with another run.
func summarizeStep(s stepReport) expectedStep {
	out := expectedStep{Warnings: s.Warnings}
	if s.Calls == nil {
		return out
	}

	out.Calls = maps.Clone(s.Calls.ByOperation)
	if isWaitingStep(s.Name) {
		maps.DeleteFunc(out.Calls, func(operation string, _ int) bool { return isReading(operation) })
	}

	return out
}

// findDifferences returns what the steps that passed did otherwise than in the local region, one line for each.
func (r *report) findDifferences() ([]string, error) {
	expected, err := readExpected(r.Environment.Topology)
	if err != nil {
		return nil, err
	}

	lines := []string{}
	for _, s := range r.Steps {
		want, known := expected[s.Name]
		if s.Result == resultPassed && known {
			lines = append(lines, compareStep(s.Name, summarizeStep(s), want)...)
		}
	}

	return lines, nil
}

// compareStep returns the differences of one step.
func compareStep(name string, got, want expectedStep) []string {
	operations := maps.Clone(want.Calls)
	if operations == nil {
		operations = map[string]int{}
	}

	maps.Copy(operations, got.Calls)
	var lines []string
	for _, operation := range slices.Sorted(maps.Keys(operations)) {
		if got.Calls[operation] != want.Calls[operation] {
			lines = append(lines, fmt.Sprintf("%s: %d × %s, in the local region %d",
				name, got.Calls[operation], operation, want.Calls[operation]))
		}
	}

	for _, warning := range got.Warnings {
		if !slices.Contains(want.Warnings, warning) {
			lines = append(lines, name+": a warning that the local region does not cause: "+warning)
		}
	}

	for _, warning := range want.Warnings {
		if !slices.Contains(got.Warnings, warning) {
			lines = append(lines, name+": no warning, in the local region: "+warning)
		}
	}

	return lines
}
