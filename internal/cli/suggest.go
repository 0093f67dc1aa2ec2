// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"fmt"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/slipway-k8s/slipway/internal/lib/diag"
)

// withHint returns err with a hint.
func withHint(err error, hint string) error { return diag.WithHint(err, hint) }

// suggestFlag adds the most similar flag to the error of an unknown one.
func suggestFlag(cmd *cobra.Command, err error) error {
	hint := "see: " + cmd.CommandPath() + " --help"
	if _, given, ok := strings.Cut(err.Error(), "unknown flag: --"); ok {
		var names []string
		cmd.Flags().VisitAll(func(f *pflag.Flag) { names = append(names, f.Name) })
		if near := diag.Nearest(given, names); near != "" {
			hint = "did you mean --" + near + "?"
		}
	}

	return diag.WithHint(fmt.Errorf("%s: %w", cmd.CommandPath(), err), hint)
}
