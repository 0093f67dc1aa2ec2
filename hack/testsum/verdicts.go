// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"text/tabwriter"
)

// verdictTable contains the verdicts of the judges of test/judge, by topology and by "output
// judge".
type verdictTable map[string]map[string]string

// addLine adds the verdict of a line such as
//
//	cell_test.go:20: CELL ha terraform terraform ok
func (v verdictTable) addLine(line string) {
	_, text, found := strings.Cut(line, " CELL ")
	fields := strings.Fields(text)
	if !found || len(fields) != 4 {
		return
	}

	if v[fields[0]] == nil {
		v[fields[0]] = map[string]string{}
	}

	v[fields[0]][fields[1]+" "+fields[2]] = fields[3]
}

// printTable prints the verdicts by topology, and by output and judge. It returns the number of
// missing and bad verdicts.
func (v verdictTable) printTable(w io.Writer) int {
	if len(v) == 0 {
		return 0
	}

	columns := map[string]bool{}
	for _, row := range v {
		for column := range row {
			columns[column] = true
		}
	}

	headings := slices.Sorted(maps.Keys(columns))
	bad := 0
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	outputs := []string{""}
	judges := []string{"topology"}

	for _, h := range headings {
		output, judge, _ := strings.Cut(h, " ")
		outputs = append(outputs, output)
		judges = append(judges, judge)
	}

	fmt.Fprintf(t, "\n%s\n%s\n", strings.Join(outputs, "\t"), strings.Join(judges, "\t"))

	for _, topology := range slices.Sorted(maps.Keys(v)) {
		row := []string{topology}
		for _, h := range headings {
			verdict := v[topology][h]
			if verdict == "" {
				verdict = "MISSING"
			}

			if verdict != "ok" && !strings.HasPrefix(verdict, "skipped") {
				bad++
			}

			row = append(row, verdict)
		}

		fmt.Fprintln(t, strings.Join(row, "\t"))
	}

	if err := t.Flush(); err != nil {
		bad++
	}

	return bad
}
