// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/slipway-k8s/slipway/internal/lib/store"
	"github.com/slipway-k8s/slipway/internal/machine/backup"
	"github.com/slipway-k8s/slipway/internal/machine/etcd"
	"github.com/slipway-k8s/slipway/internal/machine/node"
)

// lostRecovery is the recovery of a machine whose cluster has lost the volumes of all members, and has a verified backup.
type lostRecovery struct {
	*etcdRecovery
	t     *testing.T
	store store.Store
	clock *time.Time
}

// newLostRecovery returns the recovery of slot a of the slots a, b and c. The given slots have had members.
func newLostRecovery(t *testing.T, joined ...string) lostRecovery {
	t.Helper()
	r, s, clock := recoveryWithoutEtcd(t)
	if err := r.member.agent.Root.MakeDir(etcd.DataMount, 0o700, 0); err != nil {
		t.Fatal(err)
	}

	for _, slot := range joined {
		if _, err := s.Put(t.Context(), node.EtcdJoinedKey("demo", slot), []byte(`{"volume":"vol-of-`+slot+`"}`)); err != nil {
			t.Fatal(err)
		}
	}

	id := backup.NewID(*clock, "good")
	err := r.backup.archive.Commit(t.Context(), backup.Metadata{
		FormatVersion: backup.FormatVersion,
		ID:            id,
		Contents:      backup.Contents{Revision: 5},
	})
	if err != nil {
		t.Fatal(err)
	}

	if err := r.backup.archive.WriteVerification(t.Context(), backup.Verification{ID: id, OK: true}); err != nil {
		t.Fatal(err)
	}

	return lostRecovery{r, t, s, clock}
}

// look looks for longer than the policy waits. It returns the reason of the last decision, and whether a generation began.
func (r lostRecovery) look() (reason string, began bool) {
	r.t.Helper()
	for range 20 {
		if err := r.run(r.t.Context()); err != nil {
			r.t.Fatal(err)
		}
		*r.clock = r.clock.Add(recoveryInterval)
	}

	keys, err := r.store.List(r.t.Context(), node.EtcdGenerationPrefix("demo"))
	if err != nil {
		r.t.Fatal(err)
	}

	return r.memory.own.Reason, len(keys) > 0
}

// TestRecoveryWaitsForSlots: a machine of three slots that has not followed the growth to five counted two lost members as a majority,
// and recovered its own data although the members of the new slots had newer data.
func TestRecoveryWaitsForSlots(t *testing.T) {
	r := newLostRecovery(t, "a", "b", "c")
	r.checkSlots = func(context.Context) error { return newNotReadyError("this machine does not have the current slots") }
	if reason, began := r.look(); began || reason != "this machine does not have the current slots" {
		t.Errorf("with former slots: %q, a generation began: %t", reason, began)
	}

	// The others must hear of it: without a report they would wait for it, and nobody would know why.
	before := r.memory.own.Count
	r.checkSlots = func(context.Context) error { return errors.New("no route to the store") }
	if reason, began := r.look(); began || reason != "no route to the store" || r.memory.own.Count <= before {
		t.Errorf("without the revision: %q, a generation began: %t, %d reports", reason, began, r.memory.own.Count-before)
	}

	r.checkSlots = func(context.Context) error { return nil }
	if reason, began := r.look(); !began {
		t.Errorf("with the current slots: %q", reason)
	}
}

// TestFormerMembersAreAsked: before a slot restores, its agent asks the members that have not had data of the new generation, and the
// others when it looks for a member to join.
func TestFormerMembersAreAsked(t *testing.T) {
	r := newLostRecovery(t)
	f := etcd.Facts{Slot: "a", Joined: []string{"b"}, Generation: &etcd.Generation{Number: 2, Slot: "a"}}
	for name, c := range map[string]struct {
		manager etcd.Manager
		want    string
	}{
		"former":     {r.member.formerManager(f), "c"},
		"of the new": {r.member.managerOf(f), "a b"},
	} {
		var slots []string
		for _, p := range c.manager.Peers {
			slots = append(slots, p.Slot)
		}
		if got := strings.Join(slots, " "); got != c.want {
			t.Errorf("%s: asks %s, want %s", name, got, c.want)
		}
	}
}

// TestLeavingSlotsCount: the member of a slot that leaves the control plane counts until it was removed. Without it, two of three
// lost members were a majority, although two of the five that vote had data.
func TestLeavingSlotsCount(t *testing.T) {
	r := newLostRecovery(t, "a", "b", "c", "d", "e")
	volumes := r.member.agent.EC2.(*fakeEC2)
	volumes.volumes = append(volumes.volumes, slotVolume("vol-of-d", "d", "z", "i-d", time.Now()))
	if reason, began := r.look(); began || !strings.Contains(reason, "waiting for a report of slot d, whose volume vol-of-d may have newer data") {
		t.Errorf("while the member of d may have data: %q, a generation began: %t", reason, began)
	}

	if err := r.member.writeAbsent(t.Context(), "d", true); err != nil {
		t.Fatal(err)
	}
	if reason, began := r.look(); !began {
		t.Errorf("without that member: %q", reason)
	}
}
