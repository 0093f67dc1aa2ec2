// SPDX-License-Identifier: Apache-2.0

package etcdadmin

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/slipway-k8s/slipway/internal/cluster"
	"github.com/slipway-k8s/slipway/internal/lib/pki"
	"github.com/slipway-k8s/slipway/internal/lib/pki/pkitest"
	"github.com/slipway-k8s/slipway/internal/lib/store"
	"github.com/slipway-k8s/slipway/internal/machine/backup"
	"github.com/slipway-k8s/slipway/internal/machine/etcd"
	"github.com/slipway-k8s/slipway/internal/machine/node"
)

// TestForgedRestored: who may write to the machine store, without any right to a key, says that all members have the data of a restoration.
// Seen to succeed as long as these records were not signed: 'slipway etcd restore' did not wait for the machines, and a rerun did not
// continue the restoration but began another one.
func TestForgedRestored(t *testing.T) {
	ca := pkitest.NewKubernetesCA(t, time.Now())
	s := store.NewFileStore(t.TempDir())
	admin := &Admin{
		env:       &cluster.Env{},
		name:      "demo",
		archive:   backup.Archive{Store: s, Cluster: "demo"},
		authority: func(context.Context) (pki.CA, error) { return ca, nil },
	}
	put := func(key string, record any, isSigned bool) {
		t.Helper()
		body := []byte(`{"volume":"vol-1","generation":2}`)
		if isSigned {
			var err error
			if body, err = node.SignRecord(key, record, ca.Key()); err != nil {
				t.Fatal(err)
			}
		}

		if _, err := s.Put(t.Context(), key, body); err != nil {
			t.Fatal(err)
		}
	}

	put(node.EtcdGenerationKey("demo", 2), etcd.Generation{Number: 2, Backup: "b1", Slot: "a"}, true)
	for _, slot := range []string{"a", "b"} {
		put(node.EtcdRestoredKey("demo", 2, slot), nil, false)
		put(node.EtcdJoinedKey("demo", slot), nil, false)
	}

	_, restored, err := admin.lastGeneration(t.Context())
	if err != nil || len(restored) > 0 {
		t.Errorf("restored %v, %v", restored, err)
	}

	plan := RestorePlan{Cluster: "demo", Generation: 2, Slot: "a", Members: []Member{{Slot: "a", Name: "etcd-a"}, {Slot: "b", Name: "etcd-b"}}}
	missing, err := admin.missingMembers(t.Context(), plan)
	text := strings.Join(missing, "; ")
	if err != nil || len(missing) != 2 || !strings.Contains(text, "etcd/restored/000002/a") || !strings.Contains(text, "not signed") {
		t.Errorf("it waits for %q, %v", missing, err)
	}

	put(node.EtcdRestoredKey("demo", 2, "a"), map[string]string{"volume": "vol-1"}, true)
	put(node.EtcdJoinedKey("demo", "b"), map[string]any{"volume": "vol-1", "generation": 2}, true)
	if _, restored, err := admin.lastGeneration(t.Context()); err != nil || len(restored) != 2 {
		t.Errorf("signed by machines: restored %v, %v", restored, err)
	}
}
