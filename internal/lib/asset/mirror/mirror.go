// SPDX-License-Identifier: Apache-2.0

// Package mirror copies the files of an asset catalogue to a bucket in S3, and its images to a registry, such as Amazon
// ECR, so that machines without access to the internet download them there.
//
// What the mirror has with the right hash is not copied again, so an interrupted run continues where it stopped. Contents are
// streamed or stored in files, never held in memory. The package does not delete anything.
package mirror

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"slices"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/slipway-k8s/slipway/internal/lib/asset"
	"github.com/slipway-k8s/slipway/internal/lib/asset/fetch"
)

// parallelCopies is the number of assets that are copied at the same time.
const parallelCopies = 3

// Options configure [NewPlan].
type Options struct {
	// Catalog lists what is copied. Its FileRepository and ContainerRegistry are the mirrors to copy from.
	Catalog asset.Catalog
	// Archs are the architectures of the machines.
	Archs []string
	// Folder is where 'slipway assets build' or 'slipway assets fetch' stored its results. What it has with the hash of
	// the catalogue is not downloaded.
	Folder string

	Bucket   *Bucket   // where files are copied to; nil: nowhere
	Registry *Registry // where images are copied to; nil: nowhere

	Transport http.RoundTripper // of downloads and of the registry
	Log       io.Writer         // gets progress messages for a person
	Clock     func() time.Time  // for elapsed times
}

// Step is one change of a plan.
type Step struct {
	Action string `json:"action"` // copy, replace or create repository
	Asset  string `json:"asset"`  // such as kubelet 1.36.3 amd64
	Target string `json:"target"` // the object, repository or image

	run func(context.Context) (int64, error) // returns how many bytes it copied
}

// The actions of steps.
const (
	actionCopy    = "copy"
	actionReplace = "replace"
	actionCreate  = "create repository"
)

// Plan is what has to be copied.
type Plan struct {
	Steps []Step // repositories first
	Total int    // how many files and images the mirror has afterwards

	// Catalog is the catalogue with the addresses of the mirrors, and with the digests of all images that are copied.
	Catalog asset.Catalog

	options Options
}

// NewPlan compares the targets with the catalogue. It changes nothing. All failures are reported at once.
func NewPlan(ctx context.Context, o Options) (*Plan, error) {
	p := &Plan{Catalog: o.Catalog, options: o}
	var errs []error

	if o.Bucket != nil {
		p.Catalog.FileRepository = o.Bucket.URL()
		errs = append(errs, p.addFiles(ctx))
	}

	if o.Registry != nil {
		p.Catalog.ContainerRegistry = o.Registry.Prefix
		p.Catalog.Images = slices.Clone(o.Catalog.Images)
		errs = append(errs, p.addImages(ctx))
	}

	return p, errors.Join(errs...)
}

// Copy makes all steps. It continues after a failure and returns all failures.
func (p *Plan) Copy(ctx context.Context) error {
	isCreation := func(s Step) bool { return s.Action == actionCreate }
	var creations, copies []Step
	for _, s := range p.Steps {
		if isCreation(s) {
			creations = append(creations, s)
		} else {
			copies = append(copies, s)
		}
	}

	r := &report{Options: p.options, total: len(p.Steps)}
	if err := r.runAll(ctx, creations, 1); err != nil {
		return err
	}

	return r.runAll(ctx, copies, parallelCopies)
}

// report runs steps and prints a line for each. Safe for concurrent use.
type report struct {
	Options
	total int

	mu       sync.Mutex
	finished int
}

// runAll makes steps, some at the same time, and returns all failures.
func (r *report) runAll(ctx context.Context, steps []Step, limit int) error {
	errs := make([]error, len(steps))
	var group errgroup.Group
	group.SetLimit(limit)

	for i, s := range steps {
		if errs[i] = ctx.Err(); errs[i] != nil { // interrupted: one error is enough
			break
		}

		group.Go(func() error {
			start := r.Clock()
			size, err := s.run(ctx)
			if err != nil {
				errs[i] = fmt.Errorf("%s %s to %s: %w", s.Action, s.Asset, s.Target, err)
				return nil
			}

			r.printStep(s, size, r.Clock().Sub(start))

			return nil
		})
	}

	_ = group.Wait() // the failures are in errs

	return errors.Join(errs...)
}

// printStep prints what was done.
func (r *report) printStep(s Step, size int64, elapsed time.Duration) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.finished++
	if s.Action == actionCreate {
		fmt.Fprintf(r.Log, "[%d/%d] repository %s\n", r.finished, r.total, s.Target)
		return
	}

	const megabyte = 1e6
	fmt.Fprintf(
		r.Log,
		"[%d/%d] %s: %.1f MB in %s\n",
		r.finished,
		r.total,
		s.Asset,
		float64(size)/megabyte,
		elapsed.Round(100*time.Millisecond),
	)
}

// source returns the transport of downloads, which gives up servers that send nothing.
func (o Options) source() http.RoundTripper {
	return fetch.WatchStalls(o.Transport)
}

// HasFiles reports whether the plan is for files.
func (p *Plan) HasFiles() bool { return p.options.Bucket != nil }

// HasImages reports whether the plan is for images.
func (p *Plan) HasImages() bool { return p.options.Registry != nil }
