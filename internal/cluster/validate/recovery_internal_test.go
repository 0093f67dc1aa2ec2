// SPDX-License-Identifier: Apache-2.0

package validate

import (
	"encoding/json"
	"strings"
	"testing"
	"time"

	"github.com/slipway-k8s/slipway/internal/lib/store"
	"github.com/slipway-k8s/slipway/internal/machine/etcd"
	"github.com/slipway-k8s/slipway/internal/machine/node"
)

// TestReadRecovery reads the reports of machines and the newest generation.
func TestReadRecovery(t *testing.T) {
	s := store.NewFileStore(t.TempDir())
	write := func(key string, value any) {
		t.Helper()
		body, err := json.Marshal(value)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := s.Put(t.Context(), key, body); err != nil {
			t.Fatal(err)
		}
	}
	got, err := readRecovery(t.Context(), s, "demo")
	if err != nil || len(got.Waiting) > 0 || got.Last != nil {
		t.Fatalf("an empty store: %+v, %v", got, err)
	}

	at := time.Date(2026, 11, 25, 1, 0, 0, 0, time.UTC)
	write(node.EtcdQuorumReportKey("demo", "a"), etcd.QuorumReport{Slot: "a", Step: etcd.RecoverManual, LostData: true, LostAt: at, Reason: "why"})
	write(node.EtcdQuorumReportKey("demo", "b"), etcd.QuorumReport{Slot: "b", Step: etcd.RecoverNothing, Quorum: true})
	write(node.EtcdQuorumReportKey("demo", "c"), etcd.QuorumReport{Slot: "c", Step: etcd.RecoverNothing})
	write(node.EtcdGenerationKey("demo", 2), etcd.Generation{Number: 2, Backup: "b2", Recovery: &etcd.Recovery{}})
	write(node.EtcdGenerationKey("demo", 3), etcd.Generation{Number: 3, Backup: "b3", Slot: "a", CreatedAt: at, Recovery: &etcd.Recovery{
		Survivor: true, Revision: 7, Lost: []string{"b", "c"},
	}})
	if got, err = readRecovery(t.Context(), s, "demo"); err != nil {
		t.Fatal(err)
	}
	if len(got.Waiting) != 1 || got.Waiting[0].Slot != "a" || !got.Waiting[0].Manual || !got.Waiting[0].LostData || !got.Waiting[0].LostAt.Equal(at) {
		t.Errorf("%+v", got.Waiting)
	}
	if l := got.Last; l == nil || l.Backup != "b3" || !l.At.Equal(at) || !strings.Contains(l.Loss, "after revision 7 that only the lost members etcd-b, etcd-c had") {
		t.Errorf("%+v", l)
	}

	write(node.EtcdGenerationKey("demo", 4), etcd.Generation{Number: 4, Backup: "b4"}) // an operator restored
	if got, err = readRecovery(t.Context(), s, "demo"); err != nil || got.Last != nil {
		t.Errorf("%+v, %v", got.Last, err)
	}
}
