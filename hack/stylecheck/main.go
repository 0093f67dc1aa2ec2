// SPDX-License-Identifier: Apache-2.0

// Command stylecheck measures the style figures that golangci-lint does not: names, packing, line width, blank lines,
// suppressed lint findings and documented fields. It prints one line per group of folders and fails when a figure is
// outside its limit.
//
//	go run ./hack/stylecheck            # figures; exit status 1 when one is outside its limit
//	go run ./hack/stylecheck -v         # also the places, per figure and file
//
// Only hand-written Go files are measured: no tests, no testdata, no generated files. The limits are in limits.go.
package main

import (
	"flag"
	"fmt"
	"io"
	"os"
	"text/tabwriter"
)

// groups are the parts of the tree that are measured separately. A folder that begins with "-" is left out.
func groups() []group {
	return []group{
		{name: "product", folders: []string{"api", "cmd", "hack", "internal", "-internal/region"}},
		{name: "region", folders: []string{"internal/region"}},
	}
}

//nolint:forbidigo // the only function that touches the process
func main() {
	verbose := flag.Bool("v", false, "print each place that counts against a limit")
	flag.Parse()

	os.Exit(runCheck(os.Stdout, os.Stderr, *verbose))
}

// runCheck measures all groups, prints the figures and returns the exit status.
func runCheck(stdout, stderr io.Writer, verbose bool) int {
	table := tabwriter.NewWriter(stdout, 0, 0, 2, ' ', tabwriter.AlignRight)
	printHeader(table)

	status := 0

	var details []string

	for _, g := range groups() {
		m, err := measureGroup(g)
		if err != nil {
			fmt.Fprintln(stderr, "stylecheck:", err)

			return 1
		}

		failures := printFigures(table, g.name, m)
		if len(failures) > 0 {
			status = 1
		}

		details = append(details, failures...)
		if verbose {
			details = append(details, m.places...)
		}
	}

	if err := table.Flush(); err != nil {
		fmt.Fprintln(stderr, "stylecheck: print the figures:", err)

		return 1
	}

	for _, line := range details {
		fmt.Fprintln(stdout, line)
	}

	return status
}
