// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/slipway-k8s/slipway/internal/cli/userconfig"
	"github.com/slipway-k8s/slipway/internal/lib/diag"
)

const configLong = `The settings state, stateKey, cluster, region, profile, output and assets have the value of their flag, else of their
environment variable, else of the configuration file, else a default. The file is $SLIPWAY_CONFIG, else
$XDG_CONFIG_HOME/slipway/config.yaml, else ~/.config/slipway/config.yaml:

  state: s3://example-state
  region: eu-central-1
  output: json

The settings of the AWS SDK (AWS_*, ~/.aws/config) hold where neither a flag, a variable nor the file sets a value. The
file contains no secrets.`

func newConfigCommand(a *app) *cobra.Command {
	cmd := newGroupCommand(
		"config",
		"Show your default settings and where they come from",
		groupLocal,
		newConfigViewCommand(a),
	)

	cmd.Long = configLong + exitStatusHelp()
	cmd.Example = "  slipway config view"

	return cmd
}

func newConfigViewCommand(a *app) *cobra.Command {
	var format string
	cmd := &cobra.Command{
		Use:     "view",
		Short:   "Print each setting with its value and its origin",
		Long:    "Print each setting with its value and its origin: a flag, a variable, a line of the file, or the default.\n\n" + configLong + exitStatusHelp(),
		Example: "  slipway config view\n  slipway config view --state s3://other -o json",
		Args:    requireNoArguments,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return configViewer{a}.viewConfig(cmd, format)
		},
	}

	addFormatFlag(cmd, &format)

	return cmd
}

// configView is what 'config view' prints as a document.
type configView struct {
	// File is the path of the configuration file, whether or not it exists.
	File string `json:"file"`
	// Exists reports whether the file exists.
	Exists bool `json:"exists"`
	// Settings are all settings.
	Settings []userconfig.Resolved `json:"settings"`
}

// configViewer reads and shows the default settings.
type configViewer struct{ *app }

func (a configViewer) viewConfig(cmd *cobra.Command, format string) error {
	path, _ := userconfig.Path(a.Getenv)
	view := configView{
		File:   path,
		Exists: a.userConfig.Path != "",
		Settings: userconfig.Resolve(a.userConfig, userconfig.Inputs{
			Flag: func(name string) (string, bool) {
				f := cmd.Flags().Lookup(name)
				if f == nil || !f.Changed {
					return "", false
				}

				return f.Value.String(), true
			},
			Getenv: a.Getenv,
		}),
	}
	if format != formatTable {
		return a.printValue(format, view)
	}

	var rows [][]string
	for _, s := range view.Settings {
		rows = append(rows, []string{s.Name, orDash(s.Value), s.Origin, s.Flag, s.Variable})
	}

	a.printTable([]string{"SETTING", "VALUE", "ORIGIN", "FLAG", "VARIABLE"}, rows)
	if !view.Exists {
		a.printMessage("there is no configuration file %s", orDash(path))
	}

	return nil
}

// loadUserConfig reads the configuration file. A file that does not exist sets nothing, unless
// SLIPWAY_CONFIG names it.
func (a configViewer) loadUserConfig() error {
	path, named := userconfig.Path(a.Getenv)
	if path == "" {
		return nil
	}

	text, err := os.ReadFile(path)
	if errors.Is(err, os.ErrNotExist) && !named {
		return nil
	}

	if err != nil {
		hint := "make the file readable"
		if named {
			hint = "check SLIPWAY_CONFIG, or unset it"
		}

		return withHint(fmt.Errorf("read the configuration: %w", err), hint)
	}

	file, findings := userconfig.Parse(path, text, a.Getenv("HOME"))
	a.userConfig = file

	if err := findings.Err(); err != nil {
		a.printFindings(findings)
		return fmt.Errorf("%s in the configuration file", countErrors(len(findings)))
	}

	return nil
}

// countErrors returns a number of errors in words.
func countErrors(n int) string {
	if n == 1 {
		return "1 error"
	}

	return fmt.Sprintf("%d errors", n)
}

// formatsAnnotation is the annotation of the flag -o that lists its values.
const formatsAnnotation = "slipway/formats"

// prepare runs before every command: it reads the configuration file and checks -o.
func (a configViewer) prepare(cmd *cobra.Command, _ []string) error {
	a.interrupted = cmd.Context().Done()
	if !worksWithoutConfig(cmd) {
		if err := a.loadUserConfig(); err != nil {
			return err
		}
	}

	f := cmd.Flags().Lookup("output")
	if f == nil || len(f.Annotations[formatsAnnotation]) == 0 {
		return nil
	}

	formats := f.Annotations[formatsAnnotation]
	if f.Changed {
		return checkFormat(cmd, f.Value.String(), formats)
	}

	wanted := a.setting("SLIPWAY_OUTPUT")
	if wanted == "" || !slices.Contains(formats, formatTable) { // a command that prints manifests, or no table
		return nil
	}

	if !slices.Contains(formats, wanted) {
		return withHint(
			fmt.Errorf("SLIPWAY_OUTPUT=%s is not an output format", wanted),
			"use "+strings.Join(formats, ", "),
		)
	}

	return f.Value.Set(wanted)
}

// checkFormat returns an error for a value that -o does not have.
func checkFormat(cmd *cobra.Command, given string, formats []string) error {
	if slices.Contains(formats, given) {
		return nil
	}

	hint := "use -o " + strings.Join(formats, ", ")
	if near := diag.Nearest(given, formats); near != "" {
		hint = "did you mean -o " + near + "?"
	}

	return withHint(fmt.Errorf("%s: output format %q is not known", cmd.CommandPath(), given), hint)
}

// worksWithoutConfig reports whether a command is of use while the configuration file is not valid.
func worksWithoutConfig(cmd *cobra.Command) bool {
	switch cmd.Name() {
	case "help", "version", "completion", cobra.ShellCompRequestCmd, cobra.ShellCompNoDescRequestCmd:
		return true
	}

	return !cmd.HasParent() // slipway alone prints the help
}

// setting returns the value of the setting with a variable: of the variable, else of the configuration file.
func (a configViewer) setting(variable string) string {
	return userconfig.Lookup(a.userConfig, variable, a.Getenv)
}
