// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"crypto/rand"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/slipway-k8s/slipway/internal/machine/backup"
	"github.com/slipway-k8s/slipway/internal/machine/kube"
	"github.com/slipway-k8s/slipway/internal/machine/node"
)

// TestRealLastBackup: a signed request stops the API server before the backup is taken, once for the same data, and the API server
// starts again when the move has ended or when nobody comes back.
func TestRealLastBackup(t *testing.T) {
	r := newRealMember(t)
	write := func(value string) {
		t.Helper()
		if _, err := r.client.Put(t.Context(), "key", value); err != nil {
			t.Fatal(err)
		}
	}
	write("first")
	r.run()
	if err := r.agent.writeStaticPods(); err != nil {
		t.Fatal(err)
	}
	hasPods := func() bool {
		t.Helper()
		pods, err := os.ReadDir(r.agent.Root.Path(kube.ConfigDir+"/manifests"))
		if err != nil {
			t.Fatal(err)
		}
		return len(pods) > 0
	}
	ask := func(change func(*backup.Request), archive backup.Archive) backup.Answer {
		t.Helper()
		r.now = r.now.Add(time.Second)
		request := backup.Request{ID: rand.Text(), Type: backup.RequestSnapshot, Reason: backup.ReasonMove, CreatedAt: r.now, StopsAPI: true}
		change(&request)
		if err := archive.WriteRequest(t.Context(), request); err != nil {
			t.Fatal(err)
		}
		r.run()
		answer, err := backup.ReadAnswer(t.Context(), r.store, "demo")
		if err != nil || answer == nil || answer.ID != request.ID || !answer.Done {
			t.Fatalf("%+v, %v", answer, err)
		}
		return *answer
	}
	nothing := func(*backup.Request) {}

	unsigned := r.backup.archive
	unsigned.Records = nil
	if answer := ask(nothing, unsigned); !strings.Contains(answer.Error, "nobody who has the key") || !hasPods() {
		t.Fatalf("an unsigned request: %+v", answer)
	}

	first := ask(nothing, r.backup.archive)
	if first.Error != "" || !first.APIStopped || hasPods() {
		t.Fatalf("%+v", first)
	}
	if again := ask(nothing, r.backup.archive); again.Backup != first.Backup || !again.APIStopped {
		t.Errorf("the same data was backed up again: %+v, %+v", first, again)
	}
	write("later")
	if later := ask(nothing, r.backup.archive); later.Backup == first.Backup || later.Error != "" {
		t.Errorf("a later write is in no backup: %+v", later)
	}

	start := ask(func(r *backup.Request) { r.Type = backup.RequestStartAPI; r.StopsAPI = false }, unsigned)
	if start.Error != "" || !hasPods() {
		t.Errorf("the API server was not started: %+v", start)
	}
	if again := ask(nothing, r.backup.archive); again.Error != "" || hasPods() {
		t.Fatalf("%+v", again)
	}
	r.now = r.now.Add(backup.MaxAPIStop)
	r.run()
	if !hasPods() {
		t.Error("nobody came back, and the API server stays stopped")
	}
}

// TestLastBackupOfManyMachines: other API servers write on, so this one is not stopped.
func TestLastBackupOfManyMachines(t *testing.T) {
	a := testAgent(t)
	a.doc.Slots = append(a.doc.Slots, node.Slot{Name: "b"}, node.Slot{Name: "c"})
	b := &etcdBackup{agent: a, now: a.Now}
	_, err := b.takeLast(t.Context(), backup.Request{IsSigned: true, StopsAPI: true})
	if err == nil || !strings.Contains(err.Error(), "2 other control-plane machines") || !b.startsAPIAt.IsZero() {
		t.Error(err)
	}
}
