// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"context"
	"io"
	"slices"
	"testing"
	"time"

	"github.com/slipway-k8s/slipway/internal/lib/store"
)

// lateStore gets one more object after it was first listed, as from a machine that is being born while it is deleted.
type lateStore struct {
	store.Store
	late   string
	order  []string
	listed bool
}

func (s *lateStore) List(ctx context.Context, prefix string) ([]string, error) {
	keys, err := s.Store.List(ctx, prefix)
	if !s.listed {
		s.listed = true
		_, err = s.Put(ctx, s.late, []byte("{}"))
	}
	return keys, err
}

func (s *lateStore) Delete(ctx context.Context, key string) error {
	s.order = append(s.order, key)
	return s.Store.Delete(ctx, key)
}

// TestDestroyLeavesNoMarker says that what machines wrote while they were going goes too: an etcd marker that is left
// would keep a later cluster of this name from ever being born.
func TestDestroyLeavesNoMarker(t *testing.T) {
	s := &lateStore{Store: store.NewFileStore(t.TempDir()), late: "demo/machine/etcd/initialized"}
	for _, key := range []string{"demo/cluster.yaml", "demo/machine/agent/1", "demo2/cluster.yaml"} {
		if _, err := s.Put(t.Context(), key, []byte("x")); err != nil {
			t.Fatal(err)
		}
	}
	keys, err := s.List(t.Context(), "demo/")
	if err != nil {
		t.Fatal(err)
	}
	slices.Reverse(keys) // the manifest last
	a := &app{yes: true, Env: Env{Stdout: io.Discard, Stderr: io.Discard, Now: time.Now, Getenv: func(string) string { return "" }}}
	tg := &clusterSession{app: a, name: "demo"}
	if err := tg.destroyResources(t.Context(), &desiredState{destroy: true, inState: true, deletion: deletionSet{objects: []storeObjects{{store: s, keys: keys}}}}); err != nil {
		t.Fatal(err)
	}
	left, err := s.List(t.Context(), "")
	if err != nil || !slices.Equal(left, []string{"demo2/cluster.yaml"}) {
		t.Errorf("left %v, %v", left, err)
	}
	if last := s.order[len(s.order)-1]; last != "demo/cluster.yaml" {
		t.Errorf("%s went last, not the manifest: %v", last, s.order)
	}
}
