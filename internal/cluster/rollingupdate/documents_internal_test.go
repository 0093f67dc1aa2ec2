// SPDX-License-Identifier: Apache-2.0

package rollingupdate

import (
	"context"
	"encoding/json"
	"errors"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/slipway-k8s/slipway/internal/cluster/rollout"
	"github.com/slipway-k8s/slipway/internal/machine/report"
)

// fakeDocuments has a document for each launch template version. Running machines follow what is published at the
// second look.
type fakeDocuments struct {
	*fakeCluster
	published []map[string]string
	retried   []string
	// refusesAgain lets machines refuse a document again that they try again.
	refusesAgain bool
	// versions are those in the documents; by default all have the same.
	versions map[string]documentVersions
}

func (f *fakeDocuments) ReadVersions(_ context.Context, _, document string) (documentVersions, error) {
	if v, known := f.versions[document]; known {
		return v, nil
	}

	return documentVersions{Kubernetes: "1.36.3", Etcd: "3.6.5", EtcdHash: "a"}, nil
}

func (f *fakeDocuments) ReadDocument(_ context.Context, _ rollout.Group, version string) (string, error) {
	return "document-" + version, nil
}

func (f *fakeDocuments) Publish(ctx context.Context, documents map[string]string) error {
	f.published = append(f.published, maps.Clone(documents))
	for _, m := range f.machines {
		if document := documents[m.Group]; document != "" {
			f.reportRevision(ctx, m.ID, report.Revision{State: report.RevisionWaiting, Desired: document, Followed: "document-2"})
		}
	}
	time.AfterFunc(20*time.Millisecond, func() {
		for _, m := range f.machines {
			if document := documents[m.Group]; document != "" {
				f.reportRevision(ctx, m.ID, report.Revision{State: report.RevisionCurrent, Desired: document, Followed: document})
			}
		}
	})
	return nil
}

// Retry lets the machines that have refused a document try it again. They see that at the second look, and then apply it,
// or refuse it again.
func (f *fakeDocuments) Retry(ctx context.Context, groups []string) (map[string]int64, error) {
	f.retried = append(f.retried, groups...)
	serials := map[string]int64{}
	for _, group := range groups {
		serials[group] = 3
	}
	time.AfterFunc(20*time.Millisecond, func() {
		for _, m := range f.machines {
			r := f.revisionOf(ctx, m.ID)
			if r.State != report.RevisionRefused {
				continue
			}
			r.DesiredSerial = 3
			if !f.refusesAgain {
				r = report.Revision{State: report.RevisionCurrent, Desired: r.Desired, Followed: r.Desired, DesiredSerial: 3}
			}
			f.reportRevision(ctx, m.ID, r)
		}
	})
	return serials, nil
}

// reportRevision writes the report of a machine's agent.
func (f *fakeCluster) reportRevision(ctx context.Context, id string, r report.Revision) {
	f.t.Helper()
	body, err := json.Marshal(report.Report{Machine: id, Revision: r})
	if err != nil {
		f.t.Fatal(err)
	}
	node, err := f.client.CoreV1().Nodes().Get(ctx, "node-"+id, metav1.GetOptions{})
	if err != nil {
		f.t.Fatal(err)
	}
	node.Annotations = map[string]string{report.Annotation: string(body)}
	if _, err := f.client.CoreV1().Nodes().Update(ctx, node, metav1.UpdateOptions{}); err != nil {
		f.t.Fatal(err)
	}
}

// revisionOf returns what a machine's agent has reported.
func (f *fakeCluster) revisionOf(ctx context.Context, id string) report.Revision {
	f.t.Helper()
	node, err := f.client.CoreV1().Nodes().Get(ctx, "node-"+id, metav1.GetOptions{})
	if err != nil {
		f.t.Fatal(err)
	}
	var r report.Report
	if text := node.Annotations[report.Annotation]; text != "" {
		if err := json.Unmarshal([]byte(text), &r); err != nil {
			f.t.Fatal(err)
		}
	}
	return r.Revision
}

