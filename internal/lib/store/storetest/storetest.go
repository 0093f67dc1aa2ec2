// SPDX-License-Identifier: Apache-2.0

// Package storetest is the conformance test suite of store.Store and store.Sealer. It does not
// depend on any implementation.
package storetest

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/slipway-k8s/slipway/internal/lib/store"
)

// writerCount is the number of concurrent clients in the concurrency tests.
const writerCount = 12

// Run tests the contract of a store. Each call of open returns an empty store.
func Run(t *testing.T, open func(t *testing.T) store.Store) {
	t.Helper()
	tests := map[string]func(*testing.T, store.Store){
		"get returns what put wrote":             testRoundTrip,
		"a missing object":                       testMissing,
		"create does not overwrite":              testCreate,
		"update needs the newest etag":           testUpdate,
		"list is sorted and by prefix":           testList,
		"delete is idempotent":                   testDelete,
		"many objects are deleted at once":       testDeleteAll,
		"many objects are created at once":       testCreateAll,
		"keys that leave the store are rejected": testKeys,
		"one of many creates wins":               testCreateRace,
		"no concurrent update is lost":           testUpdateRace,
		"readers see complete objects":           testWholeObjects,
		"a canceled context ends the call":       testContext,
	}

	for name, test := range tests {
		t.Run(name, func(t *testing.T) { test(t, open(t)) })
	}
}

func must[T any](v T, err error) func(*testing.T) T {
	return func(t *testing.T) T {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}

		return v
	}
}

func wantErr(t *testing.T, err, want error) {
	t.Helper()
	if !errors.Is(err, want) {
		t.Errorf("got error %v, want one that wraps %q", err, want)
	}
}

func wantBody(t *testing.T, s store.Store, want string) store.Object {
	t.Helper()
	const key = "k"
	o := must(s.Get(t.Context(), key))(t)
	if string(o.Body) != want || o.Key != key {
		t.Errorf("got %s %q, want %s %q", o.Key, o.Body, key, want)
	}

	return o
}

func testRoundTrip(t *testing.T, s store.Store) {
	t.Helper()
	for _, body := range []string{"hello", "", strings.Repeat("x", 1<<20), "\x00\xff\n"} {
		etag := must(s.Put(t.Context(), "a/b/c.yaml", []byte(body)))(t)
		o := must(s.Get(t.Context(), "a/b/c.yaml"))(t)
		if string(o.Body) != body {
			t.Errorf("%d bytes came back as %d others", len(body), len(o.Body))
		}

		if o.ETag == "" || o.ETag != etag {
			t.Errorf("Get has etag %q, Put returned %q", o.ETag, etag)
		}
	}
}

func testMissing(t *testing.T, s store.Store) {
	t.Helper()
	_, err := s.Get(t.Context(), "none")
	wantErr(t, err, store.ErrNotFound)
	keys := must(s.List(t.Context(), ""))(t)
	if len(keys) != 0 {
		t.Errorf("an empty store lists %v", keys)
	}

	must(s.Put(t.Context(), "folder/object", nil))(t)
	_, err = s.Get(t.Context(), "folder/none")
	wantErr(t, err, store.ErrNotFound)
}

func testCreate(t *testing.T, s store.Store) {
	t.Helper()
	first := must(s.Create(t.Context(), "k", []byte("one")))(t)
	_, err := s.Create(t.Context(), "k", []byte("two"))
	wantErr(t, err, store.ErrConflict)
	if o := wantBody(t, s, "one"); o.ETag != first {
		t.Errorf("etag %q, Create returned %q", o.ETag, first)
	}
}

func testUpdate(t *testing.T, s store.Store) {
	t.Helper()
	_, err := s.Update(t.Context(), "k", []byte("x"), "any")
	if !errors.Is(err, store.ErrConflict) && !errors.Is(err, store.ErrNotFound) {
		t.Errorf("update of nothing: %v", err)
	}

	first := must(s.Put(t.Context(), "k", []byte("one")))(t)
	second := must(s.Update(t.Context(), "k", []byte("two"), first))(t)
	if first == second {
		t.Errorf("the etag %q did not change with the body", first)
	}

	_, err = s.Update(t.Context(), "k", []byte("three"), first)
	wantErr(t, err, store.ErrConflict)
	wantBody(t, s, "two")
	must(s.Update(t.Context(), "k", []byte("three"), second))(t)
	wantBody(t, s, "three")
}

func testList(t *testing.T, s store.Store) {
	t.Helper()
	for _, key := range []string{"b/2", "a/1", "b/1", "b/c/d", "bb"} {
		must(s.Put(t.Context(), key, []byte(key)))(t)
	}

	for prefix, want := range map[string][]string{
		"":     {"a/1", "b/1", "b/2", "b/c/d", "bb"},
		"b/":   {"b/1", "b/2", "b/c/d"},
		"b":    {"b/1", "b/2", "b/c/d", "bb"},
		"none": nil,
	} {
		got := must(s.List(t.Context(), prefix))(t)
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("prefix %q (-want +got):\n%s", prefix, diff)
		}
	}
}

