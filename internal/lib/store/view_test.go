// SPDX-License-Identifier: Apache-2.0

package store_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync/atomic"
	"testing"

	"github.com/aws/aws-sdk-go-v2/service/s3"

	"github.com/slipway-k8s/slipway/internal/lib/store"
	"github.com/slipway-k8s/slipway/internal/region/regiontest"
)

// counted is a store that counts what is read.
type counted struct {
	*store.S3Store
	reads atomic.Int64 // a view reads several objects at once
}

func (c *counted) Get(ctx context.Context, key string) (store.Object, error) {
	c.reads.Add(1)
	return c.S3Store.Get(ctx, key)
}

func (c *counted) ETags(ctx context.Context, prefix string) (map[string]string, error) {
	c.reads.Add(1)
	return c.S3Store.ETags(ctx, prefix)
}

// TestViewReadsInTwoCalls checks that a view with a saved index makes two calls, independent of the
// number of objects. It also checks that the view reads changed objects again, and that deleted
// objects are not found.
func TestViewReadsInTwoCalls(t *testing.T) {
	cfg := regiontest.Start(t).AWSConfig()
	api := s3.NewFromConfig(cfg, func(o *s3.Options) { o.UsePathStyle = true })
	if _, err := api.CreateBucket(t.Context(), &s3.CreateBucketInput{Bucket: new("views")}); err != nil {
		t.Fatal(err)
	}
	s := &counted{S3Store: store.NewS3Store(api, "views", "p")}
	const n = 50
	key := func(i int) string { return fmt.Sprintf("demo/g/%02d", i) }
	put := func(key, body string) {
		t.Helper()
		if _, err := s.Put(t.Context(), key, []byte(body)); err != nil {
			t.Fatal(err)
		}
	}
	for i := range n {
		put(key(i), fmt.Sprint("body ", i))
	}
	put("demo2/g/00", "another's")
	read := func() *store.View {
		t.Helper()
		s.reads.Store(0)
		v, err := store.OpenView(t.Context(), s, "demo/")
		if err != nil {
			t.Fatal(err)
		}
		keys, err := v.List(t.Context(), "demo/g/")
		if err != nil {
			t.Fatal(err)
		}
		for _, k := range keys {
			o, err := v.Get(t.Context(), k)
			fresh, freshErr := s.S3Store.Get(t.Context(), k)
			if err := errors.Join(err, freshErr); err != nil || string(o.Body) != string(fresh.Body) || o.ETag != fresh.ETag {
				t.Errorf("%s: %q, not %q: %v", k, o.Body, fresh.Body, err)
			}
		}
		return v
	}
	v := read()
	if s.reads.Load() != n+2 {
		t.Errorf("without an index: %d calls", s.reads.Load())
	}
	if err := v.SaveIndex(t.Context()); err != nil {
		t.Fatal(err)
	}
	v = read()
	t.Logf("reading %d objects: %d calls", n, s.reads.Load())
	if s.reads.Load() != 2 {
		t.Errorf("with an index: %d calls", s.reads.Load())
	}
	if keys, err := v.List(t.Context(), "demo/g/"); err != nil || len(keys) != n {
		t.Errorf("%d keys, %v", len(keys), err)
	}
	put(key(7), "changed")
	if err := s.Delete(t.Context(), key(8)); err != nil {
		t.Fatal(err)
	}
	if v = read(); s.reads.Load() != 3 {
		t.Errorf("after one change: %d calls", s.reads.Load())
	}
	if _, err := v.Get(t.Context(), key(8)); !errors.Is(err, store.ErrNotFound) {
		t.Errorf("what is gone: %v", err)
	}
	put(store.IndexKey("demo/"), "no index at all")
	if read(); s.reads.Load() != n-1+2 {
		t.Errorf("an index that cannot be read is none: %d calls", s.reads.Load())
	}
	o, err := v.Get(t.Context(), "demo2/g/00")
	if err != nil || string(o.Body) != "another's" {
		t.Errorf("outside of the prefix: %q, %v", o.Body, err)
	}
	if keys, err := v.List(t.Context(), "demo2/"); err != nil || !slices.Equal(keys, []string{"demo2/g/00"}) {
		t.Errorf("outside of the prefix: %v, %v", keys, err)
	}
	if _, err := s.Get(t.Context(), store.IndexKey("demo2/")); !errors.Is(err, store.ErrNotFound) {
		t.Errorf("another's index: %v", err)
	}
}

// TestRefreshForgetsTheIndex: an index that somebody wrote has another copy of an object than the store.
func TestRefreshForgetsTheIndex(t *testing.T) {
	cfg := regiontest.Start(t).AWSConfig()
	api := s3.NewFromConfig(cfg, func(o *s3.Options) { o.UsePathStyle = true })
	if _, err := api.CreateBucket(t.Context(), &s3.CreateBucketInput{Bucket: new("views")}); err != nil {
		t.Fatal(err)
	}
	s := store.NewS3Store(api, "views", "p")
	etag, err := s.Put(t.Context(), "demo/a", []byte("real"))
	if err != nil {
		t.Fatal(err)
	}
	forged := []store.Object{{Key: "demo/a", Body: []byte("forged"), ETag: etag}}
	if err := store.WriteIndex(t.Context(), s, "demo/", forged); err != nil {
		t.Fatal(err)
	}
	v, err := store.OpenView(t.Context(), s, "demo/")
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"forged", "real"} {
		if o, err := v.Get(t.Context(), "demo/a"); err != nil || string(o.Body) != want {
			t.Errorf("%q, %v; want %q", o.Body, err, want)
		}
		if err := v.Refresh(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
}
