// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"path"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/slipway-k8s/slipway/internal/machine/kube"
)

// leaseAPI is an API with leases of API servers: name → time of the last renewal.
type leaseAPI struct {
	t        *testing.T
	renewed  map[string]time.Time
	versions map[string]int
	lists    int
	deleted  []string
	// between is called after a list, before deletions.
	between func()
}

func (l *leaseAPI) renew(name string, at time.Time) {
	l.renewed[name] = at
	l.versions[name]++
}

func (l *leaseAPI) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	switch r.Method {
	case http.MethodGet:
		if got := r.URL.Query().Get("labelSelector"); got != "apiserver.kubernetes.io/identity=kube-apiserver" {
			l.t.Errorf("lists leases with %q", got)
		}
		l.lists++
		var items []string
		for name, at := range l.renewed {
			items = append(items, fmt.Sprintf(`{"metadata":{"name":%q,"uid":"uid-%s","resourceVersion":"%d"},"spec":{"renewTime":%q}}`,
				name, name, l.versions[name], at.Format(microTime)))
		}
		slices.Sort(items)
		_, _ = fmt.Fprintf(w, `{"items":[%s]}`, strings.Join(items, ","))
		if l.between != nil {
			l.between()
		}
	case http.MethodDelete:
		name := path.Base(r.URL.Path)
		var options struct {
			Preconditions struct{ UID, ResourceVersion string } `json:"preconditions"`
		}
		body, err := io.ReadAll(r.Body)
		if err == nil {
			err = json.Unmarshal(body, &options)
		}
		if err != nil {
			l.t.Error(err)
		}
		if options.Preconditions.UID != "uid-"+name || options.Preconditions.ResourceVersion != strconv.Itoa(l.versions[name]) {
			w.WriteHeader(http.StatusConflict)
			return
		}
		delete(l.renewed, name)
		l.deleted = append(l.deleted, name)
	}
}

// TestRestoredLeases: after a restoration the leases of API servers that do not exist any more are deleted, once it is certain that
// nobody renews them. Without a restoration, and when nothing is left, nobody is asked.
func TestRestoredLeases(t *testing.T) {
	a := testAgent(t)
	now := time.Date(2026, 11, 26, 12, 0, 0, 0, time.UTC)
	a.Now = func() time.Time { return now }
	l := &leaseAPI{t: t, renewed: map[string]time.Time{}, versions: map[string]int{}}
	server := httptest.NewServer(l)
	t.Cleanup(server.Close)
	task := &restoredLeases{agent: a, api: kube.Client{Server: server.URL, HTTP: server.Client()}}
	restored := now.Add(-2 * time.Minute)
	look := func() {
		t.Helper()
		for _, name := range []string{"live", "slow-clock"} {
			at := now
			if name == "slow-clock" {
				at = now.Add(-time.Hour)
			}
			l.renew(name, at)
		}
		if err := task.run(t.Context()); err != nil {
			t.Fatal(err)
		}
		now = now.Add(leaseCleanInterval)
	}
	l.renew("gone", restored.Add(-time.Second))
	l.renew("later", restored.Add(time.Second)) // ended after it, or before it by a clock that is ahead
	look()
	if l.lists > 0 {
		t.Error("asks the API without a restoration")
	}

	a.restoredAt.Store(&restored)
	look()
	look()
	if len(l.deleted) > 0 {
		t.Errorf("deleted %v at once", l.deleted)
	}
	for range 4 {
		look()
	}
	if !slices.Equal(l.deleted, []string{"gone", "later"}) {
		t.Errorf("deleted %v", l.deleted)
	}

	lists := l.lists
	if err := task.run(t.Context()); err != nil || l.lists != lists {
		t.Errorf("%d lists after all is done: %v", l.lists-lists, err)
	}

	// The next restoration. An API server renews its lease between the list and the deletion.
	again := now.Add(time.Hour)
	a.restoredAt.Store(&again)
	l.deleted = nil
	for range 3 {
		l.between = func() { l.renew("slow-clock", now) }
		if len(task.seen) == 0 || now.Sub(task.seen["slow-clock"].at) < leaseUnchanged {
			l.between = nil
		}
		if err := task.run(t.Context()); err != nil {
			t.Fatal(err)
		}
		now = now.Add(leaseCleanInterval)
	}
	if !slices.Equal(l.deleted, []string{"live"}) {
		t.Errorf("deleted %v, and slow-clock was renewed meanwhile", l.deleted)
	}
}

// TestRestoredLeasesCompareNoClocks: with the clock of the operator's computer a day behind, the leases of API servers that had ended
// counted as renewed after the restoration, and with one a day ahead the agents looked for a day.
func TestRestoredLeasesCompareNoClocks(t *testing.T) {
	for _, ahead := range []time.Duration{-24 * time.Hour, 0, 24 * time.Hour} {
		a := testAgent(t)
		now := time.Date(2026, 11, 26, 12, 0, 0, 0, time.UTC)
		a.Now = func() time.Time { return now }
		l := &leaseAPI{t: t, renewed: map[string]time.Time{}, versions: map[string]int{}}
		server := httptest.NewServer(l)
		t.Cleanup(server.Close)
		task := &restoredLeases{agent: a, api: kube.Client{Server: server.URL, HTTP: server.Client()}}
		restored := now.Add(ahead)
		a.restoredAt.Store(&restored)
		l.renew("gone", now.Add(-time.Minute))
		for range 5 {
			l.renew("live", now)
			if err := task.run(t.Context()); err != nil {
				t.Fatal(err)
			}

			now = now.Add(leaseCleanInterval)
		}

		if !slices.Equal(l.deleted, []string{"gone"}) || l.lists != 3 {
			t.Errorf("a clock %s ahead: deleted %v, %d lists", ahead, l.deleted, l.lists)
		}
	}
}

// TestLeaseOfAnEarlierTime: a lease that was renewed before etcd was restored, and is again what it was before that, is not one that lives.
func TestLeaseOfAnEarlierTime(t *testing.T) {
	now := time.Date(2026, 11, 26, 12, 0, 0, 0, time.UTC)
	list := func(version string, renewed time.Time) apiServerLease {
		var out apiServerLease
		out.Metadata.ResourceVersion = version
		out.Spec.RenewTime = renewed

		return out
	}
	s := seenLease{}.update(list("5", now), now)
	if s.lives {
		t.Error("it was never renewed")
	}

	if s = s.update(list("7", now.Add(time.Second)), now.Add(time.Minute)); !s.lives {
		t.Error("it was renewed")
	}

	later := now.Add(2 * time.Minute)
	if s = s.update(list("3", now.Add(-time.Hour)), later); s.lives || !s.at.Equal(later) {
		t.Errorf("after the restoration: %+v", s)
	}

	if s = s.update(list("3", now.Add(-time.Hour)), later.Add(time.Hour)); s.lives || !s.at.Equal(later) {
		t.Errorf("without a change: %+v", s)
	}
}
