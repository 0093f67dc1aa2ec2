// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/slipway-k8s/slipway/internal/machine/addon/channelsource"
	"github.com/slipway-k8s/slipway/internal/machine/addon/published"
	"github.com/slipway-k8s/slipway/internal/machine/kube"
)

// fakeSource is a source whose newest revision a test sets.
type fakeSource struct {
	revision channelsource.Revision
	err      error
	looks    int
	known    string // of the last look
}

func (f *fakeSource) fetch(_ context.Context, _ published.Source, known string) (channelsource.Revision, error) {
	f.looks++
	f.known = known
	out := f.revision
	if out.ID == known {
		out.Files = nil
	}

	return out, f.err
}

// set makes a revision with one ConfigMap the newest one. day is its time of creation; zero: it has none.
func (f *fakeSource) set(id, value string, day int) {
	f.err = nil
	f.revision = channelsource.Revision{ID: id, Files: channelsource.Files{
		"channel.yaml": []byte(`apiVersion: slipway.dev/v1alpha1
kind: AddonChannel
metadata: {name: base}
spec:
  addons:
  - {name: app, version: 1.0.0, source: {manifest: app.yaml}, parameters: [{name: NAME, from: cluster.name}]}
  - {name: never, version: 1.0.0, kubernetesVersion: ">=9.0.0", source: {manifest: app.yaml}}
`),
		"app.yaml": []byte(strings.Replace(configMapText("app", value), "{a:", "{cluster: \"${NAME}\", a:", 1)),
	}}
	if day > 0 {
		f.revision.Created = time.Date(2026, 1, day, 0, 0, 0, 0, time.UTC)
	}
}

func newFollowedChannel() published.Channel {
	return published.Channel{Name: "base", Mode: published.Correct, Prune: true, Source: &published.Source{
		OCI:        "oci://registry.example.com/base:stable",
		Interval:   5 * time.Minute,
		PublicKeys: []string{"key"},
		Values:     map[string]string{"cluster.name": "demo"},
	}}
}

// TestFollowedChannel follows a source against a real API server: revisions are applied, one that is refused leaves the one
// before, and a source that goes back is noticed, also by a machine that takes over.
func TestFollowedChannel(t *testing.T) {
	if testing.Short() {
		t.Skip("SKIPPED: -short")
	}
	b := newChannelBench(t)
	source := &fakeSource{}
	task := b.task("i-first")
	task.sources.fetch = source.fetch
	b.publish(newFollowedChannel())

	source.err = errors.New("read oci://registry.example.com/base:stable: revision sha256:bad: refused")
	if err := b.run(task); err == nil || !strings.Contains(err.Error(), "revision sha256:bad: refused") {
		t.Errorf("a source that is refused: %v", err)
	}

	if s := b.status(); s.State != published.Failed || s.Source.Revision != "" || b.read("app") != "" {
		t.Errorf("nothing was accepted: %+v", s)
	}

	source.set("sha256:one", "one", 1)
	b.runUntil(task, "sha256:one")
	if s := b.status(); b.read("app") != "one" || s.State != published.Applied || !s.Source.IsVerified || s.Source.Error != "" {
		t.Errorf("the first revision: %q, %+v", b.read("app"), s)
	}

	b.checkRefusedRevision(task, source)
	source.set("sha256:two", "two", 2)
	b.runUntil(task, "sha256:two")
	if s := b.status(); b.read("app") != "two" || s.Source.RolledBackFrom != "" || len(s.Source.Former) != 1 {
		t.Errorf("the second revision: %q, %+v", b.read("app"), s.Source)
	}

	b.checkRolledBackSource(source)
}

// runUntil runs the task until a revision is accepted, and once more.
func (b *channelBench) runUntil(task *channelTask, revision string) {
	b.t.Helper()
	for n := 0; b.status().Source == nil || b.status().Source.Revision != revision; n++ {
		if err := b.run(task); err != nil || n > 20 {
			b.t.Fatalf("revision %s after %d minutes: %v, %+v", revision, n, err, b.status().Source)
		}
	}

	if err := b.run(task); err != nil {
		b.t.Fatal(err)
	}
}

