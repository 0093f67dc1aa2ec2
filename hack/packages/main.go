// SPDX-License-Identifier: Apache-2.0

// Command packages builds what a release consists of: archives, deb and rpm packages, a container image with
// both programs, a Homebrew formula, a manifest for kubectl's plugin manager, a bill of materials and
// checksums. The same commit gives the same bytes on every machine with the same Go toolchain: all times are
// that of the commit, and no file has a path of the machine.
//
// hack/packages.sh calls it. nfpm builds the deb and rpm packages; everything else is done here.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"path/filepath"
	"slices"
	"strings"
)

//nolint:forbidigo // the only function that uses the process, as in cmd/
func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	err := run(ctx, os.Args[1:], os.Stderr)
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "packages:", err)
		os.Exit(1)
	}
}

// options are the flags of the command.
type options struct {
	root, out string
	nfpm      string // path of the program
	platforms string // of slipway
	formats   string // what to build; see allFormats
	baseURL   string // of the released files
}

// The formats that can be built.
const (
	formatArchive  = "archive"
	formatDeb      = "deb"
	formatRPM      = "rpm"
	formatImage    = "image"
	formatHomebrew = "homebrew"
	formatKrew     = "krew"
	formatSBOM     = "sbom"
)

func run(ctx context.Context, args []string, log io.Writer) error {
	var o options
	flags := flag.NewFlagSet("packages", flag.ContinueOnError)
	flags.StringVar(&o.root, "root", ".", "directory of the checkout")
	flags.StringVar(&o.out, "out", "dist", "output directory; its content is replaced")
	flags.StringVar(&o.nfpm, "nfpm", "nfpm", "the program nfpm")
	flags.StringVar(
		&o.platforms,
		"platforms",
		"linux/amd64,linux/arm64,darwin/amd64,darwin/arm64",
		"platforms of slipway",
	)

	flags.StringVar(
		&o.formats,
		"formats",
		strings.Join(
			[]string{formatArchive, formatDeb, formatRPM, formatImage, formatHomebrew, formatKrew, formatSBOM},
			",",
		),
		"what to build",
	)

	flags.StringVar(
		&o.baseURL,
		"url",
		"https://github.com/slipway-k8s/slipway/releases/download",
		"address below which each version is released",
	)

	if err := flags.Parse(args); err != nil {
		return err
	}

	r, err := newRelease(ctx, o, log)
	if err != nil {
		return err
	}

	return r.build(ctx)
}

// release is one run.
type release struct {
	options

	version  version
	log      io.Writer
	targets  []platform // of slipway
	programs map[string]string
	// files are the released files so far, by name, with their SHA-256.
	files map[string]string
}

// platform is an operating system and an architecture, as Go names them.
type platform struct {
	os, arch string
}

func (p platform) String() string { return p.os + "_" + p.arch }

// agentPlatforms returns the platforms of slipway-node: what machines run on.
func agentPlatforms() []platform { return []platform{{"linux", "amd64"}, {"linux", "arm64"}} }

func newRelease(ctx context.Context, o options, log io.Writer) (*release, error) {
	r := &release{options: o, log: log, programs: map[string]string{}, files: map[string]string{}}
	var err error
	if r.root, err = filepath.Abs(o.root); err != nil {
		return nil, err
	}

	if r.out, err = filepath.Abs(o.out); err != nil {
		return nil, err
	}

	for text := range strings.SplitSeq(o.platforms, ",") {
		system, arch, ok := strings.Cut(text, "/")
		if !ok {
			return nil, fmt.Errorf("platform %q is not OS/ARCH", text)
		}

		r.targets = append(r.targets, platform{system, arch})
	}

	r.version, err = readVersion(ctx, r.root)

	return r, err
}

// builds reports whether a format was asked for.
func (r *release) builds(format string) bool {
	return slices.Contains(strings.Split(r.formats, ","), format)
}

// build builds all formats, and the checksums.
func (r *release) build(ctx context.Context) error {
	if err := errors.Join(os.RemoveAll(r.out), os.MkdirAll(r.out, 0o755)); err != nil {
		return fmt.Errorf("empty the output directory: %w", err)
	}

	work, err := os.MkdirTemp("", "slipway-packages-")
	if err != nil {
		return err
	}

	defer func() { _ = os.RemoveAll(work) }()
	fmt.Fprintf(r.log, "packages: version %s of %s\n", r.version.number, r.version.when.Format("2006-01-02 15:04:05Z"))
	if err := r.buildPrograms(ctx, work); err != nil {
		return err
	}

	steps := []struct {
		format string
		build  func(ctx context.Context, work string) error
	}{
		{formatArchive, r.buildArchives},
		{formatDeb, r.buildDebs},
		{formatRPM, r.buildRPMs},
		{formatImage, r.buildImage},
		{formatHomebrew, r.writeFormula},
		{formatKrew, r.writeKrewManifest},
		{formatSBOM, r.writeSBOM},
	}

	for _, s := range steps {
		if !r.builds(s.format) {
			continue
		}

		if err := s.build(ctx, work); err != nil {
			return fmt.Errorf("build %s: %w", s.format, err)
		}
	}

	return r.writeChecksums()
}
