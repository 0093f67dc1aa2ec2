// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"github.com/slipway-k8s/slipway/api/v1alpha1"
	"github.com/slipway-k8s/slipway/internal/manifest/fielddocs"
)

// explainWidth is the length of the lines of descriptions.
const explainWidth = 100

func newExplainCommand(a *app) *cobra.Command {
	var format string
	var recursive bool
	cmd := &cobra.Command{
		Use:     "explain KIND[.FIELD...]",
		Short:   "Describe a field of the manifests",
		GroupID: groupCluster,
		Long: `Describe a kind of manifest, or one of its fields, with the fields below it: their types, meanings and defaults. KIND is
cluster or group. The part spec may be left out. The same descriptions are in docs/reference/manifest.md.` + exitStatusHelp(),
		Example: "  slipway explain group.spec.kubelet\n  slipway explain cluster.spec.etcd.backup.interval\n  slipway explain group --recursive",
		Args:    requireOneArgument("KIND"),
		RunE: func(_ *cobra.Command, args []string) error {
			field, err := fielddocs.Find(args[0])
			if err != nil {
				return err
			}

			if format != formatTable {
				return a.printValue(format, field)
			}

			fieldPrinter{a}.printField(field, recursive)

			return nil
		},
	}

	addFormatFlag(cmd, &format)
	cmd.Flags().BoolVar(
		&recursive, "recursive", false,
		"list all fields below it, without their descriptions",
	)
	cmd.ValidArgsFunction = completeFieldPath

	return cmd
}

// completeFieldPath completes the next part of a path such as group.spec.kubelet.
func completeFieldPath(_ *cobra.Command, args []string, prefix string) ([]string, cobra.ShellCompDirective) {
	if len(args) > 0 {
		return nil, cobra.ShellCompDirectiveNoFileComp
	}

	above := ""
	if at := strings.LastIndex(prefix, "."); at >= 0 {
		above = prefix[:at]
	}

	names := []string{"cluster", "group"}
	if above != "" {
		names = nil
		field, err := fielddocs.Find(above)
		for _, f := range field.Fields {
			if err == nil {
				names = append(names, above+"."+strings.TrimSuffix(f.Name(), "[]"))
			}
		}
	}

	var out []string
	for _, name := range names {
		if strings.HasPrefix(name, prefix) {
			out = append(out, name)
		}
	}

	return out, cobra.ShellCompDirectiveNoFileComp | cobra.ShellCompDirectiveNoSpace
}

// fieldPrinter prints descriptions of fields.
type fieldPrinter struct{ *app }

// printField prints a field and those below it.
func (p fieldPrinter) printField(f fielddocs.Field, recursive bool) {
	fmt.Fprintf(p.Stdout, "KIND:     %s\nVERSION:  %s\n", f.Kind, v1alpha1.APIVersion)
	if f.Path != "" {
		fmt.Fprintf(p.Stdout, "FIELD:    %s <%s>\n", f.Path, f.Type)
	}

	if f.Default != "" {
		fmt.Fprintf(p.Stdout, "DEFAULT:  %s\n", f.Default)
	}

	if f.Description != "" {
		fmt.Fprintf(p.Stdout, "\nDESCRIPTION:\n%s", wrapText(f.Description, "    "))
	}

	if len(f.Fields) == 0 {
		return
	}

	fmt.Fprint(p.Stdout, "\nFIELDS:\n")
	if recursive {
		p.printNames(f, "  ")
		return
	}

	for i, c := range f.Fields {
		if i > 0 {
			fmt.Fprintln(p.Stdout)
		}

		fmt.Fprintf(p.Stdout, "  %s <%s>\n", c.Name(), c.Type)
		fmt.Fprint(p.Stdout, wrapText(describeField(c), "    "))
	}
}

// printNames prints the names and types of the fields below f.
func (p fieldPrinter) printNames(f fielddocs.Field, indent string) {
	for _, c := range f.Fields {
		fmt.Fprintf(p.Stdout, "%s%s <%s>\n", indent, c.Name(), c.Type)
		p.printNames(c, indent+"  ")
	}
}

// describeField returns the description of a field with its default.
func describeField(f fielddocs.Field) string {
	text := f.Description
	if f.Default != "" {
		text = strings.TrimSpace(text + " Default: " + f.Default + ".")
	}

	return text
}

// wrapText breaks a text into lines that begin with an indent.
func wrapText(text, indent string) string {
	var out strings.Builder
	line := ""
	for word := range strings.FieldsSeq(text) {
		if line != "" && len(indent)+len(line)+1+len(word) > explainWidth {
			out.WriteString(indent + line + "\n")
			line = ""
		}

		line = strings.TrimSpace(line + " " + word)
	}

	if line != "" {
		out.WriteString(indent + line + "\n")
	}

	return out.String()
}