// checkRefusedRevision: the revision before a refused one stays applied, and drift from it is corrected.
func (b *channelBench) checkRefusedRevision(task *channelTask, source *fakeSource) {
	b.t.Helper()
	source.err = errors.New("revision sha256:bad: its signature is refused")
	for range 7 {
		_ = b.run(task)
	}

	if err := b.api.Delete(b.t.Context(), "/api/v1/namespaces/default/configmaps/app"); err != nil {
		b.t.Fatal(err)
	}

	if err := b.run(task); err == nil || !strings.Contains(err.Error(), "its signature is refused") || b.read("app") != "one" {
		b.t.Errorf("the revision before a refused one: %v, %q", err, b.read("app"))
	}

	s := b.status()
	if s.State != published.Failed || s.Source.Revision != "sha256:one" || !strings.Contains(s.Message, "its signature is refused") {
		b.t.Errorf("got %+v", s)
	}

	// A revision whose channel is not valid is refused, too.
	source.set("sha256:invalid", "x", 3)
	source.revision.Files["channel.yaml"] = []byte("kind: Pod\n")
	b.now = b.now.Add(maxSourceRetry)
	err := b.run(task)
	if err == nil || !strings.Contains(err.Error(), "registry.example.com/base:stable: revision sha256:invalid: channel.yaml: is  Pod") {
		b.t.Errorf("a channel that is not valid: %v", err)
	}

	if b.read("app") != "one" {
		b.t.Errorf("it was applied: %q", b.read("app"))
	}

	b.now = b.now.Add(maxSourceRetry)
}

// checkRolledBackSource: an older revision is applied, and the status says so, also after another machine took over.
func (b *channelBench) checkRolledBackSource(source *fakeSource) {
	b.t.Helper()
	b.now = b.now.Add(10 * addonLease)
	other := b.task("i-other")
	other.sources.fetch = source.fetch
	source.set("sha256:one", "one", 1)
	b.runUntil(other, "sha256:one")
	s := b.status()
	want := "the source has gone back to revision sha256:one from sha256:two"
	if b.read("app") != "one" || s.Source.RolledBackFrom != "sha256:two" || s.Message != want || s.State != published.Applied {
		b.t.Errorf("the source went back: %q, %+v, %+v", b.read("app"), s, s.Source)
	}
}

// TestSourceSchedule: looks come at the interval with jitter, and after failures in growing distances. One source is looked at
// in a run.
func TestSourceSchedule(t *testing.T) {
	t.Parallel()
	now := time.Unix(1_000_000, 0)
	a := &Agent{Now: func() time.Time { return now }, Log: slog.New(slog.DiscardHandler)}
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		_, _ = io.WriteString(w, `{"gitVersion": "v1.36.3"}`)
	}))
	t.Cleanup(server.Close)
	s := newChannelSources(a, kube.Client{Server: server.URL, HTTP: server.Client()})
	source := &fakeSource{err: errors.New("refused")}
	s.fetch = source.fetch
	channel := newFollowedChannel()
	channels := []published.Channel{channel, {Name: "rendered"}}
	noStatus := func(context.Context) (channelRecord, error) { return channelRecord{}, nil }
	look := func() bool {
		t.Helper()
		has, err := s.lookOnce(t.Context(), channels, noStatus)
		if err != nil {
			t.Fatal(err)
		}

		return has
	}

	want := []time.Duration{30 * time.Second, time.Minute, 2 * time.Minute, 4 * time.Minute, 8 * time.Minute, 15 * time.Minute, 15 * time.Minute}
	for n, wait := range want {
		if !look() || look() {
			t.Fatalf("look %d is not one look", n)
		}

		checkWait(t, fmt.Sprintf("after failure %d", n+1), s.followed["base"].next.Sub(now), wait)
		now = s.followed["base"].next
	}

	source.set("sha256:one", "one", 1)
	if !look() {
		t.Fatal("it is not due")
	}

	checkWait(t, "after a success", s.followed["base"].next.Sub(now), 5*time.Minute)

	second := newFollowedChannel()
	second.Name = "second"
	channels = append(channels, second)
	now = now.Add(time.Hour)
	looks := source.looks
	if !look() || source.looks != looks+1 || !look() || source.looks != looks+2 || look() {
		t.Errorf("%d looks of two sources", source.looks-looks)
	}

	channels = nil
	if look() || len(s.followed) != 0 {
		t.Error("a channel that was withdrawn is followed")
	}
}

func checkWait(t *testing.T, when string, got, want time.Duration) {
	t.Helper()
	if got < want*9/10 || got > want*11/10 {
		t.Errorf("%s the next look comes after %s, want about %s", when, got, want)
	}
}

// TestJitter: it spreads looks over a fifth of the interval.
func TestJitter(t *testing.T) {
	t.Parallel()
	low := time.Hour
	high := time.Duration(0)
	for n := range 1000 {
		d := jitter(10*time.Minute, fmt.Sprint("i-0123", n))
		low = min(low, d)
		high = max(high, d)
	}

	if low < 9*time.Minute || high > 11*time.Minute || high-low < 110*time.Second {
		t.Errorf("from %s to %s", low, high)
	}
}
