// SPDX-License-Identifier: Apache-2.0

// Package build makes every file and image of a cluster from source with the Go toolchain, cached by content, and serves them the way upstream's hosts do.
// It does not know the local region or any cloud; the folder it fills and the addresses it writes into the catalogue are arguments.
package build

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"runtime"
	"syscall"
	"time"
)

// Where machines of the local region find what Handler serves.
const (
	DefaultFileRepository    = "http://198.18.0.1:5000/files"
	DefaultContainerRegistry = "198.18.0.1:5000"
)

// Options say what Run builds from, where to, and with what.
type Options struct {
	Source string // the folder of nested modules, such as assets
	Out    string // the folder to fill, such as ~/.cache/slipway/assets
	Go     string // the go command; empty means go from PATH
	// FileRepository and ContainerRegistry go into the catalogue; empty means the defaults.
	FileRepository    string
	ContainerRegistry string
	Env               []string         // the environment of the tools that are run
	Log               io.Writer        // progress, for a person
	Clock             func() time.Time // for elapsed times
}

// Result says what Run did.
type Result struct {
	Catalog string   // the path of the catalogue
	Built   []string // the steps that were not cached, in order
	Elapsed time.Duration
}

// Run brings Out in step with Source. What is cached stays; a run that was killed goes on where it was.
// Missing Debian packages are named all at once before anything is built.
func Run(ctx context.Context, o Options) (Result, error) {
	o.Go = cmp.Or(o.Go, "go")
	o.FileRepository = cmp.Or(o.FileRepository, DefaultFileRepository)
	o.ContainerRegistry = cmp.Or(o.ContainerRegistry, DefaultContainerRegistry)
	source, err := filepath.Abs(o.Source)
	if err != nil {
		return Result{}, fmt.Errorf("finding %s: %w", o.Source, err)
	}

	o.Source = source
	unlock, err := lockOutput(o)
	if err != nil {
		return Result{}, err
	}

	defer unlock()

	return newBuilder(o).buildAll(ctx)
}

// lockOutput keeps two builds out of one folder; the second waits, and then finds everything cached.
func lockOutput(o Options) (func(), error) {
	if err := os.MkdirAll(o.Out, 0o755); err != nil {
		return nil, fmt.Errorf("making the assets folder: %w", err)
	}

	path := filepath.Join(o.Out, ".lock")
	f, err := os.OpenFile(path, os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return nil, fmt.Errorf("opening the build lock: %w", err)
	}

	fd := int(f.Fd())
	err = syscall.Flock(fd, syscall.LOCK_EX|syscall.LOCK_NB)
	if errors.Is(err, syscall.EWOULDBLOCK) {
		fmt.Fprintf(o.Log, "assets: another build is at work in %s; waiting for it\n", o.Out)
		err = syscall.Flock(fd, syscall.LOCK_EX)
	}

	if err != nil {
		return nil, errors.Join(fmt.Errorf("locking %s: %w", path, err), f.Close())
	}

	return func() { _ = f.Close() }, nil
}

// builder is one run.
type builder struct {
	Options
	modules        []moduleRecipe
	debianPackages []string // the Debian packages of the nftables layer
	files          []fileRecipe
	images         []imageRecipe
	arch           string
	progress       *progress
	built          []string
	versions       map[string]string // module name → version, from its go.mod
	stepDirs       map[string]string // step name → the folder of its result
	stepKeys       []string          // the keys of all steps, in order
}

func newBuilder(o Options) *builder {
	b := &builder{
		Options:        o,
		arch:           runtime.GOARCH,
		modules:        moduleRecipes(),
		debianPackages: nftablesPackages(),
		files:          fileRecipes(),
		images:         imageRecipes(),
		versions:       map[string]string{},
		stepDirs:       map[string]string{},
	}

	b.progress = &progress{out: o.Log, clock: o.Clock}
	return b
}

func (b *builder) buildAll(ctx context.Context) (Result, error) {
	start := b.Clock()
	steps, err := b.planSteps(ctx)
	if err != nil {
		return Result{}, err
	}

	if err := b.checkHostPackages(ctx, steps); err != nil {
		return Result{}, err
	}

	b.progress.total = len(steps) + 1

	for _, s := range steps {
		if err := b.buildStep(ctx, s); err != nil {
			return Result{}, err
		}
	}

	if err := b.packResults(); err != nil {
		return Result{}, err
	}

	if err := b.removeStaleResults(); err != nil {
		return Result{}, err
	}

	result := Result{
		Catalog: filepath.Join(b.Out, "catalog.yaml"),
		Built:   b.built,
		Elapsed: b.Clock().Sub(start),
	}
	if len(b.built) == 0 {
		fmt.Fprintf(b.Log, "assets: cached, nothing to build (%s)\n", result.Elapsed.Round(time.Millisecond))
	} else {
		fmt.Fprintf(b.Log, "assets: built %d of %d steps in %s; catalogue %s\n", len(b.built), b.progress.total, result.Elapsed.Round(time.Second), result.Catalog)
	}

	return result, nil
}
