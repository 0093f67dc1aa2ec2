// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/slipway-k8s/slipway/internal/machine/follow"
	"github.com/slipway-k8s/slipway/internal/machine/kube"
)

// lockServer is an API server with one object, which refuses a change of an older version of it.
type lockServer struct {
	mu      sync.Mutex
	version int // zero: the object does not exist
	lock    string
	// beforeWrite is called before each patch.
	beforeWrite func()
}

// ServeHTTP implements http.Handler.
func (s *lockServer) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if r.Method == http.MethodPatch && s.beforeWrite != nil {
		s.beforeWrite()
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	body, _ := io.ReadAll(r.Body)
	switch {
	case r.Method == http.MethodGet && s.version == 0:
		w.WriteHeader(http.StatusNotFound)
	case r.Method == http.MethodGet:
	case strings.HasPrefix(r.Header.Get("Content-Type"), "application/apply-patch"):
		s.version = max(s.version, 1)
	default:
		var patch lockObject
		if err := json.Unmarshal(body, &patch); err != nil || patch.Metadata.ResourceVersion != strconv.Itoa(s.version) {
			w.WriteHeader(http.StatusConflict)
			return
		}
		s.version++
		s.lock = patch.Metadata.Annotations[follow.LockAnnotation]
	}
	_ = json.NewEncoder(w).Encode(map[string]any{"metadata": map[string]any{
		"resourceVersion": strconv.Itoa(s.version), "annotations": map[string]string{follow.LockAnnotation: s.lock},
	}})
}

// TestUpdateLock: of two machines that claim a lock at the same time, one gets it, also when none has ever used it.
func TestUpdateLock(t *testing.T) {
	s := &lockServer{}
	server := httptest.NewServer(s)
	defer server.Close()
	now := time.Date(2026, 11, 22, 12, 0, 0, 0, time.UTC)
	lock := updateLock{
		apis: []kube.Client{{Server: "http://127.0.0.1:1", HTTP: server.Client()}, {Server: server.URL, HTTP: server.Client()}},
		path: controlPlaneLock, now: func() time.Time { return now },
	}
	first := follow.Claim{Machine: "i-1", Group: "control-plane", Serial: 2, Document: "abc"}
	second := follow.Claim{Machine: "i-2", Group: "control-plane", Serial: 2, Document: "abc"}
	claim := func(c follow.Claim) follow.Turn {
		t.Helper()
		turn, _, err := lock.claim(t.Context(), c)
		if err != nil {
			t.Fatal(err)
		}
		return turn
	}

	// The second machine creates and takes the lock between the first one's read and its write.
	s.beforeWrite = func() {
		s.beforeWrite = nil
		if got := claim(second); got != follow.TurnWait {
			t.Errorf("the creation gave the turn: %s", got)
		}
		if got := claim(second); got != follow.TurnTake {
			t.Errorf("the second machine: %s", got)
		}
	}
	if got := claim(first); got != follow.TurnWait {
		t.Errorf("both machines have the turn: %s", got)
	}
	if got := claim(first); got != follow.TurnWait {
		t.Errorf("the first machine has the second one's turn: %s", got)
	}

	// A change that meets another one is repeated with what the other one has written.
	s.beforeWrite = func() {
		s.beforeWrite = nil
		if err := lock.change(t.Context(), func(l follow.Lock) follow.Lock { return l.Release(second, "") }); err != nil {
			t.Error(err)
		}
	}
	if err := lock.change(t.Context(), func(l follow.Lock) follow.Lock { l.AddOns = 7; return l }); err != nil {
		t.Fatal(err)
	}
	got, _, err := lock.read(t.Context())
	if err != nil || got.AddOns != 7 || got.Holder != "" || got.Proven["control-plane"] == "" {
		t.Errorf("%+v, %v", got, err)
	}

	// A machine that does not renew its turn loses it.
	if got := claim(first); got != follow.TurnTake {
		t.Errorf("after the release: %s", got)
	}
	now = now.Add(follow.HoldTime)
	if got := claim(second); got != follow.TurnTake {
		t.Errorf("after the turn expired: %s", got)
	}
}
