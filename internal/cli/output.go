// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"fmt"
	"io"
	"strings"
	"unicode/utf8"

	"github.com/spf13/cobra"

	"github.com/slipway-k8s/slipway/internal/lib/plainerror"
)

// The formats of -o.
const (
	formatTable = "table"
	formatJSON  = "json"
	formatYAML  = "yaml"
)

// addFormatFlag adds -o to a command that prints data.
func addFormatFlag(cmd *cobra.Command, into *string, formats ...string) {
	if len(formats) == 0 {
		formats = []string{formatTable, formatJSON, formatYAML}
	}

	cmd.Flags().StringVarP(into, "output", "o", formats[0], "format: "+strings.Join(formats, "|"))
	_ = cmd.Flags().SetAnnotation("output", formatsAnnotation, formats) // fails only for an unknown flag
	_ = cmd.RegisterFlagCompletionFunc(
		"output",
		cobra.FixedCompletions(formats, cobra.ShellCompDirectiveNoFileComp),
	) // fails only for an unknown flag
}

// printValue prints v as JSON or YAML. Characters that a terminal may obey are escaped.
func (a *app) printValue(format string, v any) error {
	var out []byte
	var err error
	switch format {
	case formatJSON:
		out, err = encodeJSON(v, "  ")
	case formatYAML:
		out, err = encodeYAML(v)
	default:
		return withHint(fmt.Errorf("output format %q is not known", format), "use -o table, json or yaml")
	}

	if err != nil {
		return err
	}

	_, err = a.Stdout.Write(out)

	return err
}

// printTable prints rows under a header, in aligned columns. Control characters are left out: others than the operator have written
// some of the cells, such as the journal of a cluster. So cells have no colour, which would also change their width.
func (a *app) printTable(header []string, rows [][]string) {
	all := [][]string{header}
	for _, row := range rows {
		var cells []string
		for _, cell := range row {
			cells = append(cells, plainerror.Printable(cell))
		}

		all = append(all, cells)
	}

	a.printRows(all, columnWidths(all))
}

// columnWidths returns the width of each column in characters. The first row may have fewer columns than others.
func columnWidths(rows [][]string) []int {
	var widths []int
	for _, row := range rows {
		for i, cell := range row {
			if i == len(widths) {
				widths = append(widths, 0)
			}

			widths[i] = max(widths[i], utf8.RuneCountInString(cell))
		}
	}

	return widths
}

// printRows prints rows in columns of these widths.
func (a *app) printRows(rows [][]string, widths []int) {
	for _, line := range alignRows(rows, widths) {
		fmt.Fprintln(a.Stdout, line)
	}
}

// alignRows returns rows as lines with columns of these widths.
func alignRows(rows [][]string, widths []int) []string {
	var lines []string
	for _, row := range rows {
		var line strings.Builder
		for i, cell := range row {
			line.WriteString(cell + strings.Repeat(" ", widths[i]-utf8.RuneCountInString(cell)+3))
		}

		lines = append(lines, strings.TrimRight(line.String(), " "))
	}

	return lines
}

// The colours, as ANSI codes.
const (
	red    = "31"
	green  = "32"
	yellow = "33"
	cyan   = "36"
)

// usesColor reports whether output to w is coloured: only on a terminal, and not if NO_COLOR or --no-color
// is set.
func (a *app) usesColor(w io.Writer) bool {
	return !a.noColor && a.Getenv("NO_COLOR") == "" && a.Getenv("TERM") != "dumb" && isTerminal(w)
}

// colorText colours text for w.
func (a *app) colorText(w io.Writer, color, text string) string {
	if !a.usesColor(w) {
		return text
	}

	return "\x1b[" + color + "m" + text + "\x1b[0m"
}
