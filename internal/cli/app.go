// SPDX-License-Identifier: Apache-2.0

// Package cli is slipway's command line: one file a command, each of which turns flags into a call and
// prints what comes back. It decides nothing about clusters; the packages it calls do.
package cli

import (
	"bufio"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/config"
	"github.com/aws/smithy-go/logging"
	"golang.org/x/term"

	"github.com/slipway-k8s/slipway/internal/cli/userconfig"
	"github.com/slipway-k8s/slipway/internal/infra/aws/transport"
	"github.com/slipway-k8s/slipway/internal/lib/diag"
	"github.com/slipway-k8s/slipway/internal/lib/plainerror"
	"github.com/slipway-k8s/slipway/internal/manifest"
)

// The exit codes of every command. Commands with further codes list them in their help.
const (
	exitOK    = 0
	exitError = 1
)

// Env is the process that a command runs in. Tests replace it.
type Env struct {
	// Args are the arguments without the program's name.
	Args []string
	// Stdin is read for confirmations and for the file name "-".
	Stdin io.Reader
	// Stdout gets data; Stderr gets messages, errors and hints.
	Stdout, Stderr io.Writer
	// Getenv returns the value of an environment variable, empty if it is not set.
	Getenv func(string) string
	// Environ returns all environment variables as NAME=VALUE, for programs that a command starts. Nil: none.
	Environ func() []string
	// Now is the clock.
	Now func() time.Time
	// Hostname returns the name of this machine, for locks and the journal.
	Hostname func() (string, error)
	// Version of this program, such as v1.2.3. Empty: what the Go toolchain stamped into it.
	Version string
	// Resolver queries the DNS. Nil: the resolver of this machine.
	Resolver Resolver
	// Registries answers requests to the registries of images that a catalogue has no digests for. Nil: http.DefaultTransport.
	Registries http.RoundTripper
}

// ExitError is an error that only sets the exit code: the command has printed everything else.
type ExitError struct {
	// Code is the exit code of the process.
	Code int
}

// Error returns the exit code as text; it is never printed.
func (e ExitError) Error() string { return fmt.Sprintf("exit status %d", e.Code) }

// app is what the commands of a process share: its environment and the global flags.
type app struct {
	Env
	stateFlag, stateKeyFlag string
	stateOwnerFlag          string
	region, profile         string
	assets                  string
	yes, quiet              bool
	lockTimeout             time.Duration
	noColor                 bool
	costDetails             bool                  // --cost
	takeOver                string                // --take-over
	userConfig              userconfig.File       // the defaults of the user
	configs                 map[string]aws.Config // by region; the default's is also at ""
	storeCache              *storeCache
	calls                   transport.CallLimiter // counts all calls to AWS, also those for stores
	source                  manifest.Source       // the manifest file that was read, for findings
	interrupted             <-chan struct{}       // closed when the command is interrupted
	answers                 *bufio.Reader         // the lines of Stdin that were not read yet
}

// Main runs one command and returns the process's exit code.
func Main(ctx context.Context, env Env) int {
	env.Stderr = newScreen(env.Stderr)
	a := &app{Env: env}
	root := newRoot(a) //nolint:contextcheck // commands get their context when they are executed
	root.SetArgs(env.Args)
	err := root.ExecuteContext(ctx)
	var exit ExitError

	switch {
	case err == nil:
		return exitOK
	case errors.As(err, &exit):
		return exit.Code
	case isPreview(err):
		a.printPreviewEnd(err)
		return exitOK
	}

	a.printError(err)

	return exitError
}

// printError prints an error with its findings and hints to stderr.
func (a *app) printError(err error) {
	var findings diag.Findings
	if errors.As(err, &findings) {
		a.printFindings(findings)
	}

	a.printLabelled(red, "error:", summarizeError(err, findings))
	a.printHints(errorHints(err))
}

// printPreviewEnd says how to carry out what a command has shown.
func (a *app) printPreviewEnd(err error) {
	fmt.Fprintln(a.Stderr, errNotConfirmed)
	a.printHints(diag.Hints(err))
}

