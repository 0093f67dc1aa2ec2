// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"bytes"
	"context"
	"crypto/tls"
	"fmt"
	"log/slog"
	"net/http"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/slipway-k8s/slipway/api/v1alpha1"
	"github.com/slipway-k8s/slipway/internal/lib/store"
	"github.com/slipway-k8s/slipway/internal/machine/addon/apitest"
	"github.com/slipway-k8s/slipway/internal/machine/addon/applier"
	"github.com/slipway-k8s/slipway/internal/machine/addon/bundle"
	"github.com/slipway-k8s/slipway/internal/machine/addon/published"
	"github.com/slipway-k8s/slipway/internal/machine/kube"
	"github.com/slipway-k8s/slipway/internal/machine/node"
)

// channelBench has an API server without controllers, and a machine store with published channels.
type channelBench struct {
	t        *testing.T
	api      kube.Client
	now      time.Time
	channels published.Channels
	body     []byte // nil: there is no object
	reads    int
	writes   int
}

// RoundTrip counts the requests of the tasks that may write.
func (b *channelBench) RoundTrip(r *http.Request) (*http.Response, error) {
	if r.Method != http.MethodGet && !strings.Contains(r.URL.RawQuery, "dryRun") && !strings.Contains(r.URL.Path, "/leases") {
		b.writes++
	}

	return b.api.HTTP.Transport.RoundTrip(r)
}

// ReadIfChanged implements [ChangingReader].
func (b *channelBench) ReadIfChanged(_ context.Context, url, etag string) ([]byte, string, error) {
	b.reads++
	if want := "s3://bucket/" + published.Key("demo"); url != want {
		b.t.Errorf("read %s, want %s", url, want)
	}

	if b.body == nil {
		return nil, "", fmt.Errorf("get %s: %w", url, store.ErrNotFound)
	}

	if etag == strconv.Itoa(len(b.body)) {
		return nil, etag, nil
	}

	return b.body, strconv.Itoa(len(b.body)), nil
}

// Seal implements [store.Sealer]. It encrypts nothing.
func (b *channelBench) Seal(_ context.Context, text []byte, _ map[string]string) ([]byte, error) {
	return append([]byte("sealed "), text...), nil
}

// Open implements [store.Sealer].
func (b *channelBench) Open(_ context.Context, sealed []byte, _ map[string]string) ([]byte, error) {
	text, found := bytes.CutPrefix(sealed, []byte("sealed "))
	if !found {
		return nil, store.ErrDecryption
	}

	return text, nil
}

func newChannelBench(t *testing.T) *channelBench {
	t.Helper()
	server := apitest.Start(t)
	transport := &http.Transport{
		TLSClientConfig: &tls.Config{InsecureSkipVerify: true},
	}
	t.Cleanup(transport.CloseIdleConnections)

	return &channelBench{
		t: t,
		api: kube.Client{
			Server: server.URL,
			HTTP:   &http.Client{Transport: bearer{token: server.Token, next: transport}},
		},
		now:      time.Unix(1_000_000, 0),
		channels: published.Channels{APIVersion: v1alpha1.APIVersion, Kind: published.Kind, Cluster: "demo"},
	}
}

// bearer authenticates requests.
type bearer struct {
	token string
	next  http.RoundTripper
}

// RoundTrip implements [http.RoundTripper].
func (b bearer) RoundTrip(r *http.Request) (*http.Response, error) {
	r = r.Clone(r.Context())
	r.Header.Set("Authorization", "Bearer "+b.token)

	return b.next.RoundTrip(r)
}

// task returns the task of a machine, which has just started.
func (b *channelBench) task(machine string) *channelTask {
	a := &Agent{
		Now:      func() time.Time { return b.now },
		Wait:     func(context.Context, time.Duration) error { return nil },
		Log:      slog.New(slog.DiscardHandler),
		Changing: b,
		Sealer:   b,
		instance: Instance{ID: machine},
		doc:      node.Document{Cluster: "demo"},
	}
	a.Boot.Document.URL = "s3://bucket/demo/machine/controlplane/documents/a.json"
	a.apiOpen.Store(true)

	return newChannelTask(a, kube.Client{Server: b.api.Server, HTTP: &http.Client{Transport: b}})
}

