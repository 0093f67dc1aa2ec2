// SPDX-License-Identifier: Apache-2.0

package state

import (
	"context"
	"fmt"
	"strings"
	"sync"

	"github.com/slipway-k8s/slipway/internal/region/sdkshape"
	"github.com/slipway-k8s/slipway/internal/region/wire"
)

// Backend keeps the state of services over a restart of the region. [Dir] is the one on disk.
type Backend interface {
	// Save writes v under the service's name.
	Save(name string, v any) error
	// Load reads what was saved under name into v. It leaves v unchanged if nothing was saved.
	Load(name string, v any) error
}

// Store holds the state of one service under one lock, and saves it after each change. Every service of the
// region has one. Set the fields before the first use; the methods may then be called from several
// goroutines. The lock is not reentrant: a function that runs inside a method of Store must not call another
// method except [Store.MarkChanged].
type Store struct {
	Name    string  // under which the backend keeps the state, such as "kms"
	Backend Backend // nil saves nothing
	State   any     // pointer to the service's state, saved as JSON

	// ApplyDueTransitions brings the state up to the clock, such as from pending to available. It runs first
	// in each method except Lock, under the lock. nil if the service has no such transitions.
	ApplyDueTransitions func()
	// OnChange runs after each change, without the lock. It must not block. nil for none.
	OnChange func()

	mu      sync.Mutex
	changed bool // since the last call that ran under the lock
	unsaved bool // there are changes since the last save that succeeded
}

// Load reads the saved state into State.
func (b *Store) Load() error {
	if b.Backend == nil {
		return nil
	}

	if err := b.Backend.Load(b.Name, b.State); err != nil {
		return fmt.Errorf("load the state of %s: %w", b.Name, err)
	}

	return nil
}

// SaveTo writes State to another backend, for a snapshot.
func (b *Store) SaveTo(to Backend) error {
	return b.WithLock(func() error { return to.Save(b.Name, b.State) })
}

// Lock locks the state and does nothing else: no due transition is applied, and Unlock saves nothing. It is
// meant for short reads that must not depend on the clock, and for data that a service keeps next to its
// state without saving it.
func (b *Store) Lock() { b.mu.Lock() }

// Unlock ends [Store.Lock].
func (b *Store) Unlock() { b.mu.Unlock() }

// View runs f, which only reads, under the lock. A transition that was due is saved; if that fails, the next
// call of another method tries again and returns the error.
func (b *Store) View(f func()) {
	_ = b.WithLock(func() error {
		f()
		return nil
	})
}

// Update runs f under the lock and saves the state if f returns nil.
func (b *Store) Update(f func() error) error {
	return b.WithLock(func() error {
		err := f()
		if err == nil {
			b.MarkChanged()
		}

		return err
	})
}

// WithLock runs f under the lock and saves the state if f called [Store.MarkChanged], even if f returns an
// error. The error is that of f, or else that of the save. A change whose save failed is saved by the next
// call, which does not run OnChange again: an OnChange that leads to another call must not repeat for as long
// as the saves fail.
func (b *Store) WithLock(f func() error) error {
	changed, err := b.runLocked(f)
	if changed && b.OnChange != nil {
		b.OnChange()
	}

	return err
}

// MarkChanged records that the state has changed and must be saved. The caller holds the lock.
func (b *Store) MarkChanged() { b.changed = true }

func (b *Store) runLocked(f func() error) (changed bool, err error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.ApplyDueTransitions != nil {
		b.ApplyDueTransitions()
	}

	err = f()
	changed = b.changed
	b.changed = false
	b.unsaved = b.unsaved || changed
	if !b.unsaved {
		return false, err
	}

	if b.Backend != nil {
		if saveErr := b.Backend.Save(b.Name, b.State); saveErr != nil {
			if err == nil {
				err = fmt.Errorf("save the state of %s: %w", b.Name, saveErr)
			}

			return changed, err
		}
	}

	b.unsaved = false

	return changed, err
}

// ReadOperation returns an operation that only reads. Its answer is a copy of what do returns.
func ReadOperation[I, O any](b *Store, name string, do func(*I) (*O, error)) wire.Operation {
	return wire.NewOperation(name, func(_ context.Context, in *I) (*O, error) { return RunRead(b, do, in) })
}

// WriteOperation returns an operation that changes the state, which is saved if do succeeds. Its answer is a
// copy of what do returns.
func WriteOperation[I, O any](b *Store, name string, do func(*I) (*O, error)) wire.Operation {
	return wire.NewOperation(name, func(_ context.Context, in *I) (*O, error) { return RunWrite(b, do, in) })
}

// ReadOperationContext is [ReadOperation] for a function that needs the request's context.
func ReadOperationContext[I, O any](b *Store, name string, do func(context.Context, *I) (*O, error)) wire.Operation {
	return wire.NewOperation(name, func(ctx context.Context, in *I) (*O, error) {
		return RunRead(b, func(in *I) (*O, error) { return do(ctx, in) }, in)
	})
}

// WriteOperationContext is [WriteOperation] for a function that needs the request's context.
func WriteOperationContext[I, O any](
	b *Store,
	name string,
	do func(context.Context, *I) (*O, error),
) wire.Operation {
	return wire.NewOperation(name, func(ctx context.Context, in *I) (*O, error) {
		return RunWrite(b, func(in *I) (*O, error) { return do(ctx, in) }, in)
	})
}

// RunRead runs do under the lock and returns a copy of its answer, so that the answer can be encoded without
// the lock.
func RunRead[I, O any](b *Store, do func(*I) (*O, error), in *I) (*O, error) {
	var out *O
	err := b.WithLock(func() error {
		answer, err := do(in)
		if err == nil {
			out = sdkshape.CloneShape(answer)
		}

		return err
	})

	return out, err
}

// RunWrite is [RunRead] for a function that changes the state, which is saved if do succeeds.
func RunWrite[I, O any](b *Store, do func(*I) (*O, error), in *I) (*O, error) {
	return RunRead(b, func(in *I) (*O, error) {
		out, err := do(in)
		if err == nil {
			b.MarkChanged()
		}

		return out, err
	}, in)
}

// Authorize asks IAM whether the caller may do action, such as "autoscaling:CreateAutoScalingGroup". A
// request that only reads is checked against the resource "*"; any other one against the checks that
// questions returns for its input, as a map. questions runs under the lock.
func (b *Store) Authorize(
	ctx context.Context,
	action string,
	in any,
	questions func(input map[string]any) []wire.AccessCheck,
) error {
	if wire.CallerFrom(ctx).IsUnrestricted() {
		return nil
	}

	if _, op, _ := strings.Cut(action, ":"); isReadOperation(op) {
		return wire.Authorize(ctx, wire.AccessCheck{Action: action, Resource: "*"})
	}

	tree, err := sdkshape.ShapeToMap(in)
	if err != nil {
		return err
	}

	var checks []wire.AccessCheck
	b.View(func() { checks = questions(tree) })

	return wire.Authorize(ctx, checks...)
}

// isReadOperation reports whether an operation only reads: IAM checks it against the resource "*".
func isReadOperation(op string) bool {
	return strings.HasPrefix(op, "Describe") || strings.HasPrefix(op, "Get")
}
