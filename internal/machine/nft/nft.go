// SPDX-License-Identifier: Apache-2.0

// Package nft runs nft(8), which loads packet filters into the kernel, also on a machine whose
// image does not have the program, or has one that is too old for the packet filters.
//
// Such a machine takes the program of a container image that it needs anyway: kube-proxy's. The
// package mounts the image, copies nft and its shared libraries to the disk of the machine, and
// unmounts it. So packet filters depend neither on containerd, whose lease on a mounted image ends
// after an hour, nor on the kubelet, which deletes images, and a machine that boots again has the
// program before it starts any container. The copy is run by its own dynamic loader in the file
// system of the machine, because nft looks for control groups in /sys/fs/cgroup.
//
// The package knows neither the agent nor what is filtered.
package nft

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"path/filepath"
	"slices"
	"sync"
	"time"

	"github.com/slipway-k8s/slipway/internal/lib/diag"
)

const (
	// mountPoint is where the image is mounted while the program is copied.
	mountPoint = "/run/slipway/nft-image"
	// copyTimeout limits the pull of the image and the copy: others wait for it.
	copyTimeout = 5 * time.Minute
	// unmountTimeout limits how long a copy waits for the image to be unmounted, also when its own time is over.
	unmountTimeout = 30 * time.Second
	// failurePause is for how long others get the error of a failed copy instead of another attempt.
	failurePause = 10 * time.Second
)

// Program is nft(8). The first of these is used: the program of the machine, the copy, and a new
// copy. It is safe for concurrent use. The caller sets all exported fields.
type Program struct {
	// Root is the directory that contains Dir and run: "/" on a machine.
	Root string
	// Dir is the path of the copy. Its directory bin has a script that runs it.
	Dir string
	// Find returns the path of a program of the machine.
	Find func(name string) (string, error)
	// Execute runs a program and returns its output. Its errors contain the output too.
	Execute func(ctx context.Context, name string, args ...string) (string, error)
	// Image returns the reference of an image with nft, once containerd runs.
	Image func(ctx context.Context) (string, error)
	// Pull pulls an image into the kubelet's namespace of containerd.
	Pull func(ctx context.Context, image string) error
	// Log receives what does not keep the program from running.
	Log *slog.Logger
	// Now returns the time.
	Now func() time.Time

	// copying is held while a copy is made.
	copying lock
	// mu protects the fields below. Nothing waits while it is held.
	mu sync.Mutex
	// command is the program with its first arguments; nil while it is unknown.
	command []string
	// failure is the error of the last copy, which ended at failedAt; nil if it succeeded.
	failure  error
	failedAt time.Time
}

// Run runs nft with arguments and returns its output. After a failure the next call looks for the
// program again.
func (p *Program) Run(ctx context.Context, args ...string) (string, error) {
	command, err := p.prepare(ctx)
	if err != nil {
		return "", err
	}

	output, err := p.Execute(ctx, command[0], slices.Concat(command[1:], args)...)
	if err != nil {
		p.mu.Lock()
		p.command = nil
		p.mu.Unlock()
	}

	return output, err
}

// IsPresent reports whether the machine has the program without its image.
func (p *Program) IsPresent(ctx context.Context) bool { return p.known(ctx) != nil }

// known returns the command of the program; nil if the machine has none.
func (p *Program) known(ctx context.Context) []string {
	p.mu.Lock()
	command := p.command
	p.mu.Unlock()
	if command != nil {
		return command
	}

	own, isUsable := p.findOwn(ctx)
	if !isUsable {
		return p.knownCopy()
	}

	p.mu.Lock()
	defer p.mu.Unlock()
	if p.command == nil {
		p.command = []string{own}
	}

	return p.command
}

// knownCopy returns the command that is known already, or that of the copy; nil if there is neither.
func (p *Program) knownCopy() []string {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.command == nil {
		p.command = p.findCopy()
	}

	return p.command
}

// prepare returns the command of the program. It makes a copy if there is none.
func (p *Program) prepare(ctx context.Context) ([]string, error) {
	if command := p.known(ctx); command != nil {
		return command, nil
	}

	if err := p.copying.acquire(ctx); err != nil {
		return nil, fmt.Errorf("%s, and wait for its copy: %w", missing, err)
	}

	defer p.copying.release()
	if command := p.knownCopy(); command != nil {
		return command, nil
	}

	if err := p.recentFailure(); err != nil {
		return nil, err
	}

	err := p.makeCopy(ctx)
	command := p.knownCopy()
	if err == nil && command == nil {
		err = fmt.Errorf("the copy of nft in %s was changed while it was made", p.Dir)
	}

	p.noteFailure(err)

	return command, err
}

// recentFailure returns the error of a copy that has just failed; nil if there is none.
func (p *Program) recentFailure() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.failure == nil || p.Now().Sub(p.failedAt) >= failurePause {
		return nil
	}

	return p.failure
}

func (p *Program) noteFailure(err error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.failure = err
	p.failedAt = p.Now()
}

// makeCopy copies the program of the image.
func (p *Program) makeCopy(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, copyTimeout)
	defer cancel()
	image, err := p.Image(ctx)
	if err == nil && image == "" {
		err = errors.New("the node document names none")
	}

	if err != nil {
		err = fmt.Errorf("%s, and the image with one is not known: %w", missing, err)
		return diag.WithHint(err, missingHint)
	}

	if err := p.copyFrom(ctx, image); err != nil {
		err = fmt.Errorf("%s, and that of image %s is not usable: %w", missing, image, err)
		return diag.WithHint(err, missingHint)
	}

	return nil
}

const (
	missing     = "the machine has no program nft of version " + leastVersion + " or later"
	missingHint = "let the machine reach the registry of kube-proxy's image, " +
		"or use a machine image with the package nftables"
)

// findCopy returns the command of the copy; nil if there is none.
func (p *Program) findCopy() []string {
	loader, ok := p.readCopy()
	if !ok {
		return nil
	}

	dir := p.path(p.Dir)

	return []string{filepath.Join(dir, loader), "--library-path", dir, filepath.Join(dir, program)}
}

func (p *Program) path(name string) string { return filepath.Join(p.Root, name) }
