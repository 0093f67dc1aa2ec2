// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"compress/gzip"
	"context"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/cobra/doc"

	"github.com/slipway-k8s/slipway/internal/cli"
)

// The programs.
const (
	programCLI      = "slipway"
	programAgent    = "slipway-node"
	programFunction = "slipway-dns"
)

// buildPrograms compiles slipway for its platforms, and the agent and the function for those of machines.
func (r *release) buildPrograms(ctx context.Context, work string) error {
	for _, p := range r.targets {
		flags := []string{"-ldflags", "-s -w -X main.version=v" + r.version.number}
		if err := r.compile(ctx, work, programCLI, p, flags); err != nil {
			return err
		}
	}

	for _, p := range agentPlatforms() {
		// As in hack/build.sh: the agent has no version, so that an unchanged agent keeps its hash.
		flags := []string{"-tags", "grpcnotrace", "-ldflags", "-s -w"}
		if err := r.compile(ctx, work, programAgent, p, flags); err != nil {
			return err
		}

		flags = []string{"-tags", "lambda.norpc", "-ldflags", "-s -w"}
		if err := r.compile(ctx, work, programFunction, p, flags); err != nil {
			return err
		}
	}

	return nil
}

// compile builds one program for one platform.
func (r *release) compile(ctx context.Context, work, program string, p platform, flags []string) error {
	fmt.Fprintf(r.log, "packages: compile %s for %s\n", program, p)
	path := filepath.Join(work, p.String(), program)
	args := slices.Concat([]string{"build", "-trimpath", "-buildvcs=false", "-o", path}, flags, []string{"./cmd/" + program})
	cmd := exec.CommandContext(ctx, "go", args...)
	cmd.Dir = r.root
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0", "GOFLAGS=", "GOOS="+p.os, "GOARCH="+p.arch)
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("compile %s for %s: %w\n%s", program, p, err, out)
	}

	r.programs[programKey(program, p)] = path

	return nil
}

func programKey(program string, p platform) string { return program + "_" + p.String() }

// file is a file of an archive or of a package.
type file struct {
	path  string // without a leading slash; a directory ends with one
	mode  fs.FileMode
	owner int // user and group in an image
	// Exactly one of these is set, except for a directory.
	source string // a file of this machine
	body   []byte
	link   string // the target of a symbolic link
}

// programFiles returns slipway, and the agents and functions that it finds next to itself, below dir.
func (r *release) programFiles(p platform, dir string) []file {
	files := []file{{
		path:   dir + programCLI,
		mode:   0o755,
		source: r.programs[programKey(programCLI, p)],
	}}

	for _, program := range []string{programAgent, programFunction} {
		for _, machine := range agentPlatforms() {
			name := program
			if machine.arch != p.arch {
				name += "-" + machine.arch
			}

			files = append(files, file{
				path:   dir + name,
				mode:   0o755,
				source: r.programs[programKey(program, machine)],
			})
		}
	}

	return files
}

// kubectlCompletion lets kubectl complete 'kubectl slipway'.
const kubectlCompletion = "#!/bin/sh\nexec slipway __complete \"$@\"\n"

// sharedFiles returns the sources of the assets and the examples, below dir.
func (r *release) sharedFiles(dir string) ([]file, error) {
	var out []file
	for from, to := range map[string]string{"assets": dir + "assets/", "examples": dir + "examples/"} {
		root := filepath.Join(r.root, from)
		err := filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
			if err != nil || d.IsDir() || from == "examples" && filepath.Ext(path) == ".go" {
				return err
			}

			name, err := filepath.Rel(root, path)
			out = append(out, file{
				path:   to + filepath.ToSlash(name),
				mode:   0o644,
				source: path,
			})

			return err
		})
		if err != nil {
			return nil, fmt.Errorf("list %s: %w", root, err)
		}
	}

	return out, nil
}

// commandTree returns the commands of slipway, for its documentation.
func (r *release) commandTree() *cobra.Command {
	return cli.Root(cli.Env{Version: "v" + r.version.number})
}

// completionFiles returns the completion files of each shell, at the given paths.
func (r *release) completionFiles(bash, zsh, fish string) ([]file, error) {
	root := r.commandTree()
	var out []file
	for _, shell := range []struct {
		path  string
		write func(*bytes.Buffer) error
	}{
		{bash, func(b *bytes.Buffer) error { return root.GenBashCompletionV2(b, true) }},
		{zsh, func(b *bytes.Buffer) error { return root.GenZshCompletion(b) }},
		{fish, func(b *bytes.Buffer) error { return root.GenFishCompletion(b, true) }},
	} {
		var b bytes.Buffer
		if err := shell.write(&b); err != nil {
			return nil, fmt.Errorf("write the completion file %s: %w", shell.path, err)
		}

		out = append(out, file{path: shell.path, mode: 0o644, body: b.Bytes()})
	}

	return out, nil
}

// manualFiles returns the manual pages of all commands, compressed, below dir.
func (r *release) manualFiles(work, dir string) ([]file, error) {
	pages := filepath.Join(work, "man")
	if err := os.MkdirAll(pages, 0o755); err != nil {
		return nil, err
	}

	header := &doc.GenManHeader{
		Section: "1",
		Source:  "slipway v" + r.version.number,
		Manual:  "Slipway",
		Date:    &r.version.when,
	}
	if err := doc.GenManTree(cli.ManualRoot(cli.Env{Version: "v" + r.version.number}), header, pages); err != nil {
		return nil, fmt.Errorf("write the manual pages: %w", err)
	}

	names, err := filepath.Glob(filepath.Join(pages, "*.1"))
	if err != nil {
		return nil, err
	}

	var out []file
	for _, name := range names {
		text, err := os.ReadFile(name)
		if err != nil {
			return nil, err
		}

		body, err := compress(text)
		if err != nil {
			return nil, err
		}

		out = append(out, file{path: dir + filepath.Base(name) + ".gz", mode: 0o644, body: body})
	}

	return out, nil
}

// compress returns data in gzip's format, without a time or a name.
func compress(data []byte) ([]byte, error) {
	var b bytes.Buffer
	w, err := gzip.NewWriterLevel(&b, gzip.BestCompression)
	if err != nil {
		return nil, err
	}

	if _, err := w.Write(data); err != nil {
		return nil, err
	}

	if err := w.Close(); err != nil {
		return nil, err
	}

	return b.Bytes(), nil
}

// sortFiles sorts files by their paths.
func sortFiles(files []file) {
	slices.SortFunc(files, func(a, b file) int { return strings.Compare(a.path, b.path) })
}
