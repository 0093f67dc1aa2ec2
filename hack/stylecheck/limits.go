// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"io"
	"strconv"
	"strings"
)

// limit is one figure, how it is computed, and the value it must not pass.
type limit struct {
	// title heads the column of the figure.
	title string
	// value computes the figure from what was counted.
	value func(m *measurement) float64
	// most is the largest value allowed, or the smallest one if atLeast is set.
	most float64
	// atLeast turns the limit round.
	atLeast bool
	// unit is printed behind the value: "%", "/k" (per 1,000 lines) or nothing.
	unit string
}

// limits are the project's aims. They are what well-kept Go projects (restic, OpenTofu's plans package, versitygw) reach
// in the same figures, rounded.
func limits() []limit {
	return []limit{
		{title: "one-word names", unit: "%", most: 20, value: func(m *measurement) float64 {
			return percent(m.oneWordFunctions, m.functions)
		}},
		{title: "parallel assignments", unit: "/k", most: 1, value: func(m *measurement) float64 {
			return perThousand(m.parallelAssignments, m.lines)
		}},
		{title: "packed literals", unit: "/k", most: 0.3, value: func(m *measurement) float64 {
			return perThousand(m.packedLines, m.lines)
		}},
		{title: "over 100 columns", unit: "%", most: 3, value: func(m *measurement) float64 {
			return percent(m.wideLines, m.codeLines)
		}},
		{title: "blank lines", unit: "%", most: 12, atLeast: true, value: func(m *measurement) float64 {
			return percent(m.blankLines, m.lines)
		}},
		{title: "nolint", unit: "/k", most: 0.5, value: func(m *measurement) float64 {
			return perThousand(m.nolints, m.lines)
		}},
		{title: "documented fields", unit: "%", most: 70, atLeast: true, value: func(m *measurement) float64 {
			return percent(m.documentedFields, m.fields)
		}},
		{title: "methods of a type", most: 80, value: func(m *measurement) float64 {
			_, methods := m.largestType()

			return float64(methods)
		}},
	}
}

func percent(n, of int) float64 {
	return 100 * float64(n) / float64(max(1, of))
}

func perThousand(n, lines int) float64 {
	return 1000 * float64(n) / float64(max(1, lines))
}

// printHeader prints the names of the figures and their limits.
func printHeader(w io.Writer) {
	titles := []string{"group", "lines"}
	aims := []string{"limit", ""}

	for _, l := range limits() {
		sign := "<="
		if l.atLeast {
			sign = ">="
		}

		titles = append(titles, l.title)
		aims = append(aims, fmt.Sprintf("%s %g%s", sign, l.most, l.unit))
	}

	fmt.Fprintln(w, strings.Join(titles, "\t")+"\t")
	fmt.Fprintln(w, strings.Join(aims, "\t")+"\t")
}

// printFigures prints the figures of a group in one line and returns a message for each figure outside its limit.
func printFigures(w io.Writer, name string, m *measurement) []string {
	var failures []string

	cells := []string{name, strconv.Itoa(m.lines)}

	for _, l := range limits() {
		value := l.value(m)
		decimals := 1

		if l.unit == "/k" {
			decimals = 2
		}

		if l.unit == "" {
			decimals = 0
		}

		cells = append(cells, fmt.Sprintf("%.*f%s", decimals, value, l.unit))

		if outside := value > l.most; outside != l.atLeast && value != l.most {
			failures = append(failures, fmt.Sprintf("%s: %s is %.2f%s, the limit is %g%s: run 'go run ./hack/stylecheck -v'",
				name, l.title, value, l.unit, l.most, l.unit))
		}
	}

	fmt.Fprintln(w, strings.Join(cells, "\t")+"\t")

	return failures
}
