// SPDX-License-Identifier: Apache-2.0

// Package record is what the region's record-keeping services share: one lock over saved state, operations that run
// under it, paging, tags as IAM sees them. It knows no service.
package record

import (
	"context"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"sync"

	"github.com/aws/aws-sdk-go/aws"
	"github.com/aws/aws-sdk-go/aws/awsutil"

	"github.com/slipway-k8s/slipway/internal/region/wire"
)

// Backend keeps state over a restart. Load leaves v alone where nothing was saved.
type Backend interface {
	Save(name string, v any) error
	Load(name string, v any) error
}

// Store is a service's state under one lock. Name, State and the hooks are set before its first use.
type Store struct {
	Name                string
	Backend             Backend // nil keeps nothing
	State               any     // saved as JSON
	ApplyDueTransitions func()  // brings state up to the clock; called first, under the lock
	OnChange            func()  // called after a change, without the lock; must not block

	mu      sync.Mutex
	changed bool
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

// SaveTo writes State to another place, for a snapshot.
func (b *Store) SaveTo(to Backend) error {
	return b.WithLock(func() error { return to.Save(b.Name, b.State) })
}

// MarkChanged notes a change, to be saved at the end of [Book.WithLock]. The caller is inside Do.
func (b *Store) MarkChanged() { b.changed = true }

// WithLock runs f under the lock and saves what changed.
func (b *Store) WithLock(f func() error) error {
	changed, err := b.runLocked(f)
	if changed && b.OnChange != nil {
		b.OnChange()
	}

	return err
}

func (b *Store) runLocked(f func() error) (bool, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.ApplyDueTransitions != nil {
		b.ApplyDueTransitions()
	}

	err := f()
	changed := b.changed
	b.changed = false
	if changed && b.Backend != nil {
		if saveErr := b.Backend.Save(b.Name, b.State); saveErr != nil && err == nil {
			return changed, fmt.Errorf("save the state of %s: %w", b.Name, saveErr)
		}
	}

	return changed, err
}

// ReadOperation makes an operation that changes nothing. Its answer is a copy.
func ReadOperation[I, O any](b *Store, name string, do func(*I) (*O, error)) wire.Op {
	return wire.Operation(name, func(_ context.Context, in *I) (*O, error) { return RunRead(b, do, in) })
}

// WriteOperation makes an operation that changes something.
func WriteOperation[I, O any](b *Store, name string, do func(*I) (*O, error)) wire.Op {
	return wire.Operation(name, func(_ context.Context, in *I) (*O, error) { return RunWrite(b, do, in) })
}

// RunRead runs a handler that changes nothing and copies its answer.
func RunRead[I, O any](b *Store, do func(*I) (*O, error), in *I) (*O, error) {
	var out *O
	err := b.WithLock(func() error {
		got, err := do(in)
		if err == nil {
			out = CloneShape(got)
		}

		return err
	})

	return out, err
}

// RunWrite runs a handler that changes something and copies its answer.
func RunWrite[I, O any](b *Store, do func(*I) (*O, error), in *I) (*O, error) {
	return RunRead(b, func(in *I) (*O, error) {
		out, err := do(in)
		if err == nil {
			b.MarkChanged()
		}

		return out, err
	}, in)
}

// CloneShape copies a shape deeply.
func CloneShape[T any](v *T) *T {
	c := new(T)
	awsutil.Copy(c, v)
	return c
}

// SortedKeys gives a map's keys in order.
func SortedKeys[V any](m map[string]V) []string { return slices.Sorted(maps.Keys(m)) }

// String reads an optional string.
func String(p *string) string { return aws.StringValue(p) }

// Strings reads a list of strings.
func Strings(p []*string) []string { return aws.StringValueSlice(p) }

// StringPointers is the reverse of [Strings].
func StringPointers(in []string) []*string {
	out := make([]*string, 0, len(in))
	for _, v := range in {
		out = append(out, new(v))
	}

	return out
}

// RandomHex reads n random hexadecimal digits; a source that fails gives zeros.
func RandomHex(r io.Reader, n int) string {
	b := make([]byte, (n+1)/2)
	_, _ = io.ReadFull(r, b) // a failing source makes equal ids, which is loud enough
	return hex.EncodeToString(b)[:n]
}

// Paginate cuts a sorted list of keys. The token is the last key given, so that changes in between do no harm.
func Paginate(keys []string, limit int64, next *string, bad error) ([]string, *string, error) {
	if tok := String(next); tok != "" {
		last, err := base64.RawURLEncoding.DecodeString(tok)
		if err != nil {
			return nil, nil, bad
		}

		at, found := slices.BinarySearch(keys, string(last))
		if found {
			at++
		}

		keys = keys[at:]
	}

	if int64(len(keys)) <= limit {
		return keys, nil, nil
	}

	return keys[:limit], new(base64.RawURLEncoding.EncodeToString([]byte(keys[limit-1]))), nil
}

// ShapeToMap is a shape as a tree without its nulls.
func ShapeToMap(shape any) (map[string]any, error) {
	b, err := json.Marshal(shape)
	if err != nil {
		return nil, fmt.Errorf("read a %T: %w", shape, err)
	}

	var out map[string]any
	if err := json.Unmarshal(b, &out); err != nil {
		return nil, fmt.Errorf("read a %T: %w", shape, err)
	}

	removeNulls(out)

	return out, nil
}

func removeNulls(m map[string]any) {
	for k, v := range m {
		switch v := v.(type) {
		case nil:
			delete(m, k)
		case map[string]any:
			removeNulls(v)
		case []any:
			for _, e := range v {
				if em, ok := e.(map[string]any); ok {
					removeNulls(em)
				}
			}
		}
	}
}

// CollectStrings collects all strings in a tree for which want says yes, but those below the named keys.
func CollectStrings(v any, want func(string) bool, but ...string) []string {
	found := map[string]bool{}
	collectStringsInto(v, want, but, found)
	return SortedKeys(found)
}

func collectStringsInto(v any, want func(string) bool, but []string, into map[string]bool) {
	switch v := v.(type) {
	case map[string]any:
		for k, e := range v {
			if !slices.Contains(but, k) {
				collectStringsInto(e, want, but, into)
			}
		}

	case []any:
		for _, e := range v {
			collectStringsInto(e, want, but, into)
		}

	case string:
		if want(v) {
			into[v] = true
		}
	}
}

// AddRequestTags adds the condition keys of the tags in a request: a list of objects with Key and Value.
func AddRequestTags(into map[string][]string, tags any) {
	all, _ := tags.([]any)
	for _, t := range all {
		m, _ := t.(map[string]any)
		key, _ := m["Key"].(string)
		value, _ := m["Value"].(string)
		into["aws:RequestTag/"+key] = []string{value}
		into["aws:TagKeys"] = append(into["aws:TagKeys"], key)
	}
}

// AddResourceTags adds the condition keys of a resource's tags.
func AddResourceTags(into map[string][]string, tags map[string]string) {
	for k, v := range tags {
		into["aws:ResourceTag/"+k] = []string{v}
	}
}

// Authorize asks IAM about a request: about all that questions names, and about "*" for one that only reads.
func (b *Store) Authorize(
	ctx context.Context,
	action string,
	in any,
	questions func(tree map[string]any) []wire.Check,
) error {
	if caller := wire.CallerFrom(ctx); caller.Root || caller == (wire.Caller{}) {
		return nil
	}

	if _, op, _ := strings.Cut(action, ":"); isReadOperation(op) {
		return wire.Authorize(ctx, wire.Check{Action: action, Resource: "*"})
	}

	tree, err := ShapeToMap(in)
	if err != nil {
		return err
	}

	var checks []wire.Check
	err = b.WithLock(func() error {
		checks = questions(tree)
		return nil
	})
	if err != nil {
		return err
	}

	return wire.Authorize(ctx, checks...)
}

// isReadOperation says whether an operation only reads, for which IAM is asked about "*".
func isReadOperation(op string) bool {
	return strings.HasPrefix(op, "Describe") || strings.HasPrefix(op, "Get")
}