// TestRollbackTakesBackLiveChanges: machines that have applied a new document without being replaced return to the
// former one, before the rollback ends and without being replaced; new machines get the former template.
func TestRollbackTakesBackLiveChanges(t *testing.T) {
	f := newFakeCluster(t, 1, 2)
	f.groups[0].Version = "1"
	for _, m := range f.machines[1:] {
		f.reportRevision(f.t.Context(), m.ID, report.Revision{State: report.RevisionCurrent, Desired: "document-2", Followed: "document-2"})
	}
	u := f.updater(Request{Name: "demo", Rollback: true})
	documents := &fakeDocuments{fakeCluster: f}
	u.documents = documents
	if err := u.loadRollback(t.Context(), updateSource{state: f.state}); err != nil {
		t.Fatal(err)
	}
	result, err := run(t.Context(), u)
	if err != nil || result.UpToDate || result.Replaced != 0 || len(f.terminated) != 0 {
		t.Fatalf("%+v, terminated %v, %v", result, f.terminated, err)
	}
	if f.launches["workers/"] != "1" {
		t.Errorf("new workers get version %s", f.launches["workers/"])
	}
	if want := []map[string]string{{"workers": "document-1"}}; len(documents.published) != 1 || !maps.Equal(documents.published[0], want[0]) {
		t.Errorf("published %v, want %v", documents.published, want)
	}
	for _, m := range f.machines[1:] {
		if got := f.revisionOf(t.Context(), m.ID); got.State != report.RevisionCurrent || got.Followed != "document-1" {
			t.Errorf("when the rollback ended, machine %s had %+v", m.ID, got)
		}
	}
	if !slices.ContainsFunc(f.messages, func(m string) bool {
		return strings.Contains(m, "returns workers to launch template version 1")
	}) {
		t.Errorf("messages %q", f.messages)
	}
}

// TestCountFollowers: an update waits for machines that change themselves, and not for ever.
func TestCountFollowers(t *testing.T) {
	applying := rollout.Machine{State: rollout.StateRunning, IsApplying: true}
	unaware := rollout.Machine{State: rollout.StateRunning, IsUnaware: true}
	gone := rollout.Machine{State: rollout.StateTerminating, IsApplying: true}
	o := rollout.Observation{Machines: []rollout.Machine{applying, unaware, gone, {State: rollout.StateRunning}}}
	for _, c := range []struct {
		waited time.Duration
		want   int
	}{{0, 2}, {time.Minute, 2}, {2 * time.Minute, 1}, {time.Hour, 0}} {
		if got := countFollowers(o, c.waited); got != c.want {
			t.Errorf("after %s: %d, want %d", c.waited, got, c.want)
		}
	}
}

// TestRevisionStates: which machines are about to apply a document.
func TestRevisionStates(t *testing.T) {
	for name, c := range map[string]struct {
		revision                     report.Revision
		following, applying, unaware bool
	}{
		"has it":            {report.Revision{State: report.RevisionCurrent, Followed: "b", Desired: "b"}, true, false, false},
		"has not seen it":   {report.Revision{State: report.RevisionCurrent, Followed: "a", Desired: "a"}, false, false, true},
		"waits":             {report.Revision{State: report.RevisionWaiting, Followed: "a", Desired: "b"}, false, true, false},
		"refuses it":        {report.Revision{State: report.RevisionRefused, Followed: "a", Desired: "b"}, false, false, false},
		"refused another":   {report.Revision{State: report.RevisionRefused, Followed: "a", Desired: "c"}, false, false, true},
		"knows none":        {report.Revision{State: report.RevisionUnknown, Followed: "a"}, false, false, false},
		"waits for another": {report.Revision{State: report.RevisionWaiting, Followed: "a", Desired: "c"}, false, false, false},
		"needs a machine":   {report.Revision{State: report.RevisionPending, Followed: "b", Desired: "b", Pending: []string{"x"}}, false, false, false},
		"needed a machine":  {report.Revision{State: report.RevisionPending, Followed: "a", Desired: "a", Pending: []string{"x"}}, false, false, true},
	} {
		body, err := json.Marshal(report.Report{Machine: "i-1", Revision: c.revision})
		if err != nil {
			t.Fatal(err)
		}
		m := rollout.Machine{ID: "i-1"}
		n := corev1.Node{ObjectMeta: metav1.ObjectMeta{Annotations: map[string]string{report.Annotation: string(body)}}}
		addRevision(&m, n, "b")
		if m.IsFollowing != c.following || m.IsApplying != c.applying || m.IsUnaware != c.unaware {
			t.Errorf("%s: following %v, applying %v, unaware %v", name, m.IsFollowing, m.IsApplying, m.IsUnaware)
		}
	}
}

