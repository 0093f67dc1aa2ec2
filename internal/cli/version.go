// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"fmt"
	"runtime"
	"runtime/debug"
	"strings"

	"github.com/spf13/cobra"
)

// versionInfo describes the build of slipway.
type versionInfo struct {
	Version  string `json:"version"`
	Commit   string `json:"commit,omitempty"`
	Go       string `json:"go"`
	Platform string `json:"platform"`
}

func newVersionCommand(a *app) *cobra.Command {
	var format string
	var short bool
	cmd := &cobra.Command{
		Use:     "version",
		Short:   "Print the version of slipway",
		Long:    "Print the version of slipway and how it was built." + exitStatusHelp(),
		Example: "  slipway version\n  slipway version --short\n  slipway version -o json",
		GroupID: groupLocal,
		Args:    requireNoArguments,
		RunE: func(*cobra.Command, []string) error {
			v := buildVersion(a.Version)
			switch {
			case short:
				fmt.Fprintln(a.Stdout, v.Version)
				return nil
			case format == formatTable:
				fmt.Fprintln(a.Stdout, strings.Join(strings.Fields("slipway "+v.Version+" "+v.Commit+" "+v.Go+" "+v.Platform), " "))
				return nil
			}

			return a.printValue(format, v)
		},
	}

	addFormatFlag(cmd, &format)
	cmd.Flags().BoolVar(&short, "short", false, "print the version number only")

	return cmd
}

// buildVersion returns the version that the linker stamped, else what the Go toolchain stamped into the binary.
func buildVersion(stamped string) versionInfo {
	v := versionInfo{Version: "devel", Go: runtime.Version(), Platform: runtime.GOOS + "/" + runtime.GOARCH}
	info, ok := debug.ReadBuildInfo()
	if ok && info.Main.Version != "" && info.Main.Version != "(devel)" {
		v.Version = info.Main.Version
	}

	if stamped != "" {
		v.Version = stamped
	}

	if !ok {
		return v
	}

	for _, s := range info.Settings {
		if s.Key == "vcs.revision" {
			v.Commit = s.Value
		}
	}

	return v
}
