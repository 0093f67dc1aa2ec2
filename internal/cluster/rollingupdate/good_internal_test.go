// SPDX-License-Identifier: Apache-2.0

package rollingupdate

import (
	"context"
	"strings"
	"testing"

	"github.com/slipway-k8s/slipway/internal/machine/report"
)

// TestFollowedVersionIsGood: a rollback takes back no change that machines follow, and with which they serve, from before the
// update.
func TestFollowedVersionIsGood(t *testing.T) {
	const current, pending = report.RevisionCurrent, report.RevisionPending
	for _, c := range []struct {
		want     string
		followed []string
		state    report.RevisionState
	}{
		{"2", []string{"document-2", "document-2"}, current}, // applied without new machines
		{"3", []string{"document-3", "document-3"}, current},
		{"1", []string{"document-2", "document-3"}, current},
		{"1", []string{"document-3", "document-3"}, pending}, // a part of it needs new machines, which may not work
	} {
		want, followed := c.want, c.followed
		f := newFakeCluster(t, 1, 2)
		f.groups[0].Version = "1"
		f.groups[1].Version = "3"
		for i, m := range f.machines[1:] {
			f.reportRevision(t.Context(), m.ID, report.Revision{State: c.state, Followed: followed[i]})
		}

		u := f.updater(Request{Name: "demo"})
		u.documents = &fakeDocuments{fakeCluster: f}
		o, err := u.observer.observe(t.Context())
		if err != nil {
			t.Fatal(err)
		}

		if err := u.good.load(t.Context(), o); err != nil {
			t.Fatal(err)
		}

		if err := u.adoptFollowed(t.Context(), o); err != nil || u.good.versions["workers/"] != want {
			t.Errorf("%v: %v, %v, want %s", followed, u.good.versions, err, want)
		}

		again := goodVersions{store: f.state, cluster: "demo"}
		if err := again.read(t.Context(), o); err != nil || again.versions["workers/"] != want {
			t.Errorf("%v: stored %v, %v", followed, again.versions, err)
		}
	}
}

// forge writes the record of versions as who may write to the bucket and has no right to any key: nobody signs it.
func (f *fakeCluster) forge(record string) {
	f.t.Helper()
	ctx := context.WithoutCancel(f.t.Context())
	_ = f.state.Delete(ctx, "demo/rolling-update.json")
	if _, err := f.state.Put(ctx, "demo/rolling-update.json", []byte(record)); err != nil {
		f.t.Fatal(err)
	}
}

// TestForgedVersionsChooseAmongApplied: who writes rolling-update.json, which nobody signs, suppresses an update with a message that
// names the version, until --retry; and chooses to which version of its own launch template an operator's rollback returns a group.
// Nothing else gets into a machine: versions are those that applies have created. No attack: it shows what the accepted risk is.
func TestForgedVersionsChooseAmongApplied(t *testing.T) {
	f := newFakeCluster(t, 1, 2)
	f.forge(`{"versions":{},"failed":{"control-plane/a":"2","workers/":"2"}}`)
	u := f.updater(Request{Name: "demo"})
	if err := u.avoidFailed(t.Context()); err != nil {
		t.Fatal(err)
	}

	result, err := run(t.Context(), u)
	said := strings.Join(f.messages, "\n")
	if err != nil || !result.UpToDate || countVersion(f.machines, "1") != 3 ||
		!strings.Contains(said, "workers stays at launch template version 1, since a rollback has returned from version 2") {
		t.Errorf("suppressed: %+v, %v\n%s", result, err, said)
	}

	u = f.updater(Request{Name: "demo", Retry: true})
	if err := u.avoidFailed(t.Context()); err != nil {
		t.Fatal(err)
	}

	if _, err := run(t.Context(), u); err != nil || countVersion(f.machines, "2") != 3 {
		t.Errorf("with --retry: %+v, %v", f.machines, err)
	}

	f.forge(`{"versions":{"workers/":"1","others/":"9"}}`)
	u = f.updater(Request{Name: "demo", Rollback: true})
	o, err := u.observer.observe(t.Context())
	if err != nil {
		t.Fatal(err)
	}

	if err := u.good.read(t.Context(), o); err != nil {
		t.Fatal(err)
	}

	u.findFormerVersions(o)
	if len(u.versions) != 1 || u.versions["workers/"] != "1" {
		t.Errorf("a rollback returns to %v", u.versions)
	}
}

// TestApprovedPlanIsCarriedOut: what has changed between the approval and the lock stops the update before it begins.
func TestApprovedPlanIsCarriedOut(t *testing.T) {
	for want, change := range map[string]func(*fakeCluster){
		"group workers/ had launch template version 2 and has 3": func(f *fakeCluster) { f.groups[1].Version = "3" },
		"machine i-4 of workers would be replaced as well":       func(f *fakeCluster) { f.launch(f.groups[1], "1") },
	} {
		f := newFakeCluster(t, 1, 2)
		u := f.updater(Request{Name: "demo", Approve: func(int) error {
			change(f)
			return nil
		}})
		if _, err := run(t.Context(), u); err == nil || !strings.Contains(err.Error(), want) || len(f.terminated) > 0 {
			t.Errorf("%v, terminated %v, want %q", err, f.terminated, want)
		}
	}

	f := newFakeCluster(t, 1, 2)
	u := f.updater(Request{Name: "demo", Approve: func(int) error {
		f.machines = f.machines[:2] // one has ended
		f.launch(f.groups[1], "2")
		return nil
	}})
	if result, err := run(t.Context(), u); err != nil || result.Replaced != 2 {
		t.Errorf("%+v, %v", result, err)
	}
}
