// SPDX-License-Identifier: Apache-2.0

package rollingupdate

import (
	"slices"
	"strings"
	"testing"
	"time"
)

// TestDowngrade: what a control plane cannot return to.
func TestDowngrade(t *testing.T) {
	now := documentVersions{Kubernetes: "1.36.3", Etcd: "3.6.5", EtcdHash: "a"}
	for want, former := range map[string]documentVersions{
		"":                                     {Kubernetes: "1.36.1", Etcd: "3.6.1", EtcdHash: "b"},
		"Kubernetes 1.35.9, older than 1.36.3": {Kubernetes: "1.35.9", Etcd: "3.6.5", EtcdHash: "a"},
		"etcd 3.5.21, older than 3.6.5":        {Kubernetes: "1.36.3", Etcd: "3.5.21", EtcdHash: "b"},
		"another etcd whose version is not known":               {Kubernetes: "1.36.3", EtcdHash: "b"},
		`Kubernetes "", which cannot be compared with "1.36.3"`: {EtcdHash: "a"},
	} {
		if got := describeDowngrade(now, former); got != want {
			t.Errorf("%+v: %q, want %q", former, got, want)
		}
	}

	if got := describeDowngrade(now, now); got != "" {
		t.Errorf("the same versions: %q", got)
	}
}

// TestControlPlaneIsNotDowngraded: a control-plane machine that does not join with a new minor version stops the update, which
// does not roll back, neither by itself nor on request; workers do.
func TestControlPlaneIsNotDowngraded(t *testing.T) {
	f := newFakeCluster(t, 3, 2)
	f.brokenTemplate = "2"
	documents := &fakeDocuments{fakeCluster: f, versions: map[string]documentVersions{
		"document-1": {Kubernetes: "1.35.4", Etcd: "3.6.5", EtcdHash: "a"},
	}}
	u := f.updater(Request{Name: "demo", AutomaticRollback: true, JoinTimeout: 50 * time.Millisecond})
	u.documents = documents
	_, err := run(t.Context(), u)
	if err == nil || !strings.Contains(err.Error(), "not rolled back: slot a of control-plane would return to launch template version 1 with Kubernetes 1.35.4, older than 1.36.3") {
		t.Errorf("got %v", err)
	}

	request := Request{Name: "demo", Rollback: true}
	u = f.updater(request)
	u.documents = documents
	if err := u.loadRollback(t.Context(), updateSource{state: f.state}); err == nil || !strings.Contains(err.Error(), "older than 1.36.3") {
		t.Errorf("on request: %v", err)
	}

	request.Groups = []string{"workers"}
	u = f.updater(request)
	u.documents = documents
	if err := u.loadRollback(t.Context(), updateSource{state: f.state}); err != nil {
		t.Errorf("workers: %v", err)
	}

	if f.launches["control-plane/a"] != "2" || len(documents.published) > 0 || slices.Contains(f.terminated, "i-2") {
		t.Errorf("versions %v, published %v, terminated %v", f.launches, documents.published, f.terminated)
	}
}
