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

// View is a snapshot of the objects below a prefix of a store. It reads them with a constant number
// of requests: one for a list of their ETags, and one for the index, an object with copies of all
// objects that were read the last time. A copy is used only if the list still has its ETag. Other
// objects are read one by one. Writes go to the store, and are not visible in the view. Methods may
// be called concurrently.
type View struct {
	Store
	prefix string

	mu         sync.Mutex
	etags      map[string]string // by key; nil if the store cannot list ETags, then nothing is cached
	cached     map[string]Object
	indexStale bool // the index lacks an object that was read, or contains an outdated copy
}

// etagLister is a store that can list ETags, such as S3Store.
type etagLister interface {
	ETags(ctx context.Context, prefix string) (map[string]string, error)
}

// viewIndex is the content of the index.
type viewIndex struct {
	Version int                      `json:"version"`
	Objects map[string]indexedObject `json:"objects"` // by key
}

type indexedObject struct {
	ETag string `json:"etag"`
	Body []byte `json:"body"`
}

const indexVersion = 1

// IndexKey returns the key of the index of the objects below prefix.
func IndexKey(prefix string) string { return prefix + "index.json" }

// OpenView returns a view of the objects below prefix in s.
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

// WriteIndex writes the index of the objects below prefix, which were just written, so that the first
// view needs no request for each of them. None of the objects may be a secret. It writes nothing if
// s cannot list ETags.
func WriteIndex(ctx context.Context, s Store, prefix string, objects []Object) error {
	if _, ok := s.(etagLister); !ok {
		return nil
	}

	v := &View{Store: s, prefix: prefix, cached: map[string]Object{}, etags: map[string]string{}}
	for _, o := range objects {
		v.AddObject(o)
	}

	return v.SaveIndex(ctx)
}

// readIndex returns the index. It returns an empty index if the object does not exist or cannot be
// decoded, since the index contains copies only.
func readIndex(ctx context.Context, s Store, key string) (viewIndex, error) {
	var out viewIndex
	o, err := s.Get(ctx, key)
	if errors.Is(err, ErrNotFound) {
		return out, nil
	}

	if err != nil {
		return out, err
	}

	if json.Unmarshal(o.Body, &out) == nil && out.Version == indexVersion {
		return out, nil
	}

	return viewIndex{}, nil
}

// Get returns an object as it was when the view was opened.
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
		return o, err // changed after the view was opened: return the newer object, but do not cache it
	}

	v.mu.Lock()
	defer v.mu.Unlock()
	v.cached[key] = Object{Key: key, Body: slices.Clone(o.Body), ETag: o.ETag}
	v.indexStale = true

	return o, nil
}

// HasObject reports whether an object existed when the view was opened. The second result is false
// if the view does not know it, because the store cannot list ETags or the key is not below the
// prefix.
func (v *View) HasObject(key string) (exists, known bool) {
	v.mu.Lock()
	defer v.mu.Unlock()
	_, exists = v.etags[key]

	return exists, v.etags != nil && strings.HasPrefix(key, v.prefix)
}

// AddObject adds an object that was written without the view, so that the index gets a copy of it.
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

// Refresh lists the objects again and forgets all copies, so that each object is read from the store itself. Call it if
// an object is not what it should be: an index that somebody changed has other copies than the store.
func (v *View) Refresh(ctx context.Context) error {
	l, ok := v.Store.(etagLister)
	if !ok {
		return nil
	}

	etags, err := l.ETags(ctx, v.prefix)
	if err != nil {
		return err
	}

	v.mu.Lock()
	defer v.mu.Unlock()
	v.etags = etags
	v.cached = map[string]Object{}
	v.indexStale = true

	return nil
}

// List returns the keys that begin with prefix and existed when the view was opened, in sorted
// order.
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

// SaveIndex writes the index if it has changed. The index contains the objects that were read
// through the view only, none of which is a secret.
func (v *View) SaveIndex(ctx context.Context) error {
	body, err := v.encodeStaleIndex()
	if err != nil || body == nil {
		return err
	}

	if _, err := v.Put(ctx, IndexKey(v.prefix), body); err != nil {
		v.mu.Lock()
		defer v.mu.Unlock()
		v.indexStale = true

		return err
	}

	return nil
}

// encodeStaleIndex returns the index to write; nil if it has not changed.
func (v *View) encodeStaleIndex() ([]byte, error) {
	v.mu.Lock()
	defer v.mu.Unlock()
	if v.etags == nil || !v.indexStale {
		return nil, nil
	}

	out := viewIndex{Version: indexVersion, Objects: map[string]indexedObject{}}
	for key, o := range v.cached {
		out.Objects[key] = indexedObject{ETag: o.ETag, Body: o.Body}
	}

	body, err := json.Marshal(out)
	if err != nil {
		return nil, fmt.Errorf("encode the index of %s: %w", v.prefix, err)
	}

	v.indexStale = false

	return body, nil
}
