// SPDX-License-Identifier: Apache-2.0

package etcd_test

import (
	"strings"
	"testing"
	"time"

	"github.com/slipway-k8s/slipway/internal/machine/etcd"
)

// survivor is a slot whose machine reports data up to an entry of its log.
func survivor(slot string, generation int, term, index uint64) etcd.SlotState {
	return etcd.SlotState{Slot: slot, Volumes: []string{"vol-" + slot}, Report: &etcd.QuorumReport{
		Slot: slot, Volume: "vol-" + slot, Generation: generation, Log: etcd.LogEnd{Term: term, Index: index},
	}}
}

// joining is a slot whose machine reports data of a member that was not promoted yet.
func joining(slot string, term, index uint64) etcd.SlotState {
	s := survivor(slot, 1, term, index)
	s.Report.Learner = true
	return s
}

// removed is slot c, whose machine reports data of a member that was removed, as the machine of the slot says that knows it.
func removed(index uint64, knows etcd.SlotState) etcd.SlotState {
	s := survivor("c", 1, 2, index)
	s.Report.Member = 77
	knows.Report.Removed = []uint64{66, 77}
	return s
}

// unlisted is a slot whose machine reports data on a volume that EC2 does not list.
func unlisted(slot string, term, index uint64) etcd.SlotState {
	s := survivor(slot, 1, term, index)
	s.Volumes = nil
	return s
}

// broken is a slot whose machine reports data that it has in memory, of a volume that was deleted.
func broken(slot string, term, index uint64) etcd.SlotState {
	s := unlisted(slot, term, index)
	s.Report.Broken = true
	return s
}

// silent is a slot with a volume of which no machine reports what it holds.
func silent(slot string) etcd.SlotState {
	return etcd.SlotState{Slot: slot, Volumes: []string{"vol-" + slot}}
}

func gone(slot string) etcd.SlotState { return etcd.SlotState{Slot: slot} }

