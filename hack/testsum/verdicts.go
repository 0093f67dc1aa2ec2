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

// verdictTable is what judges said: topology to "output judge" to verdict.
type verdictTable map[string]map[string]string

// addLine reads a line such as
//
//	cell_test.go:20: CELL ha terraform terraform ok
func (c verdictTable) addLine(line string) {
	_, text, found := strings.Cut(line, " CELL ")
	f := strings.Fields(text)
	if !found || len(f) != 4 {
		return
	}

	if c[f[0]] == nil {
		c[f[0]] = map[string]string{}
	}

	c[f[0]][f[1]+" "+f[2]] = f[3]
}

// print writes the table topology by output and judge, and returns how many cells nobody filled or are bad.
func (c verdictTable) printTable(w io.Writer) int {
	if len(c) == 0 {
		return 0
	}

	columns := map[string]bool{}
	for _, row := range c {
		for column := range row {
			columns[column] = true
		}
	}

	heads := slices.Sorted(maps.Keys(columns))
	bad := 0
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	outputs := []string{""}
	judges := []string{"topology"}

	for _, h := range heads {
		output, judge, _ := strings.Cut(h, " ")
		outputs = append(outputs, output)
		judges = append(judges, judge)
	}

	fmt.Fprintf(t, "\n%s\n%s\n", strings.Join(outputs, "\t"), strings.Join(judges, "\t"))

	for _, topology := range slices.Sorted(maps.Keys(c)) {
		row := []string{topology}
		for _, h := range heads {
			verdict := c[topology][h]
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
