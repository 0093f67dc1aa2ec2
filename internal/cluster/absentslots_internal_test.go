// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"testing"
	"time"

	"filippo.io/age"

	"github.com/slipway-k8s/slipway/internal/infra/awskind"
	"github.com/slipway-k8s/slipway/internal/infra/graph"
	"github.com/slipway-k8s/slipway/internal/infra/plan"
	"github.com/slipway-k8s/slipway/internal/lib/pki"
	"github.com/slipway-k8s/slipway/internal/lib/store"
	"github.com/slipway-k8s/slipway/internal/machine/node"
)

// TestForgedAbsence: a control plane becomes smaller. Who may write to the machine store, without any right to a key, says that the slot
// that leaves has no member of etcd any more, or writes again what machines signed when it left before. Seen to succeed as long as apply
// did not look at the signature and the volume: it ended the machine, and deleted the volume, of a member that etcd still needed.
func TestForgedAbsence(t *testing.T) {
	id, err := age.GenerateX25519Identity()
	if err != nil {
		t.Fatal(err)
	}

	s := store.NewFileStore(t.TempDir())
	keys, err := pki.EnsureBundle(t.Context(), s, store.NewAgeSealer(id), "demo", time.Now())
	if err != nil {
		t.Fatal(err)
	}

	view, err := store.OpenView(t.Context(), s, "demo/")
	if err != nil {
		t.Fatal(err)
	}

	volume := awskind.Volume{Tags: map[string]string{awskind.TagSlot: "c"}}
	shrunk, findings := plan.Compute(
		&graph.Graph{},
		[]plan.ActualResource{{Addr: "volume/etcd-c", ID: "vol-2", Resource: volume}},
		plan.Options{DestroyData: true},
	)
	if err := findings.Err(); err != nil {
		t.Fatal(err)
	}

	key := node.EtcdAbsentKey("demo", "c")
	sign := func(volume string, all ...string) string {
		t.Helper()
		record := map[string]any{"absent": true, "volume": volume, "volumes": all}
		body, err := node.SignRecord(key, record, keys.CAs[pki.KubernetesCA].Key())
		if err != nil {
			t.Fatal(err)
		}

		return string(body)
	}

	session := &Session{Name: "demo"}
	for name, c := range map[string]struct {
		body string
		plan plan.Plan
		want bool
	}{
		"forged":                                           {`{"absent":true,"volume":"vol-2"}`, shrunk, false},
		"by the leader's agent":                            {sign("vol-2"), shrunk, true},
		"of when it left before":                           {sign("vol-1"), shrunk, false},
		"of an earlier version":                            {sign(""), shrunk, false},
		"its volume is gone already":                       {sign("vol-2"), plan.Plan{}, true},
		"its machine never joined":                         {sign("", "vol-2"), shrunk, true},
		"its volume was lost, and the new one has no data": {sign("vol-1", "vol-2"), shrunk, true},
	} {
		if _, err := s.Put(t.Context(), key, []byte(c.body)); err != nil {
			t.Fatal(err)
		}

		d := &Desired{View: view, MachineStore: s, Plan: c.plan}
		if got, err := session.IsSlotAbsent(t.Context(), d, "c"); err != nil || got != c.want {
			t.Errorf("%s: absent %t, %v; want %t", name, got, err, c.want)
		}
	}
}