// TestDecideRecovery is the decision table.
func TestDecideRecovery(t *testing.T) {
	verified := func(id string, generation int, term uint64, revision int64) *etcd.RecoveryBackup {
		return &etcd.RecoveryBackup{ID: id, Position: etcd.Position{Generation: generation, Term: term, Revision: revision}, Verified: true}
	}
	for name, c := range map[string]struct {
		slots  []etcd.SlotState
		change func(*etcd.RecoveryFacts)
		want   etcd.RecoveryStepType
		reason string
	}{
		"etcd works": {
			[]etcd.SlotState{survivor("a", 1, 2, 9), gone("b"), gone("c")},
			func(f *etcd.RecoveryFacts) { f.Quorum = true },
			etcd.RecoverNothing, "has a quorum",
		},
		"never bootstrapped": {
			[]etcd.SlotState{survivor("a", 0, 0, 0), gone("b"), gone("c")},
			func(f *etcd.RecoveryFacts) { f.Bootstrapped = false },
			etcd.RecoverNothing, "never bootstrapped",
		},
		"a majority of the volumes exists": {
			[]etcd.SlotState{survivor("a", 1, 2, 9), silent("b"), gone("c")},
			nil, etcd.RecoverWait, "2 of 3 volumes may have data (a, b)",
		},
		"all volumes exist": {
			[]etcd.SlotState{survivor("a", 1, 2, 9), silent("b"), silent("c")},
			nil, etcd.RecoverWait, "etcd works again when",
		},
		"another machine has a quorum": {
			[]etcd.SlotState{{Slot: "a", Volumes: []string{"v"}, Report: &etcd.QuorumReport{Volume: "v", Quorum: true, Generation: 1}}, survivor("b", 0, 0, 0), gone("c")},
			func(f *etcd.RecoveryFacts) { f.Slot = "b" },
			etcd.RecoverWait, "slot a reports a quorum",
		},
		"an operator recovers": {
			[]etcd.SlotState{survivor("a", 1, 2, 9), gone("b"), gone("c")},
			func(f *etcd.RecoveryFacts) { f.Policy.Automatic = false },
			etcd.RecoverManual, "the data of 2 of 3 members is lost (b, c): spec.etcd.quorumLoss.recovery is Manual",
		},
		"too early": {
			[]etcd.SlotState{survivor("a", 1, 2, 9), gone("b"), gone("c")},
			func(f *etcd.RecoveryFacts) { f.LostFor = 9 * time.Minute },
			etcd.RecoverWait, "missing for 10m0s",
		},
		"the volumes disappeared just now": {
			[]etcd.SlotState{survivor("a", 1, 2, 9), gone("b"), gone("c")},
			func(f *etcd.RecoveryFacts) { f.SeenFor = 59 * time.Second },
			etcd.RecoverWait, "missing for 10m0s",
		},
		"the survivor may work elsewhere": {
			[]etcd.SlotState{silent("a"), survivor("b", 0, 0, 0), gone("c")},
			func(f *etcd.RecoveryFacts) { f.Slot = "b" },
			etcd.RecoverWait, "waiting for a report of slot a",
		},
		"the survivor saves its data": {
			[]etcd.SlotState{survivor("a", 1, 2, 9), gone("b"), gone("c")},
			nil, etcd.RecoverSave, "newest data",
		},
		"EC2 does not list volumes that machines have mounted": {
			[]etcd.SlotState{survivor("a", 1, 2, 90), unlisted("b", 3, 500), unlisted("c", 3, 500)},
			nil, etcd.RecoverWait, "3 of 3 volumes may have data (a, b, c)",
		},
		"volumes that EC2 does not list are broken": {
			[]etcd.SlotState{survivor("a", 1, 2, 90), broken("b", 3, 500), broken("c", 3, 500)},
			nil, etcd.RecoverSave, "the data of 2 of 3 members is lost (b, c); this machine has the newest data",
		},
		"EC2 does not list the newest survivor's volume": {
			[]etcd.SlotState{survivor("a", 1, 2, 90), unlisted("b", 3, 500), gone("c"), gone("d"), gone("e")},
			nil, etcd.RecoverWait, "slot b has the newest data",
		},
		"the data of a removed member is no majority": {
			func() []etcd.SlotState {
				b := survivor("b", 1, 2, 9)
				return []etcd.SlotState{gone("a"), b, removed(7, b)}
			}(),
			func(f *etcd.RecoveryFacts) { f.Slot = "b" },
			etcd.RecoverSave, "the data of 1 of 2 members is lost (a); this machine has the newest data",
		},
		"both that are left have data": {
			func() []etcd.SlotState {
				b := survivor("b", 1, 2, 9)
				return []etcd.SlotState{survivor("a", 1, 2, 9), b, removed(7, b)}
			}(),
			func(f *etcd.RecoveryFacts) { f.Slot = "b" },
			etcd.RecoverWait, "2 of 2 volumes may have data (a, b)",
		},
		"the removed member has the newest data": {
			func() []etcd.SlotState {
				b := survivor("b", 1, 2, 9)
				return []etcd.SlotState{gone("a"), b, removed(10, b)}
			}(),
			func(f *etcd.RecoveryFacts) { f.Slot = "b" },
			etcd.RecoverManual, "the newest data is that of slot c, whose member was removed",
		},
		"the removed member has data that is as new": {
			func() []etcd.SlotState {
				b := survivor("b", 1, 2, 9)
				return []etcd.SlotState{gone("a"), removed(9, b), b}
			}(),
			func(f *etcd.RecoveryFacts) { f.Slot = "b" },
			etcd.RecoverSave, "this machine has the newest data",
		},
		"another member was removed": {
			[]etcd.SlotState{gone("a"), survivor("b", 1, 2, 9), removed(7, survivor("d", 1, 2, 8))},
			func(f *etcd.RecoveryFacts) { f.Slot = "b" },
			etcd.RecoverWait, "2 of 3 volumes may have data (b, c)",
		},
		"slots without a member have lost none": {
			[]etcd.SlotState{survivor("a", 1, 2, 9), {Slot: "b", NoVote: true}, {Slot: "c", NoVote: true}},
			nil, etcd.RecoverWait, "1 of 1 volumes may have data (a)",
		},
		"a slot without a member has a volume that is not known": {
			[]etcd.SlotState{gone("a"), survivor("b", 1, 2, 9), {Slot: "c", NoVote: true, Volumes: []string{"vol-c"}}},
			nil, etcd.RecoverWait, "2 of 3 volumes may have data (b, c)",
		},
		"a learner's data is no majority": {
			[]etcd.SlotState{survivor("a", 1, 2, 9), joining("b", 2, 9), gone("c")},
			nil, etcd.RecoverSave, "the data of 2 of 3 members is lost (b, c), b was a learner; this machine has the newest data",
		},
		"a learner's data is not the newest": {
			[]etcd.SlotState{survivor("a", 1, 2, 9), joining("b", 3, 10), gone("c")},
			nil, etcd.RecoverSave, "this machine has the newest data",
		},
		"a learner's log cannot be read": {
			[]etcd.SlotState{survivor("a", 1, 2, 9), {Slot: "b", Volumes: []string{"v"}, Report: &etcd.QuorumReport{
				Slot: "b", Volume: "v", Generation: 1, Learner: true, Problem: "no entry",
			}}, gone("c")},
			nil, etcd.RecoverSave, "this machine has the newest data",
		},
		"the learner has another volume too": {
			[]etcd.SlotState{survivor("a", 1, 2, 9), {
				Slot: "b", Volumes: []string{"vol-old", "vol-b"}, Report: joining("b", 2, 9).Report,
			}, gone("c")},
			nil, etcd.RecoverWait, "2 of 3 volumes may have data (a, b)",
		},
		"two voters and a learner are left": {
			[]etcd.SlotState{survivor("a", 1, 2, 9), joining("b", 2, 9), silent("c")},
			nil, etcd.RecoverWait, "2 of 3 volumes may have data (a, c)",
		},
		"only a learner is left": {
			[]etcd.SlotState{joining("a", 2, 9), gone("b"), gone("c")},
			func(f *etcd.RecoveryFacts) { f.Backup = verified("b1", 1, 2, 5) },
			etcd.RecoverBegin, "restoring backup b1",
		},
		"only a learner is left, and no backup": {
			[]etcd.SlotState{joining("a", 2, 9), gone("b"), gone("c")},
			nil, etcd.RecoverManual, "(a, b, c), a was a learner, and there is no usable backup",
		},
		"its backup is tested": {
			[]etcd.SlotState{survivor("a", 1, 2, 9), gone("b"), gone("c")},
			func(f *etcd.RecoveryFacts) {
				f.Saved = &etcd.SavedData{ID: "s"}
				f.Backup = &etcd.RecoveryBackup{ID: "s"}
			},
			etcd.RecoverVerify, "testing backup s",
		},
		"its backup is restored": {
			[]etcd.SlotState{survivor("a", 1, 2, 9), gone("b"), gone("c")},
			func(f *etcd.RecoveryFacts) {
				f.Saved = &etcd.SavedData{ID: "s"}
				f.Backup = verified("s", 1, 2, 9)
			},
			etcd.RecoverBegin, "restoring backup s",
		},
		"another backup is newer than the survivor": {
			[]etcd.SlotState{survivor("a", 1, 2, 9), gone("b"), gone("c")},
			func(f *etcd.RecoveryFacts) {
				f.Saved = &etcd.SavedData{ID: "s"}
				f.Backup = verified("newer", 1, 3, 7)
			},
			etcd.RecoverBegin, "restoring backup newer",
		},
		"the survivor's data is damaged": {
			[]etcd.SlotState{survivor("a", 1, 2, 9), gone("b"), gone("c")},
			func(f *etcd.RecoveryFacts) {
				f.Saved = &etcd.SavedData{ID: "s", Problem: "bad page"}
				f.Backup = verified("older", 1, 1, 1)
			},
			etcd.RecoverManual, "cannot be restored (backup s): bad page",
		},
		"the survivor's log is damaged": {
			[]etcd.SlotState{{Slot: "a", Volumes: []string{"v"}, Report: &etcd.QuorumReport{Slot: "a", Volume: "v", Generation: 1, Problem: "no entry"}}, gone("b"), gone("c")},
			func(f *etcd.RecoveryFacts) { f.Backup = verified("older", 1, 1, 1) },
			etcd.RecoverManual, "cannot be read: no entry",
		},
		"the other survivor has a later term": {
			[]etcd.SlotState{survivor("a", 1, 2, 90), survivor("b", 1, 3, 50), gone("c"), gone("d"), gone("e")},
			nil, etcd.RecoverWait, "slot b has the newest data",
		},
		"no data survived": {
			[]etcd.SlotState{survivor("a", 0, 0, 0), gone("b"), gone("c")},
			func(f *etcd.RecoveryFacts) { f.Backup = verified("b1", 1, 2, 5) },
			etcd.RecoverBegin, "restoring backup b1",
		},
		"no data survived, and the backup was never tested": {
			[]etcd.SlotState{survivor("a", 0, 0, 0), gone("b"), gone("c")},
			func(f *etcd.RecoveryFacts) { f.Backup = &etcd.RecoveryBackup{ID: "b1"} },
			etcd.RecoverVerify, "testing backup b1",
		},
		"no data survived, and another machine restores": {
			[]etcd.SlotState{survivor("a", 0, 0, 0), survivor("b", 0, 0, 0), gone("c")},
			func(f *etcd.RecoveryFacts) {
				f.Slot = "b"
				f.Backup = verified("b1", 1, 2, 5)
			},
			etcd.RecoverWait, "slot a restores backup b1",
		},
		"nothing is left": {
			[]etcd.SlotState{survivor("a", 0, 0, 0), gone("b"), gone("c")},
			nil, etcd.RecoverManual, "no usable backup",
		},
		"data of an earlier generation does not count": {
			[]etcd.SlotState{survivor("a", 1, 2, 9), gone("b"), gone("c")},
			func(f *etcd.RecoveryFacts) {
				f.Generation = 2
				f.Backup = verified("b1", 1, 2, 5)
			},
			etcd.RecoverBegin, "restoring backup b1",
		},
		"a restoration runs": {
			[]etcd.SlotState{survivor("a", 0, 0, 0), survivor("b", 0, 0, 0), gone("c")},
			func(f *etcd.RecoveryFacts) {
				f.Generation = 2
				f.Restoring = "b"
				f.Backup = verified("b1", 1, 2, 5)
			},
			etcd.RecoverWait, "slot b restores the backup of generation 2",
		},
		"the machine that restored is lost": {
			[]etcd.SlotState{survivor("a", 0, 0, 0), gone("b"), gone("c")},
			func(f *etcd.RecoveryFacts) {
				f.Generation = 2
				f.Restoring = "b"
				f.Backup = verified("b1", 1, 2, 5)
			},
			etcd.RecoverBegin, "restoring backup b1",
		},
		"a second volume of the slot may have the data": {
			[]etcd.SlotState{{Slot: "a", Volumes: []string{"vol-old", "vol-a"}, Report: survivor("a", 0, 0, 0).Report}, survivor("b", 0, 0, 0), gone("c")},
			func(f *etcd.RecoveryFacts) {
				f.Slot = "b"
				f.Backup = verified("b1", 1, 2, 5)
			},
			etcd.RecoverWait, "waiting for a report of slot a, whose volume vol-old may have newer data",
		},
		"the only volume is lost": {
			[]etcd.SlotState{survivor("a", 0, 0, 0)},
			func(f *etcd.RecoveryFacts) { f.Backup = verified("b1", 1, 2, 5) },
			etcd.RecoverBegin, "restoring backup b1",
		},
		"the only volume exists": {
			[]etcd.SlotState{survivor("a", 1, 2, 9)},
			nil, etcd.RecoverWait, "etcd works again when",
		},
	} {
		f := etcd.RecoveryFacts{
			Policy:       etcd.RecoveryPolicy{Automatic: true, After: 10 * time.Minute},
			Bootstrapped: true,
			LostFor:      10 * time.Minute,
			SeenFor:      time.Minute,
			Slot:         "a",
			Slots:        c.slots,
			Generation:   1,
		}
		if c.change != nil {
			c.change(&f)
		}
		if got := etcd.DecideRecovery(f); got.Type != c.want || !strings.Contains(got.Reason, c.reason) {
			t.Errorf("%s: %+v, want %s: %s", name, got, c.want, c.reason)
		}
	}
}

