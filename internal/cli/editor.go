// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"regexp"
	"slices"
	"strings"

	"github.com/slipway-k8s/slipway/internal/cluster/manifests"
	"github.com/slipway-k8s/slipway/internal/lib/diag"
	"github.com/slipway-k8s/slipway/internal/manifest"
)

// findingPrefix begins the lines that edit itself writes into the file and removes again.
const findingPrefix = "#! "

// How often the editor is opened for one document. Without a terminal the editor is a program, which would make the
// same change once more.
const (
	maxEditsByPerson  = 50
	maxEditsByProgram = 1
)

// The exit code of a shell that does not find a program.
const exitProgramNotFound = 127

// manifestEditor opens one document in an editor until it is valid, unchanged, or was opened too often.
type manifestEditor struct {
	app      *app
	command  string // of the editor
	change   manifests.Change
	file     string // that the editor opens
	original []byte
}

// editorCommand returns the editor of the user, with its arguments.
func (a *app) editorCommand() (string, error) {
	if command := cmp.Or(a.Getenv("VISUAL"), a.Getenv("EDITOR")); command != "" {
		return command, nil
	}

	if !isTerminal(a.Stdin) {
		return "", withHint(
			errors.New("edit needs a terminal, or EDITOR"),
			"change a file instead: slipway get clusters NAME -o yaml, then: slipway replace -f FILE",
		)
	}

	return "vi", nil
}

// createFile creates the file that the editor opens. Only its owner can read it.
func (e *manifestEditor) createFile(cluster, group string) error {
	name := "slipway-edit-" + cluster
	if group != "" {
		name += "-" + group
	}

	file, err := os.CreateTemp("", name+"-*.yaml")
	if err != nil {
		return withHint(fmt.Errorf("create a file to edit: %w", err), "set TMPDIR to a directory that can be written")
	}

	e.file = file.Name()
	if err := file.Close(); err != nil {
		return fmt.Errorf("create a file to edit: %w", err)
	}

	return nil
}

// hasWork reports whether the file contains something else than the document that was opened.
func (e *manifestEditor) hasWork() bool {
	text, err := os.ReadFile(e.file)

	return err == nil && len(text) > 0 && !bytes.Equal(stripFindings(text), e.original)
}

func (e *manifestEditor) editUntilValid(ctx context.Context) error {
	limit := maxEditsByPerson
	if !isTerminal(e.app.Stdin) {
		limit = maxEditsByProgram
	}

	shown := e.original
	var findings diag.Findings

	for range limit {
		text, err := e.openInEditor(ctx, shown)
		if err != nil {
			return err
		}

		if bytes.Equal(text, shown) {
			return e.giveUp(findings)
		}

		text = stripFindings(text)
		if bytes.Equal(text, e.original) {
			return e.giveUp(nil)
		}

		given, parsed := manifest.Parse(text)
		e.checkSameNames(given, &parsed)
		var after manifest.Set
		after, findings = e.change.Check(given, parsed)
		if findings.Err() == nil {
			findings = append(findings, e.change.CheckZones(ctx, e.app.newClusterEnv(), after)...)
		}

		if findings.Err() == nil {
			e.app.printFindings(findings)
			return e.app.confirmAndChange(ctx, e.change, "edit", after)
		}

		comment := commentFindings(manifest.Source{File: e.file, Text: text}.Locate(findings))
		shown = slices.Concat(comment, text)
		e.app.source = manifest.Source{File: e.file, Text: shown}
	}

	return e.refuse(findings, limit)
}

// refuse ends an edit whose document has findings. The file has the text without the findings as comments, so that
// their lines are those of the file.
func (e *manifestEditor) refuse(findings diag.Findings, edits int) error {
	text := stripFindings(e.app.source.Text)
	if err := os.WriteFile(e.file, text, 0o600); err != nil {
		return fmt.Errorf("write the file to edit: %w", err)
	}

	e.app.source = manifest.Source{File: e.file, Text: text}
	e.app.printFindings(findings)
	if edits == 1 {
		return fmt.Errorf(
			"nothing was changed: the manifest is not valid after the editor %q",
			e.command,
		)
	}

	return fmt.Errorf("nothing was changed: the manifest was not valid after %d edits", edits)
}

// giveUp ends an edit that left the file as it was shown, with these findings.
func (e *manifestEditor) giveUp(findings diag.Findings) error {
	if findings.Err() == nil {
		e.app.printMessage("nothing was changed")
		return nil
	}

	e.app.printFindings(findings)

	return errors.New("nothing was changed: the file was left as it is, with its errors")
}