// printHints prints next steps to stderr.
func (a *app) printHints(hints []string) {
	for _, hint := range hints {
		a.printLabelled(cyan, "hint:", hint)
	}
}

// summarizeError returns the text of err, or the number of its findings, which are printed one per line.
func summarizeError(err error, findings diag.Findings) string {
	if len(findings) == 0 {
		return plainerror.Text(err.Error())
	}

	n := 0
	for _, f := range findings {
		if f.Severity == diag.Error {
			n++
		}
	}

	if n == 1 {
		return "1 error; nothing was written"
	}

	return fmt.Sprintf("%d errors; nothing was written", n)
}

// printFindings prints findings to stderr, each with its path, value and hint.
func (a *app) printFindings(findings diag.Findings) {
	for _, f := range a.source.Locate(findings) {
		color := red
		if f.Severity == diag.Warning {
			color = yellow
		}

		a.printLabelled(color, string(f.Severity)+":", fmt.Sprint(f))
	}
}

// printLabelled prints a coloured label and a text to stderr. The text may quote what others have written.
func (a *app) printLabelled(color, label, text string) {
	fmt.Fprintf(a.Stderr, "%s %s\n", a.colorText(a.Stderr, color, label), plainerror.Printable(text))
}

// printMessage prints a message for people, unless --quiet, without colours and other control characters: it may quote what others have
// written, such as the lock of a cluster.
func (a *app) printMessage(format string, args ...any) {
	if !a.quiet {
		fmt.Fprintln(a.Stderr, plainerror.Printable(fmt.Sprintf(format, args...)))
	}
}

// printLabelledMessage is printMessage with a coloured label.
func printLabelledMessage(a *app, color, label, text string) {
	if !a.quiet {
		a.printLabelled(color, label, text)
	}
}

// flagOrEnv returns the value of a flag, else of an environment variable, else of the setting with that variable
// in the configuration file.
func (a *app) flagOrEnv(flag, variable string) string {
	if flag != "" {
		return flag
	}

	if value := a.Getenv(variable); value != "" {
		return value
	}

	return configViewer{a}.setting(variable)
}

// awsConfig returns the configuration that the AWS SDK finds, for a region; empty: --region, else the SDK's
// default.
func (a *app) awsConfig(ctx context.Context, region string) (aws.Config, error) {
	region = cmp.Or(region, a.region, configViewer{a}.setting("AWS_REGION"))
	if cfg, ok := a.configs[region]; ok {
		return cfg, nil
	}

	// The SDK's logger prints retries and closed connections to stderr; errors are returned anyway.
	opts := []func(*config.LoadOptions) error{config.WithLogger(logging.Nop{})}
	if region != "" {
		opts = append(opts, config.WithRegion(region))
	}

	profile := a.profile
	if profile == "" && a.Getenv("AWS_PROFILE") == "" { // the SDK reads the variable, and prefers keys to it
		profile = configViewer{a}.setting("AWS_PROFILE")
	}

	if profile != "" {
		opts = append(opts, config.WithSharedConfigProfile(profile))
	}

	cfg, err := config.LoadDefaultConfig(ctx, opts...)
	if err != nil {
		return aws.Config{}, diag.WithHint(
			fmt.Errorf("read the settings of AWS: %w", plainerror.Wrap(err)),
			"check AWS_PROFILE and ~/.aws/config; for the local region: eval \"$(slipway region env)\"",
		)
	}

	if cfg.Region == "" {
		return aws.Config{}, diag.WithHint(
			errors.New("no AWS region is set"),
			"give --region or AWS_REGION, or set region in the configuration file; for the local region: eval \"$(slipway region env)\"",
		)
	}

	cfg = a.calls.CountCalls(cfg)
	if a.configs == nil {
		a.configs = map[string]aws.Config{}
	}

	a.configs[region] = cfg
	a.configs[cfg.Region] = cfg

	return cfg, nil
}

// isTerminal reports whether a stream is a terminal.
func isTerminal(stream any) bool {
	if s, ok := stream.(*screen); ok {
		stream = s.out
	}

	f, ok := stream.(*os.File)

	return ok && term.IsTerminal(int(f.Fd()))
}
