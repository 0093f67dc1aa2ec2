// SPDX-License-Identifier: Apache-2.0

// Package build builds all files and images of a cluster from source, and serves them at paths like
// those of the upstream hosts.
//
// Run compiles the nested modules of a source folder with the Go toolchain, one step per module.
// Each result is cached by a hash of its inputs. Run then packs the results into files, an OCI
// image layout and a catalogue. RegistryHandler serves all of it.
//
// The package does not know the local region or any cloud: the output folder and the addresses in
// the catalogue are arguments.
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
	"slices"
	"syscall"
	"time"
)

// The addresses at which the local region serves the files and images to its machines.
const (
	DefaultFileRepository    = "http://198.18.0.1:5000/files"
	DefaultContainerRegistry = "198.18.0.1:5000"
)

// Options configure Run.
type Options struct {
	Source string // the folder of the nested modules, such as assets
	Out    string // the output folder, such as ~/.cache/slipway/assets
	Go     string // the go command; if empty, go from PATH

	// Kubernetes are versions to build in addition to the default one, each as a minor version, such as
	// 1.35, or in full. Those that an earlier run built are kept.
	Kubernetes []string

	// EarlierComponents also builds an earlier version of etcd, containerd and the CNI plugins, which the
	// catalogue lists after the default one. It is kept as those of Kubernetes are.
	EarlierComponents bool

	// LaterEtcd also builds the next minor version of etcd, which the catalogue lists last. It is kept as those of
	// Kubernetes are.
	LaterEtcd bool

	// AddonImages also builds the controllers of examples/addons and their images. They are kept as those of
	// Kubernetes are.
	AddonImages bool

	// Conformance also builds Kubernetes' conformance tests and the images that they start, which are not in the
	// catalogue. They are kept as those of Kubernetes are.
	Conformance bool

	// FileRepository and ContainerRegistry are written to the catalogue. If empty, the defaults are
	// used.
	FileRepository    string
	ContainerRegistry string

	Env   []string         // the environment of the commands that Run starts
	Log   io.Writer        // gets progress messages for a person
	Clock func() time.Time // for elapsed times
}

// Result is the result of Run.
type Result struct {
	Catalog string        // the path of the catalogue
	Built   []string      // the steps that were not cached, in order
	Elapsed time.Duration // the duration of Run
}

// Run builds the content of o.Out from o.Source. It skips cached steps, so an interrupted run
// continues with the step that was interrupted. If Debian packages are missing, it lists all of
// them before it builds anything, with an error that wraps ErrMissingPackages. A concurrent Run
// with the same o.Out waits.
func Run(ctx context.Context, o Options) (Result, error) {
	o.Go = cmp.Or(o.Go, "go")
	o.FileRepository = cmp.Or(o.FileRepository, DefaultFileRepository)
	o.ContainerRegistry = cmp.Or(o.ContainerRegistry, DefaultContainerRegistry)
	source, err := filepath.Abs(o.Source)
	if err != nil {
		return Result{}, fmt.Errorf("resolve %s: %w", o.Source, err)
	}

	o.Source = source
	unlock, err := LockOutput(o.Out, o.Log)
	if err != nil {
		return Result{}, err
	}

	defer unlock()

	return newBuilder(o).buildAll(ctx)
}

// LockOutput locks an output folder against concurrent runs, and returns the function that unlocks it. A second run
// waits, which it logs, and then finds everything cached.
func LockOutput(out string, log io.Writer) (func(), error) {
	if err := os.MkdirAll(out, 0o755); err != nil {
		return nil, fmt.Errorf("create the assets folder: %w", err)
	}

	path := filepath.Join(out, ".lock")
	f, err := os.OpenFile(path, os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return nil, fmt.Errorf("open the lock: %w", err)
	}

	fd := int(f.Fd())
	err = syscall.Flock(fd, syscall.LOCK_EX|syscall.LOCK_NB)
	if errors.Is(err, syscall.EWOULDBLOCK) {
		fmt.Fprintf(log, "assets: waiting for another run in %s\n", out)
		err = syscall.Flock(fd, syscall.LOCK_EX)
	}

	if err != nil {
		return nil, errors.Join(fmt.Errorf("lock %s: %w", path, err), f.Close())
	}

	return func() { _ = f.Close() }, nil
}

// builder is the state of one Run.
type builder struct {
	Options
	modules  []moduleRecipe
	optional map[string]bool // the modules that are built only on request
	files    []fileRecipe
	images   []imageRecipe
	arch     string
	progress *progress
	built    []string
	versions map[string]string // by module name, from its go.mod
	stepDirs map[string]string // the folders of the results, by step name
	stepKeys []string          // the cache keys of all steps, in order
}

func newBuilder(o Options) *builder {
	b := &builder{
		Options:  o,
		arch:     runtime.GOARCH,
		modules:  moduleRecipes(),
		optional: map[string]bool{},
		files:    fileRecipes(),
		images:   imageRecipes(),
		versions: map[string]string{},
		stepDirs: map[string]string{},
	}

	for _, minor := range earlierKubernetes() {
		b.optional[kubernetesModule(minor)] = true
	}

	for _, component := range earlierComponents() {
		b.optional[earlierModule(component)] = true
	}

	b.optional[laterEtcdModule] = true
	for _, name := range slices.Concat(addonSteps(), conformanceSteps()) {
		b.optional[name] = true
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
		fmt.Fprintf(
			b.Log,
			"assets: built %d of %d steps in %s; catalogue %s\n",
			len(b.built),
			b.progress.total,
			result.Elapsed.Round(time.Second),
			result.Catalog,
		)
	}

	return result, nil
}
