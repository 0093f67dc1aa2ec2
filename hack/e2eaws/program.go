// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/slipway-k8s/slipway/internal/lib/privatefile"
)

// interruptWait is how long a command may take to stop after an interrupt before it is killed. Slipway finishes the
// calls that it has begun and releases its lock.
const interruptWait = 2 * time.Minute

// program runs slipway for one run.
type program struct {
	process

	path      string
	directory string // of the run
	env       []string
	lock      *os.File
	mask      masker
	commands  *int // the number of commands so far
}

// newProgram returns the program with the environment of a run. Settings of the user that would lead it to another
// cluster, store or account are left out.
func (h harness) newProgram(d runDirectory) (program, error) {
	x := program{
		process:   h.process,
		path:      h.settings.program,
		directory: d.path,
		lock:      d.lock,
		mask:      newMasker(h.account.id, h.getenv),
		commands:  new(int),
	}

	for _, variable := range h.environ {
		name, _, _ := strings.Cut(variable, "=")
		if !strings.HasPrefix(name, "SLIPWAY_") || name == "SLIPWAY_ASSETS" || name == "SLIPWAY_NODE_BINARY" {
			x.env = append(x.env, variable)
		}
	}

	config := filepath.Join(d.path, "config.yaml")
	x.env = append(x.env,
		"SLIPWAY_STATE=s3://"+d.record.ID.bucketName(),
		"SLIPWAY_STATE_OWNER="+h.account.id,
		"SLIPWAY_CONFIG="+config,
		"AWS_REGION="+h.settings.region,
		"KUBECONFIG="+filepath.Join(d.path, "kubeconfig"),
		"NO_COLOR=1",
	)

	return x, privatefile.Write(config, nil)
}

// commandResult is the result of a command. Its texts are masked, except for stdout, which is only parsed.
type commandResult struct {
	stdout   string
	stderr   string
	exitCode int
}

// runCommand runs slipway with arguments, and stores its output in the directory of the run. When ctx ends, the command
// is interrupted, as by Ctrl-C. The error is for a command that could not be run or was interrupted, not for its exit
// code.
func (x program) runCommand(ctx context.Context, args ...string) (commandResult, error) {
	cmd := exec.CommandContext(ctx, x.path, args...)
	cmd.Env = x.env
	cmd.Dir = x.directory
	cmd.ExtraFiles = []*os.File{x.lock}                   // the run is alive while its command is
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true} // Ctrl-C reaches only this program, which decides
	cmd.Cancel = func() error { return cmd.Process.Signal(os.Interrupt) }
	cmd.WaitDelay = interruptWait

	var out, errs bytes.Buffer
	cmd.Stdout = &out
	cmd.Stderr = &errs
	err := cmd.Run()
	r := commandResult{stdout: out.String(), stderr: x.mask.hideSecrets(errs.String()), exitCode: -1}
	if cmd.ProcessState != nil {
		r.exitCode = cmd.ProcessState.ExitCode()
	}

	if logErr := x.storeOutput(r, args); logErr != nil {
		return r, logErr
	}

	if ctx.Err() != nil {
		return r, fmt.Errorf("slipway %s was interrupted: %w", strings.Join(args, " "), context.Cause(ctx))
	}

	if _, exited := errors.AsType[*exec.ExitError](err); err != nil && !exited {
		return r, fmt.Errorf("run slipway %s: %w", strings.Join(args, " "), err)
	}

	return r, nil
}

// storeOutput writes the output of a command to a file, such as 03-plan.log.
func (x program) storeOutput(r commandResult, args []string) error {
	*x.commands++
	name := fmt.Sprintf("%02d-%s.log", *x.commands, args[0])
	text := fmt.Sprintf("$ slipway %s\n%s%sexit status %d\n",
		strings.Join(args, " "), x.mask.hideSecrets(r.stdout), r.stderr, r.exitCode)

	return privatefile.Write(filepath.Join(x.directory, name), []byte(text))
}

// callCount is the calls to AWS that a command has made, as its flag --verbose prints them.
type callCount struct {
	// ByOperation is the number of calls by service and operation, such as EC2:DescribeVpcs.
	ByOperation map[string]int `json:"byOperation,omitempty"`
	// All is the number of all calls, and Changing that of the calls that may change a resource.
	All      int `json:"all"`
	Changing int `json:"changing"`
	// Retries says how many calls were sent again, and why.
	Retries string `json:"retries,omitempty"`
}

// parseCalls returns the calls that a command with --verbose has printed, and whether it has printed any.
func parseCalls(stderr string) (callCount, bool) {
	operation := regexp.MustCompile(`^ *(\d+) ([A-Za-z0-9 ]+:[A-Za-z0-9]+)$`)
	total := regexp.MustCompile(`^(\d+) calls to AWS, (\d+) of which may change something; (.*)$`)
	calls := callCount{ByOperation: map[string]int{}}
	found := false
	for line := range strings.Lines(stderr) {
		line = strings.TrimRight(line, "\r\n")
		if m := operation.FindStringSubmatch(line); m != nil {
			calls.ByOperation[m[2]] = parseNumber(m[1])
		}

		if m := total.FindStringSubmatch(line); m != nil {
			calls.All = parseNumber(m[1])
			calls.Changing = parseNumber(m[2])
			calls.Retries = m[3]
			found = true
		}
	}

	return calls, found
}

// parseNumber returns the number that a text of digits has.
func parseNumber(digits string) int {
	n, _ := strconv.Atoi(digits) // the pattern matched digits only
	return n
}

// parseWarnings returns the warnings that a command has printed.
func parseWarnings(stderr string) []string {
	var warnings []string
	for line := range strings.Lines(stderr) {
		if text, ok := strings.CutPrefix(strings.TrimSpace(line), "warning: "); ok {
			warnings = append(warnings, text)
		}
	}

	return warnings
}

// masker hides what does not belong in a report.
type masker struct{ replacer *strings.Replacer }

// maskedAccount takes the place of the account's id.
const maskedAccount = "<account>"

// newMasker returns a masker of the account's id and of the credentials in the environment.
func newMasker(account string, getenv func(string) string) masker {
	pairs := []string{account, maskedAccount}
	for _, name := range []string{"AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_SESSION_TOKEN"} {
		if secret := getenv(name); len(secret) >= 16 {
			pairs = append(pairs, secret, "<"+strings.ToLower(name)+">")
		}
	}

	return masker{strings.NewReplacer(pairs...)}
}

// hideSecrets returns the text without the account's id, credentials and keys of access.
func (m masker) hideSecrets(text string) string {
	key := regexp.MustCompile(`\b(AKIA|ASIA)[A-Z0-9]{16}\b`)
	return key.ReplaceAllString(m.replacer.Replace(text), "<aws_access_key_id>")
}