// checkSameNames refuses a changed name, which would be another document.
func (e *manifestEditor) checkSameNames(given manifest.Set, findings *diag.Findings) {
	was, _ := manifest.Parse(e.original)
	if given.Cluster.Metadata.Name != was.Cluster.Metadata.Name {
		findings.Errorf(
			"metadata.name",
			given.Cluster.Metadata.Name,
			"keep the name; create another cluster with: slipway create cluster",
			"is not the name of the document being edited",
		)
	}

	for _, g := range was.Groups {
		if _, there := given.Group(g.Metadata.Name); !there {
			findings.Errorf(
				"metadata.name",
				"",
				"put back "+g.Metadata.Name,
				"is not the name of the document being edited",
			)
		}
	}
}

// openInEditor opens text in the editor and returns the edited text.
func (e *manifestEditor) openInEditor(ctx context.Context, text []byte) ([]byte, error) {
	if err := os.WriteFile(e.file, text, 0o600); err != nil {
		return nil, fmt.Errorf("write the file to edit: %w", err)
	}

	// Through a shell, since EDITOR may hold arguments, such as "code --wait".
	run := exec.CommandContext(ctx, "sh", "-c", e.command+` "$1"`, "sh", e.file)
	run.Env = withoutSecrets(e.app.environment())
	run.Stdin = e.app.Stdin
	run.Stdout = e.app.Stdout
	run.Stderr = baseStream(e.app.Stderr)
	err := run.Run()
	exit, exited := errors.AsType[*exec.ExitError](err)

	switch {
	case err == nil:
		return os.ReadFile(e.file)
	case ctx.Err() != nil:
		return nil, errors.New("nothing was changed: interrupted")
	case exited && exit.ExitCode() == exitProgramNotFound:
		return nil, withHint(
			fmt.Errorf("nothing was changed: editor %q was not found", e.command),
			"set EDITOR to a program that is installed, such as nano",
		)
	}

	return nil, withHint(
		fmt.Errorf("nothing was changed: editor %q failed: %w", e.command, err),
		"check EDITOR and VISUAL",
	)
}

// environment returns the environment variables, as NAME=VALUE.
func (a *app) environment() []string {
	if a.Environ == nil {
		return []string{} // with nil, a program would inherit that of this process
	}

	return a.Environ()
}

// withoutSecrets returns the environment variables without AWS's, Slipway's, those whose names are those of secrets, and those
// with the address of somebody who logs in with a password, such as that of a proxy: an editor with its plugins needs none of them.
func withoutSecrets(variables []string) []string {
	return slices.DeleteFunc(slices.Clone(variables), func(variable string) bool {
		name, value, _ := strings.Cut(variable, "=")

		return isSecretName(strings.ToUpper(name)) || hasPassword(value)
	})
}

// isSecretName reports whether the value of an environment variable is probably a secret. The name is in capital letters.
func isSecretName(name string) bool {
	if strings.HasPrefix(name, "AWS_") || strings.HasPrefix(name, "SLIPWAY_") {
		return true
	}

	isEnd := func(end string) bool { return strings.HasSuffix(name, end) }
	isPart := func(part string) bool { return strings.Contains(name, part) }

	return slices.ContainsFunc([]string{"_KEY", "_PASS", "_PAT"}, isEnd) ||
		slices.ContainsFunc(
			[]string{"SECRET", "TOKEN", "PASSWORD", "PASSWD", "PASSPHRASE", "CREDENTIAL", "PRIVATE_KEY", "API_KEY", "ACCESS_KEY"},
			isPart,
		)
}

// hasPassword reports whether text has a URL with a password.
func hasPassword(text string) bool {
	return regexp.MustCompile(`://[^/@\s]*:[^/\s]+@`).MatchString(text)
}

// commentFindings renders findings as comments for the top of the file, with the lines that they will have
// below these comments.
func commentFindings(findings diag.Findings) []byte {
	var b strings.Builder
	b.WriteString(findingPrefix + "Fix these errors and save, or leave the file unchanged to give up:\n")
	for _, f := range findings {
		place := ""
		if f.Line > 0 {
			place = fmt.Sprintf("line %d: ", f.Line+1+len(findings))
		}

		f.File = ""
		text := strings.ReplaceAll(f.String(), "\n", " ")
		b.WriteString(findingPrefix + string(f.Severity) + ": " + place + text + "\n")
	}

	return []byte(b.String())
}

// stripFindings removes those comments.
func stripFindings(text []byte) []byte {
	var out []byte
	for line := range bytes.Lines(text) {
		if !bytes.HasPrefix(line, []byte(findingPrefix)) {
			out = append(out, line...)
		}
	}

	return out
}
