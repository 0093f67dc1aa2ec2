// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"github.com/spf13/cobra"
)

// addLockFlag adds --lock-timeout to a command that takes a cluster's lock.
func (a *app) addLockFlag(cmd *cobra.Command) {
	cmd.Flags().DurationVar(
		&a.lockTimeout,
		"lock-timeout",
		0,
		"how long to wait for the cluster's lock, such as 2m",
	)
}
