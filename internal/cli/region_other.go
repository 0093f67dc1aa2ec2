// SPDX-License-Identifier: Apache-2.0

//go:build !linux

package cli

import (
	"errors"
	"runtime"

	"github.com/spf13/cobra"
)

// newRegionCommand returns a command that explains why there is no local region.
func newRegionCommand(*app) *cobra.Command {
	return newLinuxCommand("region", "Run an AWS region on this machine (Linux only)")
}

// newDemoCommand returns a command that explains why there is no demo.
func newDemoCommand(*app) *cobra.Command {
	return newLinuxCommand("demo", "Create a highly available cluster in a local region (Linux only)")
}

// newLinuxCommand returns a command that needs Linux, whatever its arguments are.
func newLinuxCommand(use, short string) *cobra.Command {
	return &cobra.Command{
		Use:                use,
		Short:              short,
		Long:               short + ". The machines of the local region are Linux namespaces." + exitStatusHelp(),
		GroupID:            groupLocal,
		DisableFlagParsing: true,
		RunE: func(*cobra.Command, []string) error {
			return withHint(
				errors.New("the local region needs Linux; this is "+runtime.GOOS),
				"run it in a Debian 12 virtual machine; all other commands work here too",
			)
		},
	}
}
