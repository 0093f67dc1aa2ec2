// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"bufio"
	"errors"
	"fmt"
	"strings"

	"github.com/spf13/cobra"
)

// clusterName is the argument, else --name, else SLIPWAY_CLUSTER.
func (a *app) clusterName(args []string, flag string) (string, error) {
	if len(args) > 0 {
		return args[0], nil
	}

	if name := a.flagOrEnv(flag, "SLIPWAY_CLUSTER"); name != "" {
		return name, nil
	}

	return "", withHint(errors.New("no cluster is named"), "give its NAME, --name or SLIPWAY_CLUSTER")
}

// addNameFlag adds --name to a command about one cluster and limits its arguments to NAME.
func addNameFlag(cmd *cobra.Command, into *string) {
	cmd.Flags().StringVar(into, "name", "", "the cluster (SLIPWAY_CLUSTER)")
	cmd.Args = cobra.MaximumNArgs(1)
}

// confirm returns nil if the change may go ahead: --yes was given, or a person at the terminal typed yes.
func (a *app) confirm(question string) error {
	if a.yes {
		return nil
	}

	if !isTerminal(a.Stdin) {
		return withHint(
			errors.New("nothing was changed: it takes --yes"),
			"look at what is printed above, then run it again with --yes",
		)
	}

	fmt.Fprintf(a.Stderr, "%s Type yes to go ahead: ", question)
	answer, err := bufio.NewReader(a.Stdin).ReadString('\n')
	if strings.TrimSpace(answer) == "yes" {
		return nil
	}

	if err != nil {
		return fmt.Errorf("nothing was changed: read the answer: %w", err)
	}

	return errors.New("nothing was changed: the answer was not yes")
}
