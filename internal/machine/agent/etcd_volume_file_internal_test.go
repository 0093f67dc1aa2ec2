// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"strings"
	"testing"

	"github.com/slipway-k8s/slipway/internal/lib/store"
	"github.com/slipway-k8s/slipway/internal/machine/etcd"
)

// TestCopyOfAVolume: two members on volumes that were made from snapshots were a majority of old data, and what the third one
// had acknowledged since was lost.
func TestCopyOfAVolume(t *testing.T) {
	a := testAgent(t)
	a.doc = testDocument(t, 3, a.bundle)
	a.EC2 = &fakeEC2{}
	writeMountinfo(t, a, true)
	slot, _ := a.doc.Slot("a")
	if err := a.Root.MakeDir(etcd.DataDir+"/member", 0o700, 0); err != nil {
		t.Fatal(err)
	}
	decide := func(volume string) etcd.Action {
		t.Helper()
		m := &etcdMember{agent: a, slot: slot, store: store.NewFileStore(t.TempDir()), volume: volume}
		f, err := m.gatherFacts(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		return etcd.Decide(f)
	}
	if got := decide("vol-1"); got.Type != etcd.ActionStartExisting {
		t.Errorf("data of an earlier version: %+v", got)
	}
	for _, volume := range []string{"", "vol-1", "vol-2"} { // only the first one that is known counts
		m := &etcdMember{agent: a, slot: slot, volume: volume}
		if err := m.recordVolume(); err != nil {
			t.Fatal(err)
		}
	}
	if got := decide("vol-1"); got.Type != etcd.ActionStartExisting {
		t.Errorf("its own data: %+v", got)
	}
	if got := decide(""); got.Type != etcd.ActionStartExisting {
		t.Errorf("the volume is not known: %+v", got)
	}
	if got := decide("vol-copy"); got.Type != etcd.ActionWait || !strings.Contains(got.Reason, "copy of that of volume vol-1") {
		t.Errorf("a copy, and nobody answers: %+v", got)
	}

	m := &etcdMember{agent: a, slot: slot, volume: "vol-copy"}
	a.Run = &killedRunner{killer: &killer{left: 1000}}
	if err := m.setAsideCopy(t.Context()); err != nil || m.hasData() || !a.Root.Exists(copyDir+"/"+etcd.VolumeFile) {
		t.Errorf("the copy is not set aside: %v", err)
	}
	if err := m.recordVolume(); err != nil {
		t.Fatal(err)
	}
	if got, err := m.dataVolume(); got != "vol-copy" || err != nil {
		t.Errorf("new data on the volume is of volume %q: %v", got, err)
	}
}
