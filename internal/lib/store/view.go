// SPDX-License-Identifier: Apache-2.0

package store

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
)

// View is a store whose objects below a prefix are read as they were at one moment, for a price that does not grow with
// their number: one listing, and one object that holds copies of all that was read the last time, the index. A copy
// counts only if the listing still shows its ETag; what changed since is read by itself. Writes go through, and are
// not seen in the view.
type View struct {
	Store
	prefix string

	mu         sync.Mutex
	etags      map[string]string // nil: the store has none to list, and nothing is kept
	cached     map[string]Object
	indexStale bool // the index lacks something that was read, or has something that is gone
}

// etagLister is a store that lists ETags, as S3 does.
type etagLister interface {
	ETags(ctx context.Context, prefix string) (map[string]string, error)
}

// viewIndex is the object's JSON.
type viewIndex struct {
	Version int                      `json:"version"`
	Objects map[string]indexedObject `json:"objects"` // by key
}

type indexedObject struct {
	ETag string `json:"etag"`
	Body []byte `json:"body"`
}

const indexVersion = 1

// IndexKey is the key of the index of what lies below prefix.
func IndexKey(prefix string) string { return prefix + "index.json" }

// OpenView returns a view of what lies below prefix in s.
func OpenView(ctx context.Context, s Store, prefix string) (*View, error) {
	v := &View{Store: s, prefix: prefix, cached: map[string]Object{}}
	l, ok := s.(etagLister)
	if !ok {
		return v, nil
	}

	var wg sync.WaitGroup
	var copies viewIndex
	var etags map[string]string
	var listErr, getErr error
	wg.Go(func() { etags, listErr = l.ETags(ctx, prefix) })
	wg.Go(func() { copies, getErr = readIndex(ctx, s, IndexKey(prefix)) })
	wg.Wait()
	if err := errors.Join(listErr, getErr); err != nil {
		return nil, err
	}

	v.etags = etags

	for key, c := range copies.Objects {
		if etag, ok := etags[key]; ok && etag == c.ETag {
			v.cached[key] = Object{Key: key, Body: c.Body, ETag: c.ETag}
			continue
		}

		v.indexStale = true
	}

	return v, nil
}

// readIndex returns what an index holds. One that is missing, or that we cannot read, holds nothing: it is only a copy.
func readIndex(ctx context.Context, s Store, key string) (viewIndex, error) {
	var out viewIndex
	o, err := s.Get(ctx, key)
	if errors.Is(err, ErrNotFound) {
		return out, nil
	}

	if err != nil {
		return out, err
	}

	if json.Unmarshal(o.Body, &out) != nil || out.Version != indexVersion {
		return viewIndex{}, nil //nolint:nilerr // an index that cannot be read is none
	}

	return out, nil
}

// Get returns an object as it was when the view was made.
func (v *View) Get(ctx context.Context, key string) (Object, error) {
	if v.etags == nil || !strings.HasPrefix(key, v.prefix) {
		return v.Store.Get(ctx, key)
	}

	v.mu.Lock()
	o, ok := v.cached[key]
	etag, listed := v.etags[key]
	v.mu.Unlock()
	if ok {
		o.Body = slices.Clone(o.Body)
		return o, nil
	}

	if !listed {
		return Object{}, fmt.Errorf("read %s in %s: %w", key, v.URL(), ErrNotFound)
	}

	o, err := v.Store.Get(ctx, key)
	if err != nil || o.ETag != etag {
		return o, err // changed a moment ago: the newer one is right, but it is not of this view
	}

	v.mu.Lock()
	defer v.mu.Unlock()
	v.cached[key] = Object{Key: key, Body: slices.Clone(o.Body), ETag: o.ETag}
	v.indexStale = true

	return o, nil
}

// HasObject says whether there was an object when the view was made; known is false where the store tells no ETags.
func (v *View) HasObject(key string) (holds, known bool) {
	v.mu.Lock()
	defer v.mu.Unlock()
	_, holds = v.etags[key]

	return holds, v.etags != nil && strings.HasPrefix(key, v.prefix)
}

// AddObject puts an object that was written through another way into the view, so that the index has a copy of it.
func (v *View) AddObject(o Object) {
	v.mu.Lock()
	defer v.mu.Unlock()
	if v.etags == nil || !strings.HasPrefix(o.Key, v.prefix) {
		return
	}

	v.etags[o.Key] = o.ETag
	v.cached[o.Key] = Object{Key: o.Key, Body: slices.Clone(o.Body), ETag: o.ETag}
	v.indexStale = true
}

// List returns the keys that were there when the view was made.
func (v *View) List(ctx context.Context, prefix string) ([]string, error) {
	if v.etags == nil || !strings.HasPrefix(prefix, v.prefix) {
		return v.Store.List(ctx, prefix)
	}

	v.mu.Lock()
	defer v.mu.Unlock()
	var out []string

	for _, key := range slices.Sorted(maps.Keys(v.etags)) {
		if strings.HasPrefix(key, prefix) {
			out = append(out, key)
		}
	}

	return out, nil
}

// SaveIndex writes the index if it would say anything new. Only what was read through the view is in it: no secret is.
func (v *View) SaveIndex(ctx context.Context) error {
	v.mu.Lock()
	defer v.mu.Unlock()
	if v.etags == nil || !v.indexStale {
		return nil
	}

	out := viewIndex{Version: indexVersion, Objects: map[string]indexedObject{}}
	for key, o := range v.cached {
		out.Objects[key] = indexedObject{ETag: o.ETag, Body: o.Body}
	}

	body, err := json.Marshal(out)
	if err != nil {
		return fmt.Errorf("write the index of %s: %w", v.prefix, err)
	}

	if _, err := v.Put(ctx, IndexKey(v.prefix), body); err != nil {
		return err
	}

	v.indexStale = false

	return nil
}
