// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"bufio"
	"errors"
	"fmt"
	"strings"
)

// confirm returns nil if the change is confirmed: by --yes, or by a person who typed yes at the terminal.
func (a *app) confirm(question string) error {
	if a.yes {
		return nil
	}

	if !isTerminal(a.Stdin) {
		return withHint(
			errors.New("nothing was changed: rerun with --yes to confirm"),
			"review the output above, then rerun the command with --yes",
		)
	}

	fmt.Fprintf(a.Stderr, "%s Type yes to continue: ", question)
	answer, err := bufio.NewReader(a.Stdin).ReadString('\n')
	if strings.TrimSpace(answer) == "yes" {
		return nil
	}

	if err != nil {
		return fmt.Errorf("nothing was changed: read the answer: %w", err)
	}

	return errors.New("nothing was changed: the answer was not yes")
}