func testDelete(t *testing.T, s store.Store) {
	t.Helper()
	must(s.Put(t.Context(), "a/b/c", []byte("x")))(t)
	for range 2 {
		if err := s.Delete(t.Context(), "a/b/c"); err != nil {
			t.Fatal(err)
		}
	}

	_, err := s.Get(t.Context(), "a/b/c")
	wantErr(t, err, store.ErrNotFound)
	must(s.Create(t.Context(), "a/b", []byte("where a folder was")))(t)
}

func testDeleteAll(t *testing.T, s store.Store) {
	t.Helper()
	var keys []string
	for i := range 12 {
		keys = append(keys, fmt.Sprintf("a/%02d", i))
		must(s.Put(t.Context(), keys[i], []byte("x")))(t)
	}

	must(s.Put(t.Context(), "a/kept", []byte("x")))(t)
	for range 2 {
		if err := store.DeleteAll(t.Context(), s, keys); err != nil {
			t.Fatal(err)
		}
	}

	if err := store.DeleteAll(t.Context(), s, nil); err != nil {
		t.Errorf("delete no object: %v", err)
	}

	left := must(s.List(t.Context(), ""))(t)
	if diff := cmp.Diff([]string{"a/kept"}, left); diff != "" {
		t.Errorf("left (-want +got):\n%s", diff)
	}

	if err := store.DeleteAll(t.Context(), s, []string{"a/kept", "../up"}); err == nil {
		t.Error("a key that leaves the store was accepted")
	}
}

func testCreateAll(t *testing.T, s store.Store) {
	t.Helper()
	var objects []store.Object
	for i := range 12 {
		objects = append(objects, store.Object{Key: fmt.Sprintf("a/%02d", i), Body: fmt.Append(nil, i)})
	}

	etags := must(store.CreateAll(t.Context(), s, objects))(t)
	for i, o := range objects {
		got := must(s.Get(t.Context(), o.Key))(t)
		if string(got.Body) != string(o.Body) || got.ETag != etags[i] {
			t.Errorf("%s has %q and %s, want %q and %s", o.Key, got.Body, got.ETag, o.Body, etags[i])
		}
	}

	more := []store.Object{{Key: "a/00", Body: []byte("other")}, {Key: "b", Body: []byte("new")}}
	_, err := store.CreateAll(t.Context(), s, more)
	wantErr(t, err, store.ErrConflict)
	if o := must(s.Get(t.Context(), "a/00"))(t); string(o.Body) != "0" {
		t.Errorf("a/00 was replaced by %q", o.Body)
	}

	must(s.Get(t.Context(), "b"))(t)
}

func testKeys(t *testing.T, s store.Store) {
	t.Helper()
	for _, key := range []string{"", ".", "..", "/etc/passwd", "../up", "a/../../up", "a//b", "a/", "a\\b", "a/./b", "a\x00b", strings.Repeat("k", 2000)} {
		if _, err := s.Put(t.Context(), key, nil); err == nil {
			t.Errorf("Put accepted the key %q", key)
		}

		if _, err := s.Get(t.Context(), key); err == nil || errors.Is(err, store.ErrNotFound) {
			t.Errorf("Get accepted the key %q", key)
		}

		if err := s.Delete(t.Context(), key); err == nil {
			t.Errorf("Delete accepted the key %q", key)
		}
	}
}

func testCreateRace(t *testing.T, s store.Store) {
	t.Helper()
	var won atomic.Int32
	var winner atomic.Value
	runConcurrently(t, func(i int) error {
		body := fmt.Sprint("writer ", i)
		_, err := s.Create(t.Context(), "k", []byte(body))
		if err == nil {
			won.Add(1)
			winner.Store(body)
		} else if !errors.Is(err, store.ErrConflict) {
			return err
		}

		return nil
	})
	if won.Load() != 1 {
		t.Fatalf("%d of %d creates won", won.Load(), writerCount)
	}

	body, ok := winner.Load().(string)
	if !ok {
		t.Fatal("no create won")
	}

	wantBody(t, s, body)
}

// testUpdateRace lets every writer append one line. A writer retries after a conflict.
func testUpdateRace(t *testing.T, s store.Store) {
	t.Helper()
	must(s.Create(t.Context(), "k", nil))(t)
	runConcurrently(t, func(i int) error {
		for {
			o, err := s.Get(t.Context(), "k")
			if err != nil {
				return err
			}

			_, err = s.Update(t.Context(), "k", append(o.Body, fmt.Sprintf("%d\n", i)...), o.ETag)
			if !errors.Is(err, store.ErrConflict) {
				return err
			}
		}
	})

	o := must(s.Get(t.Context(), "k"))(t)
	if n := bytes.Count(o.Body, []byte("\n")); n != writerCount {
		t.Errorf("%d of %d updates were stored:\n%s", n, writerCount, o.Body)
	}
}