// TestRecoveryIsDue: the step says when another one follows.
func TestRecoveryIsDue(t *testing.T) {
	f := etcd.RecoveryFacts{
		Policy:       etcd.RecoveryPolicy{Automatic: true, After: 10 * time.Minute},
		Bootstrapped: true,
		LostFor:      3 * time.Minute,
		Slot:         "a",
		Slots:        []etcd.SlotState{survivor("a", 1, 2, 9), gone("b"), gone("c")},
		Generation:   1,
	}
	if got := etcd.DecideRecovery(f).Due; got != 7*time.Minute {
		t.Errorf("due in %s", got)
	}
	f.LostFor = 20 * time.Minute
	f.SeenFor = 20 * time.Second
	if got := etcd.DecideRecovery(f).Due; got != 40*time.Second {
		t.Errorf("due in %s after the volumes disappeared", got)
	}
}

// TestDescribeLoss: people learn which revisions and which time are lost.
func TestDescribeLoss(t *testing.T) {
	at := time.Date(2026, 11, 25, 1, 2, 3, 0, time.UTC)
	r := etcd.Recovery{LostAt: at.Add(time.Hour), Lost: []string{"a", "b"}, Revision: 42, TakenAt: at}
	if got, want := r.DescribeLoss(), "writes after revision 42, from 2026-11-25T01:02:03Z to 2026-11-25T02:02:03Z"; got != want {
		t.Errorf("%q, want %q", got, want)
	}
	r.Survivor = true
	if got, want := r.DescribeLoss(), "writes after revision 42 that only the lost members etcd-a, etcd-b had"; got != want {
		t.Errorf("%q, want %q", got, want)
	}
}