// publish makes a channel the only one.
func (b *channelBench) publish(c published.Channel) {
	b.t.Helper()
	b.channels = b.channels.With(c, b.now)
	body, err := b.channels.Seal(b.t.Context(), b)
	if err != nil {
		b.t.Fatal(err)
	}

	b.body = body
}

// run runs the task a minute later than the last time.
func (b *channelBench) run(task *channelTask) error {
	b.t.Helper()
	b.now = b.now.Add(time.Minute)
	b.writes = 0

	return task.run(b.t.Context())
}

// status returns the status of channel base.
func (b *channelBench) status() published.Status {
	b.t.Helper()
	record, err := (&channelTask{api: b.api}).readStatus(b.t.Context())
	if err != nil {
		b.t.Fatal(err)
	}

	return record.channels["base"]
}

// read returns the value of a ConfigMap, or "" without one.
func (b *channelBench) read(name string) string {
	var o struct {
		Data map[string]string `json:"data"`
	}
	if err := b.api.Get(b.t.Context(), "/api/v1/namespaces/default/configmaps/"+name, &o); err != nil {
		return ""
	}

	return o.Data["a"]
}

func newChannel(t *testing.T, mode published.Mode, releases ...applier.Release) published.Channel {
	t.Helper()
	c := published.NewChannel("base", releases)
	c.Mode = mode

	return c
}

func newChannelRelease(t *testing.T, addon v1alpha1.Addon, wave int, text string) applier.Release {
	t.Helper()
	objects, err := bundle.ReadObjects([]byte(text))
	if err == nil {
		objects, err = bundle.Prepare(addon.Name, objects, nil, nil)
	}

	if err != nil {
		t.Fatal(err)
	}

	return applier.Release{Addon: addon, Wave: wave, Objects: objects}
}

func configMapText(name, value string) string {
	return "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: " + name + ", namespace: default}\ndata: {a: " + value + "}\n"
}

// widgets is a kind of its own: its objects can only be applied when the API server has the kind.
const widgets = `apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: widgets.example.com}
spec:
  group: example.com
  names: {kind: Widget, plural: widgets, singular: widget, listKind: WidgetList}
  scope: Namespaced
  versions:
  - {name: v1, served: true, storage: true, schema: {openAPIV3Schema: {type: object}}}
`

// TestPublishedChannels applies published channels to a real API server.
func TestPublishedChannels(t *testing.T) {
	if testing.Short() {
		t.Skip("SKIPPED: -short")
	}
	b := newChannelBench(t)
	task := b.task("i-first")
	if err := b.run(task); err != nil || b.writes > 0 || b.reads != 1 {
		t.Fatalf("without channels: %v, %d writes, %d reads", err, b.writes, b.reads)
	}

	kinds := newChannelRelease(t, v1alpha1.Addon{Name: "kinds", Version: "1.0.0"}, 1, widgets)
	app := newChannelRelease(t, v1alpha1.Addon{Name: "app", Version: "1.0.0", DependsOn: []string{"kinds"}}, 2,
		configMapText("app", "one")+"---\napiVersion: example.com/v1\nkind: Widget\nmetadata: {name: w, namespace: default}\n")
	extra := newChannelRelease(t, v1alpha1.Addon{Name: "extra", Version: "1.0.0"}, 1, configMapText("extra", "one"))
	b.publish(newChannel(t, published.Correct, extra, kinds, app))
	first := b.body

	for n := 0; b.status().State != published.Applied; n++ {
		if err := b.run(task); err != nil || n > 20 {
			t.Fatalf("after %d minutes: %v, %+v", n, err, b.status())
		}

		time.Sleep(100 * time.Millisecond)
	}

	if b.read("app") != "one" || b.read("extra") != "one" {
		t.Fatal("the add-ons are not in the cluster")
	}

	if err := b.run(task); err != nil || b.writes > 0 {
		t.Errorf("without differences: %v, %d writes", err, b.writes)
	}

	b.checkCorrection(task)
	b.checkConflict(task)
	b.checkReport(task, kinds, app)
	b.checkPutBack(task, first)
}

