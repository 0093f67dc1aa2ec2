// SPDX-License-Identifier: Apache-2.0

package destroy

import (
	"context"
	"slices"
	"testing"
	"time"

	"github.com/slipway-k8s/slipway/internal/cluster"
	"github.com/slipway-k8s/slipway/internal/infra/aws/transport"
	"github.com/slipway-k8s/slipway/internal/lib/store"
)

// lateStore gets one more object after it was first listed, as if a machine that boots had written it.
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

// TestDestroyLeavesNoMarker: objects that machines wrote during the deletion are deleted, too. A remaining
// etcd marker would prevent etcd of a later cluster of this name from being bootstrapped.
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
	d := &Destruction{
		session: &cluster.Session{Env: &cluster.Env{Now: time.Now, Calls: &transport.CallLimiter{}}, Name: "demo"},
		inState: true,
		Review: cluster.Review{
			Kind:     cluster.ReviewDestroy,
			Destroy:  true,
			Deletion: cluster.Deletion{Objects: []cluster.ObjectSet{{Store: s, Keys: keys}}},
		},
	}
	if outcome, err := d.Run(t.Context(), nil, s); err != nil || outcome != Deleted {
		t.Fatal(outcome, err)
	}
	left, err := s.List(t.Context(), "")
	if err != nil || !slices.Equal(left, []string{"demo2/cluster.yaml"}) {
		t.Errorf("left %v, %v", left, err)
	}
	if last := s.order[len(s.order)-1]; last != "demo/cluster.yaml" {
		t.Errorf("%s went last, not the manifest: %v", last, s.order)
	}
}
