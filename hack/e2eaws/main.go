// SPDX-License-Identifier: Apache-2.0

// Command e2eaws runs Slipway's steps from 'state init' to 'delete cluster' against an AWS account and proves that
// nothing is left: make e2e-aws.
//
// A run has an id, such as e2e-1126-0704-3fa9. The cluster, the bucket of the state store, its key and its policy have
// the id in their names, and what has tags has it in the tag slipway-e2e-run. The id is written to the run's directory
// before anything is created, so that a run that was killed can be swept: the next run does that first.
//
// The steps run the real program, bin/slipway, and see nothing of it but its output. The sweep asks AWS itself, without
// Slipway's code, what still has the id.
//
// With AWS_ENDPOINT_URL the same program runs against a local region. Its tests do that.
package main

import (
	"context"
	"fmt"
	"io"
	"os"
	"os/signal"
	"syscall"
	"time"

	"github.com/slipway-k8s/slipway/internal/lib/diag"
)

// Exit codes.
const (
	exitPassed  = 0
	exitFailed  = 1 // a step failed, or something is left
	exitRefused = 2 // the settings are not valid: nothing was created
)

// process is what the command uses of its process.
type process struct {
	args    []string
	environ []string
	getenv  func(string) string
	stdout  io.Writer
	stderr  io.Writer
	now     func() time.Time
}

//nolint:forbidigo // the only function that uses the process, as in cmd/
func main() {
	// Signals stay caught until the end: one that arrives during the deletion does not stop it.
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM, syscall.SIGHUP)
	code := runCommand(ctx, process{
		args:    os.Args[1:],
		environ: os.Environ(),
		getenv:  os.Getenv,
		stdout:  os.Stdout,
		stderr:  os.Stderr,
		now:     time.Now,
	})
	stop()
	os.Exit(code)
}

// runCommand sweeps the run that the arguments name, or earlier runs that were killed, and then runs all steps. It
// returns the exit code.
func runCommand(ctx context.Context, p process) int {
	s, err := readSettings(p)
	if err != nil {
		p.printError(err)
		return exitRefused
	}

	a, err := openAccount(ctx, s)
	if err != nil {
		p.printError(err)
		return exitRefused
	}

	h := harness{process: p, settings: s, account: a}
	if err := h.runOrSweep(ctx); err != nil {
		p.printError(err)
		return exitFailed
	}

	return exitPassed
}

// runOrSweep sweeps the run that the settings name. Without one it sweeps the runs that were killed, and makes a new one.
func (h harness) runOrSweep(ctx context.Context) error {
	if h.settings.sweep != "" {
		return h.sweepNamedRun(ctx, runID(h.settings.sweep))
	}

	if err := h.sweepKilledRuns(ctx); err != nil {
		return err
	}

	return h.runNew(ctx)
}

// harness has what all parts of a run use.
type harness struct {
	process

	settings settings
	account  account
}

func (p process) printError(err error) {
	fmt.Fprintf(p.stderr, "error: %v\n", err)
	for _, hint := range diag.Hints(err) {
		fmt.Fprintf(p.stderr, "hint: %s\n", hint)
	}
}

// printLine prints a line of progress.
func (p process) printLine(format string, args ...any) { fmt.Fprintf(p.stdout, format+"\n", args...) }