// checkCorrection: what somebody deletes is created again by the elected machine only.
func (b *channelBench) checkCorrection(task *channelTask) {
	b.t.Helper()
	if err := b.api.Delete(b.t.Context(), "/api/v1/namespaces/default/configmaps/app"); err != nil {
		b.t.Fatal(err)
	}

	other := b.task("i-other")
	if err := other.run(b.t.Context()); err != nil || b.read("app") != "" {
		b.t.Errorf("a machine that is not elected applies channels: %v", err)
	}

	if err := b.run(task); err != nil || b.read("app") != "one" {
		b.t.Errorf("the object was not created again: %v", err)
	}
}

// checkConflict: a field of another manager is reported, at each look, and not taken over.
func (b *channelBench) checkConflict(task *channelTask) {
	b.t.Helper()
	path := "/api/v1/namespaces/default/configmaps/extra"
	err := b.api.MergePatch(b.t.Context(), path, map[string]any{"data": map[string]any{"a": "other"}})
	if err != nil {
		b.t.Fatal(err)
	}

	want := "ConfigMap default/extra: another field manager owns fields of the object: .data.a is owned by slipway"
	if err := b.run(task); err == nil || !strings.Contains(err.Error(), want) {
		b.t.Errorf("got %v", err)
	}

	b.now = b.now.Add(addonInterval) // it is not due, and the failure is still reported
	if err := task.run(b.t.Context()); err == nil || !strings.Contains(err.Error(), want) {
		b.t.Errorf("got %v", err)
	}

	if s := b.status(); s.State != published.Failed || !strings.Contains(s.Message, want) {
		b.t.Errorf("got %+v", s)
	}

	if b.read("extra") != "other" {
		b.t.Error("the field was taken over")
	}
}

// checkReport: a channel of mode Report changes nothing.
func (b *channelBench) checkReport(task *channelTask, kinds, app applier.Release) {
	b.t.Helper()
	changed := newChannelRelease(b.t, app.Addon, 2, configMapText("app", "two"))
	report := newChannel(b.t, published.Report, kinds, changed)
	report.Prune = true
	b.publish(report)
	if err := b.run(task); err != nil || b.read("app") != "one" {
		b.t.Errorf("mode Report: %v, %s", err, b.read("app"))
	}

	// The value, the Widget that the add-on no longer has, and add-on extra.
	if s := b.status(); s.State != published.Drifted || s.Differences != 3 || !strings.Contains(s.Message, "ConfigMap default/app differs") {
		b.t.Errorf("got %+v", s)
	}

	correct := newChannel(b.t, published.Correct, kinds, changed)
	correct.Prune = true
	b.publish(correct)
	if err := b.run(task); err != nil || b.read("app") != "two" || b.read("extra") != "" {
		b.t.Errorf("mode Correct with prune: %v, app %q, extra %q", err, b.read("app"), b.read("extra"))
	}
}

// checkPutBack: an object that was published earlier is refused, also by a machine that has just started.
func (b *channelBench) checkPutBack(task *channelTask, first []byte) {
	b.t.Helper()
	b.body = first
	for _, machine := range []*channelTask{task, b.task("i-first")} {
		if err := b.run(machine); err == nil || !strings.Contains(err.Error(), "was applied before") || b.read("app") != "two" {
			b.t.Errorf("an earlier object: %v, %s", err, b.read("app"))
		}
	}
}
