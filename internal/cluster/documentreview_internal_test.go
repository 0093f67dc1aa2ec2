// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"context"
	"encoding/json"
	"strings"
	"testing"
	"time"

	"github.com/slipway-k8s/slipway/internal/cluster/clusterstate"
	"github.com/slipway-k8s/slipway/internal/infra/plan"
	"github.com/slipway-k8s/slipway/internal/lib/pki"
	"github.com/slipway-k8s/slipway/internal/lib/store"
)

const reviewedCluster = `apiVersion: slipway.dev/v1alpha1
kind: Cluster
metadata: {name: demo}
spec: {cloudProvider: {aws: {region: us-east-1}}}
`

const reviewedGroup = `apiVersion: slipway.dev/v1alpha1
kind: InstanceGroup
metadata: {name: workers, labels: {slipway.dev/cluster: demo}}
spec: {role: Worker, minSize: 1, maxSize: 2}
`

// swappingStore has another body of one object when it is read first.
type swappingStore struct {
	store.Store

	key   string
	first []byte
	reads int
}

func (s *swappingStore) Get(ctx context.Context, key string) (store.Object, error) {
	o, err := s.Store.Get(ctx, key)
	if key == s.key {
		s.reads++
		if s.reads == 1 {
			o.Body = s.first
		}
	}

	return o, err
}

// reviewedStores has one state store.
type reviewedStores struct {
	Stores

	state store.Store
}

func (s reviewedStores) State(context.Context) (store.Store, store.Sealer, error) {
	return s.state, nil, nil
}

// TestReviewShowsWhatItHashes: somebody replaces a document while it is being reviewed. The fields that are shown are those
// of the document whose hash is shown and signed.
func TestReviewShowsWhatItHashes(t *testing.T) {
	ctx := t.Context()
	s := store.NewFileStore(t.TempDir())
	public := pki.PublicBundle{CAs: map[string]string{}}
	for _, name := range pki.CANames() {
		key, err := pki.NewKey(name)
		if err != nil {
			t.Fatal(err)
		}

		ca, err := pki.NewCA(name, "demo", key, time.Now())
		if err != nil {
			t.Fatal(err)
		}

		public.CAs[name] = string(ca.CertsPEM())
	}

	certs, err := json.Marshal(public)
	if err != nil {
		t.Fatal(err)
	}

	applied, err := plan.LastApplied{Manifests: reviewedCluster + "---\n" + reviewedGroup}.Encode()
	if err != nil {
		t.Fatal(err)
	}

	for key, body := range map[string][]byte{
		"demo/cluster.yaml":                 []byte(reviewedCluster),
		"demo/instancegroups/workers.yaml":  []byte(reviewedGroup),
		"demo/pki/certs.json":               certs,
		clusterstate.LastAppliedKey("demo"): applied,
	} {
		if _, err := s.Put(ctx, key, body); err != nil {
			t.Fatal(err)
		}
	}

	other := strings.Replace(reviewedGroup, "maxSize: 2", "maxSize: 9", 1)
	swapping := &swappingStore{Store: s, key: "demo/instancegroups/workers.yaml", first: []byte(other)}
	env := &Env{Stores: reviewedStores{state: swapping}}
	review, err := env.ReviewDocuments(ctx, "demo")
	if err != nil {
		t.Fatal(err)
	}

	if sum := review.found[swapping.key]; sum != hashOf([]byte(other)) || !strings.Contains(strings.Join(review.Changes, "\n"), sum) {
		t.Errorf("the changes are\n%s", strings.Join(review.Changes, "\n"))
	}

	if fields := strings.Join(review.Fields, "\n"); !strings.Contains(fields, "maxSize") || !strings.Contains(fields, "9") {
		t.Errorf("the document with this hash has maxSize 9, and the fields are %q", fields)
	}
}