func testWholeObjects(t *testing.T, s store.Store) {
	t.Helper()
	bodies := [][]byte{bytes.Repeat([]byte("a"), 1<<16), bytes.Repeat([]byte("b"), 1<<17)}
	must(s.Put(t.Context(), "k", bodies[0]))(t)
	runConcurrently(t, func(i int) error {
		for n := range 8 {
			if i%2 == 0 {
				if _, err := s.Put(t.Context(), "k", bodies[n%2]); err != nil {
					return err
				}

				continue
			}

			o, err := s.Get(t.Context(), "k")
			if err != nil {
				return err
			}

			if !bytes.Equal(o.Body, bodies[0]) && !bytes.Equal(o.Body, bodies[1]) {
				return fmt.Errorf("a reader saw %d bytes of neither object", len(o.Body))
			}
		}

		return nil
	})
}

func testContext(t *testing.T, s store.Store) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	_, err := s.Put(ctx, "k", nil)
	wantErr(t, err, context.Canceled)
	_, err = s.List(ctx, "")
	wantErr(t, err, context.Canceled)
}

// runConcurrently calls do for all writers at the same time.
func runConcurrently(t *testing.T, do func(i int) error) {
	t.Helper()
	var wg sync.WaitGroup
	start := make(chan struct{})

	for i := range writerCount {
		wg.Go(func() {
			<-start
			if err := do(i); err != nil {
				t.Error(err)
			}
		})
	}

	close(start)
	wg.Wait()
}

// RunSealer tests the contract of a sealer. The sealer other must have another key.
func RunSealer(t *testing.T, sealer, other store.Sealer) {
	t.Helper()
	secret := []byte("a very secret key")
	bound := map[string]string{"slipway.dev/cluster": "demo", "slipway.dev/key": "ca"}
	sealed := must(sealer.Seal(t.Context(), secret, bound))(t)
	if bytes.Contains(sealed, secret) {
		t.Fatal("the sealed bytes contain the secret")
	}

	if again := must(sealer.Seal(t.Context(), secret, bound))(t); bytes.Equal(sealed, again) {
		t.Error("the same secret seals to the same bytes twice")
	}

	t.Run("opens with the same context", func(t *testing.T) {
		same := map[string]string{"slipway.dev/key": "ca", "slipway.dev/cluster": "demo"}
		got := must(sealer.Open(t.Context(), sealed, same))(t)
		if !bytes.Equal(got, secret) {
			t.Errorf("opened to %q", got)
		}
	})

	otherCluster := map[string]string{"slipway.dev/cluster": "prod", "slipway.dev/key": "ca"}
	otherPurpose := map[string]string{"slipway.dev/cluster": "demo", "slipway.dev/key": "sa"}
	partOfContext := map[string]string{"slipway.dev/cluster": "demo"}
	for _, c := range []sealerCase{
		{"another cluster's context", sealer, sealed, otherCluster},
		{"another purpose", sealer, sealed, otherPurpose},
		{"a part of the context", sealer, sealed, partOfContext},
		{"no context", sealer, sealed, nil},
		{"another key", other, sealed, bound},
		{"cut short", sealer, sealed[:len(sealed)-1], bound},
		{"no sealed bytes", sealer, []byte("{}"), bound},
		{"nothing", sealer, nil, bound},
	} {
		t.Run(c.name, func(t *testing.T) { c.checkRejected(t, secret, c.by == other) })
	}

	for _, at := range []int{len(sealed) / 4, len(sealed) / 2, len(sealed) * 9 / 10} {
		changed := bytes.Clone(sealed)
		changed[at] ^= 1
		got, err := sealer.Open(t.Context(), changed, bound)
		if err == nil && !bytes.Equal(got, secret) {
			t.Errorf("with byte %d changed it opened to something else", at)
		}
	}
}

// sealerCase is a call of Open that must fail.
type sealerCase struct {
	name   string
	by     store.Sealer
	sealed []byte
	bound  map[string]string
}

// checkRejected calls Open. AWS reports the use of another account's key as access denied, not as a
// failed decryption.
func (c sealerCase) checkRejected(t *testing.T, secret []byte, otherKey bool) {
	t.Helper()
	got, err := c.by.Open(t.Context(), c.sealed, c.bound)
	if err == nil || len(got) > 0 {
		t.Fatalf("opened to %q", got)
	}

	if !otherKey && !errors.Is(err, store.ErrDecryption) {
		t.Errorf("%v does not wrap ErrDecryption", err)
	}

	if strings.Contains(err.Error(), string(secret)) {
		t.Errorf("the error shows the secret: %v", err)
	}
}
