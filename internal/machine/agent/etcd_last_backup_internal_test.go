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

// memberOfStoppedAPI is a real member next to the files of static pods.
type memberOfStoppedAPI struct{ *realMember }

func newMemberOfStoppedAPI(t *testing.T) memberOfStoppedAPI {
	t.Helper()
	m := memberOfStoppedAPI{newRealMember(t)}
	m.agent.Now = func() time.Time { return m.now }
	m.write("first")
	m.run()
	if err := m.agent.writeStaticPods(); err != nil {
		t.Fatal(err)
	}

	return m
}

func (m memberOfStoppedAPI) write(value string) {
	m.Helper()
	if _, err := m.client.Put(m.Context(), "key", value); err != nil {
		m.Fatal(err)
	}
}

// checkAPI checks whether the kubelet has the files of the static pods.
func (m memberOfStoppedAPI) checkAPI(when string, want bool) {
	m.Helper()
	pods, err := os.ReadDir(m.agent.Root.Path(kube.ConfigDir + "/manifests"))
	if err != nil || (len(pods) > 0) != want {
		m.Fatalf("%s: %d static pods, %v", when, len(pods), err)
	}
}

// ask writes a request, signed or not, and returns the answer.
func (m memberOfStoppedAPI) ask(request backup.Request, isSigned bool) backup.Answer {
	m.Helper()
	archive := m.backup.archive
	if !isSigned {
		archive.Records = nil
	}

	if err := archive.WriteRequest(m.Context(), request); err != nil {
		m.Fatal(err)
	}

	m.run()
	answer, err := m.backup.archive.ReadAnswer(m.Context())
	if err != nil || answer == nil || answer.ID != request.ID || !answer.Done || !answer.IsSigned {
		m.Fatalf("%+v, %v", answer, err)
	}

	return *answer
}

// newStop returns a request that stops the API server.
func (m memberOfStoppedAPI) newStop() backup.Request {
	m.now = m.now.Add(time.Second)

	return backup.Request{ID: rand.Text(), Type: backup.RequestSnapshot, Reason: backup.ReasonMove, CreatedAt: m.now, StopsAPI: true}
}

// TestRealLastBackup: a signed request stops the API server before the backup is taken, once for the same data.
func TestRealLastBackup(t *testing.T) {
	m := newMemberOfStoppedAPI(t)
	if answer := m.ask(m.newStop(), false); !strings.Contains(answer.Error, "nobody who has the key") {
		t.Fatalf("an unsigned request: %+v", answer)
	}

	m.checkAPI("after an unsigned request", true)
	first := m.ask(m.newStop(), true)
	if first.Error != "" || !first.APIStopped {
		t.Fatalf("%+v", first)
	}

	m.checkAPI("after the request", false)
	if again := m.ask(m.newStop(), true); again.Backup != first.Backup || !again.APIStopped {
		t.Errorf("the same data was backed up again: %+v, %+v", first, again)
	}

	m.write("later")
	later := m.ask(m.newStop(), true)
	if later.Backup == first.Backup || later.Error != "" {
		t.Errorf("a later write is in no backup: %+v", later)
	}

	failed := backup.Verification{ID: later.Backup, Error: "damaged"}
	if err := m.backup.archive.WriteVerification(t.Context(), failed); err != nil {
		t.Fatal(err)
	}

	if again := m.ask(m.newStop(), true); again.Backup == later.Backup || again.Error != "" {
		t.Errorf("a backup that cannot be restored was offered again: %+v", again)
	}
}

// TestRealAPIStopEnds: the API server starts again by a signed request, or when its time is over; not because the agent starts again or
// takes another document. A request that was answered is not carried out again.
func TestRealAPIStopEnds(t *testing.T) {
	m := newMemberOfStoppedAPI(t)
	stop := m.newStop()
	if answer := m.ask(stop, true); answer.Error != "" {
		t.Fatalf("%+v", answer)
	}

	if err := m.agent.writeStaticPods(); err != nil {
		t.Fatal(err)
	}

	m.checkAPI("after the agent has started again", false)
	start := backup.Request{ID: "start", Type: backup.RequestStartAPI, CreatedAt: m.now}
	if answer := m.ask(start, false); !strings.Contains(answer.Error, "nobody who has the key") {
		t.Errorf("an unsigned request: %+v", answer)
	}

	m.checkAPI("after an unsigned request to start", false)
	start.ID = "start again"
	if answer := m.ask(start, true); answer.Error != "" {
		t.Errorf("%+v", answer)
	}

	m.checkAPI("after the request to start", true)
	if err := m.backup.archive.WriteRequest(t.Context(), stop); err != nil {
		t.Fatal(err)
	}

	m.run()
	m.checkAPI("after a request that was written again", true)
	if answer := m.ask(m.newStop(), true); answer.Error != "" {
		t.Fatalf("%+v", answer)
	}

	for _, after := range []time.Duration{backup.MaxAPIStop - time.Second, backup.MaxAPIStop} {
		m.agent.Now = func() time.Time { return m.now.Add(after) }
		if err := endAPIStop(m.agent); err != nil {
			t.Fatal(err)
		}

		m.checkAPI("after "+after.String(), after == backup.MaxAPIStop)
	}

	if m.agent.Root.Exists(apiStopFile) {
		t.Error("the stop is still noted")
	}
}

// TestLastBackupOfManyMachines: other API servers write on, so this one is not stopped.
func TestLastBackupOfManyMachines(t *testing.T) {
	a := testAgent(t)
	a.doc.Slots = append(a.doc.Slots, node.Slot{Name: "b"}, node.Slot{Name: "c"})
	b := &etcdBackup{agent: a, now: a.Now}
	_, err := b.takeLast(t.Context(), backup.Request{IsSigned: true, StopsAPI: true})
	if err == nil || !strings.Contains(err.Error(), "2 other control-plane machines") || a.Root.Exists(apiStopFile) {
		t.Error(err)
	}
}

// TestUnreadableAPIStop: a file that a crash has left behind does not keep the only API server stopped.
func TestUnreadableAPIStop(t *testing.T) {
	a := testAgent(t)
	if _, err := a.Root.Write(File{Path: apiStopFile, Body: []byte("{"), Mode: 0o600}); err != nil {
		t.Fatal(err)
	}

	if err := endAPIStop(a); err != nil || a.Root.Exists(apiStopFile) {
		t.Errorf("the file is still there: %v", err)
	}
}