// TestDocumentsOfSlots: the document of one slot's template does not hide that of another slot, whose machine follows.
func TestDocumentsOfSlots(t *testing.T) {
	f := newFakeCluster(t, 3, 0)
	for i := range 3 {
		f.machines[i].Version = "1"
		f.machines[i].DiffersInDocument = i < 2
		f.reportRevision(t.Context(), f.machines[i].ID, report.Revision{State: report.RevisionCurrent, Desired: "b", Followed: "b"})
	}
	f.groups[0].Document = "b"
	f.groups[1].Document = "b" // slot c has only machines of its present template, whose document is not read
	f.groups[2].Version = "1"
	o, err := f.updater(Request{Name: "demo"}).observer.observe(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if plan := rollout.Plan(o, rollout.Options{}); len(plan) != 0 {
		t.Errorf("machines that follow their document are replaced: %+v", plan)
	}
}

// TestRefusalsStopAnUpdate: machines that could not apply a document are not replaced by machines that boot with it.
func TestRefusalsStopAnUpdate(t *testing.T) {
	refused := func() *fakeCluster {
		f := newFakeCluster(t, 1, 2)
		f.groups[1].Document = "b"
		for i := range f.machines[1:] {
			f.machines[1+i].DiffersInDocument = true
			f.reportRevision(t.Context(), f.machines[1+i].ID, report.Revision{State: report.RevisionRefused, Desired: "b", Followed: "a", Cause: "kubelet: does not work"})
		}
		return f
	}
	f := refused()
	_, err := run(t.Context(), f.updater(Request{Name: "demo"}))
	if err == nil || !strings.Contains(err.Error(), "could not apply the node document that new machines of group workers get: kubelet: does not work") || len(f.terminated) > 0 {
		t.Errorf("%v, terminated %v", err, f.terminated)
	}
	f = refused()
	if _, err := run(t.Context(), f.updater(Request{Name: "demo", Groups: []string{"control-plane"}})); err != nil || len(f.terminated) != 1 {
		t.Errorf("another group: %v, terminated %v", err, f.terminated)
	}
	f = refused()
	if result, err := run(t.Context(), f.updater(Request{Name: "demo", Force: true})); err != nil || result.Replaced != 3 {
		t.Errorf("forced: %+v, %v", result, err)
	}
}

// TestRefusalDuringAnUpdate: an update stops before it replaces another machine when one refuses the document meanwhile,
// also if the templates differ in more than the document.
func TestRefusalDuringAnUpdate(t *testing.T) {
	f := newFakeCluster(t, 1, 2)
	f.groups[1].Document = "b"
	f.failAt = func(change string) error {
		if change == "terminate i-1" {
			f.reportRevision(t.Context(), "i-3", report.Revision{State: report.RevisionRefused, Desired: "b", Followed: "a", Cause: "kubelet: does not work"})
		}
		return nil
	}
	_, err := run(t.Context(), f.updater(Request{Name: "demo"}))
	if err == nil || !strings.Contains(err.Error(), "stopped after 1 machines: machine i-3 could not apply the node document") || len(f.terminated) != 1 {
		t.Errorf("%v, terminated %v", err, f.terminated)
	}
}

// TestRetryRefused: machines that refused a document try it again on request, after an approval and under the lock. If
// they refuse it again, nothing is replaced.
func TestRetryRefused(t *testing.T) {
	for _, c := range []struct {
		name                   string
		approval               error
		refusesAgain, upToDate bool
		want                   string
	}{
		{name: "they apply it", upToDate: true},
		{name: "they refuse it again", refusesAgain: true, want: "could not apply the node document"},
		{name: "not approved", approval: errors.New("nothing was changed"), want: "nothing was changed"},
	} {
		f := newFakeCluster(t, 1, 2)
		f.groups[0].Version = "1"
		f.groups[1].Document = "b"
		f.launches["workers/"] = "2"
		for i := range f.machines[1:] {
			f.machines[1+i].DiffersInDocument = true
			f.reportRevision(t.Context(), f.machines[1+i].ID, report.Revision{
				State: report.RevisionRefused, Desired: "b", DesiredSerial: 2, Followed: "a", Cause: "pull image x: timeout",
			})
		}
		var asked []string
		u := f.updater(Request{Name: "demo", RetryRefused: true, ApproveRetry: func(groups []string) error {
			asked = groups
			return c.approval
		}})
		documents := &fakeDocuments{fakeCluster: f, refusesAgain: c.refusesAgain}
		u.documents = documents
		result, err := run(t.Context(), u)
		if c.want == "" && err != nil || c.want != "" && (err == nil || !strings.Contains(err.Error(), c.want)) {
			t.Errorf("%s: %v", c.name, err)
		}
		if result.UpToDate != c.upToDate || len(f.terminated) > 0 || !slices.Equal(asked, []string{"workers"}) {
			t.Errorf("%s: %+v, terminated %v, asked for %v", c.name, result, f.terminated, asked)
		}
		if tried := len(documents.retried) > 0; tried != (c.approval == nil) {
			t.Errorf("%s: retried %v", c.name, documents.retried)
		}
	}
}
