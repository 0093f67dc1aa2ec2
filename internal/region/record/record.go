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

// Saver keeps state over a restart. Load leaves v alone where nothing was saved.
type Saver interface {
	Save(name string, v any) error
	Load(name string, v any) error
}

// Book is a service's state under one lock. Name, State and the hooks are set before its first use.
type Book struct {
	Name    string
	Saver   Saver  // nil keeps nothing
	State   any    // saved as JSON
	Settle  func() // brings state up to the clock; called first, under the lock
	Changed func() // called after a change, without the lock; must not block

	mu    sync.Mutex
	dirty bool
}

// Load reads the saved state into State.
func (b *Book) Load() error {
	if b.Saver == nil {
		return nil
	}
	if err := b.Saver.Load(b.Name, b.State); err != nil {
		return fmt.Errorf("load the state of %s: %w", b.Name, err)
	}
	return nil
}

// SaveTo writes State to another place, for a snapshot.
func (b *Book) SaveTo(to Saver) error {
	return b.Do(func() error { return to.Save(b.Name, b.State) })
}

// Dirty notes a change, to be saved at the end of [Book.Do]. The caller is inside Do.
func (b *Book) Dirty() { b.dirty = true }

// Do runs f under the lock and saves what changed.
func (b *Book) Do(f func() error) error {
	changed, err := b.do(f)
	if changed && b.Changed != nil {
		b.Changed()
	}
	return err
}

func (b *Book) do(f func() error) (bool, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.Settle != nil {
		b.Settle()
	}
	err := f()
	changed := b.dirty
	b.dirty = false
	if changed && b.Saver != nil {
		if saveErr := b.Saver.Save(b.Name, b.State); saveErr != nil && err == nil {
			return changed, fmt.Errorf("save the state of %s: %w", b.Name, saveErr)
		}
	}
	return changed, err
}

// Read makes an operation that changes nothing. Its answer is a copy.
func Read[I, O any](b *Book, name string, do func(*I) (*O, error)) wire.Op {
	return wire.Operation(name, func(_ context.Context, in *I) (*O, error) { return Ask(b, do, in) })
}

// Write makes an operation that changes something.
func Write[I, O any](b *Book, name string, do func(*I) (*O, error)) wire.Op {
	return wire.Operation(name, func(_ context.Context, in *I) (*O, error) { return Order(b, do, in) })
}

// Ask runs a handler that changes nothing and copies its answer.
func Ask[I, O any](b *Book, do func(*I) (*O, error), in *I) (*O, error) {
	var out *O
	err := b.Do(func() error {
		got, err := do(in)
		if err == nil {
			out = Clone(got)
		}
		return err
	})
	return out, err
}

// Order runs a handler that changes something and copies its answer.
func Order[I, O any](b *Book, do func(*I) (*O, error), in *I) (*O, error) {
	return Ask(b, func(in *I) (*O, error) {
		out, err := do(in)
		if err == nil {
			b.Dirty()
		}
		return out, err
	}, in)
}

// Clone copies a shape deeply.
func Clone[T any](v *T) *T {
	c := new(T)
	awsutil.Copy(c, v)
	return c
}

// Keys gives a map's keys in order.
func Keys[V any](m map[string]V) []string { return slices.Sorted(maps.Keys(m)) }

// Str reads an optional string.
func Str(p *string) string { return aws.StringValue(p) }

// Strs reads a list of strings.
func Strs(p []*string) []string { return aws.StringValueSlice(p) }

// Refs is the reverse of [Strs].
func Refs(in []string) []*string {
	out := make([]*string, 0, len(in))
	for _, v := range in {
		out = append(out, new(v))
	}
	return out
}

// Hex reads n random hexadecimal digits; a source that fails gives zeros.
func Hex(r io.Reader, n int) string {
	b := make([]byte, (n+1)/2)
	_, _ = io.ReadFull(r, b) // a failing source makes equal ids, which is loud enough
	return hex.EncodeToString(b)[:n]
}

// Page cuts a sorted list of keys. The token is the last key given, so that changes in between do no harm.
func Page(keys []string, limit int64, next *string, bad error) ([]string, *string, error) {
	if tok := Str(next); tok != "" {
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

// Fields is a shape as a tree without its nulls.
func Fields(shape any) (map[string]any, error) {
	b, err := json.Marshal(shape)
	if err != nil {
		return nil, fmt.Errorf("read a %T: %w", shape, err)
	}
	var out map[string]any
	if err := json.Unmarshal(b, &out); err != nil {
		return nil, fmt.Errorf("read a %T: %w", shape, err)
	}
	prune(out)
	return out, nil
}

func prune(m map[string]any) {
	for k, v := range m {
		switch v := v.(type) {
		case nil:
			delete(m, k)
		case map[string]any:
			prune(v)
		case []any:
			for _, e := range v {
				if em, ok := e.(map[string]any); ok {
					prune(em)
				}
			}
		}
	}
}

// Texts collects all strings in a tree for which want says yes, but those below the named keys.
func Texts(v any, want func(string) bool, but ...string) []string {
	found := map[string]bool{}
	texts(v, want, but, found)
	return Keys(found)
}

func texts(v any, want func(string) bool, but []string, into map[string]bool) {
	switch v := v.(type) {
	case map[string]any:
		for k, e := range v {
			if !slices.Contains(but, k) {
				texts(e, want, but, into)
			}
		}
	case []any:
		for _, e := range v {
			texts(e, want, but, into)
		}
	case string:
		if want(v) {
			into[v] = true
		}
	}
}

// RequestTags adds the condition keys of the tags in a request: a list of objects with Key and Value.
func RequestTags(into map[string][]string, tags any) {
	all, _ := tags.([]any)
	for _, t := range all {
		m, _ := t.(map[string]any)
		key, _ := m["Key"].(string)
		value, _ := m["Value"].(string)
		into["aws:RequestTag/"+key] = []string{value}
		into["aws:TagKeys"] = append(into["aws:TagKeys"], key)
	}
}

// ResourceTags adds the condition keys of a resource's tags.
func ResourceTags(into map[string][]string, tags map[string]string) {
	for k, v := range tags {
		into["aws:ResourceTag/"+k] = []string{v}
	}
}

// Authorize asks IAM about a request: about all that questions names, and about "*" for one that only reads.
func (b *Book) Authorize(ctx context.Context, action string, in any, questions func(tree map[string]any) []wire.Check) error {
	if caller := wire.CallerFrom(ctx); caller.Root || caller == (wire.Caller{}) {
		return nil
	}
	if _, op, _ := strings.Cut(action, ":"); isRead(op) {
		return wire.Authorize(ctx, wire.Check{Action: action, Resource: "*"})
	}
	tree, err := Fields(in)
	if err != nil {
		return err
	}
	var checks []wire.Check
	err = b.Do(func() error {
		checks = questions(tree)
		return nil
	})
	if err != nil {
		return err
	}
	return wire.Authorize(ctx, checks...)
}

// isRead says whether an operation only reads, for which IAM is asked about "*".
func isRead(op string) bool { return strings.HasPrefix(op, "Describe") || strings.HasPrefix(op, "Get") }
