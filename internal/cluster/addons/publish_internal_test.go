// SPDX-License-Identifier: Apache-2.0

package addons

import (
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/slipway-k8s/slipway/api/v1alpha1"
	"github.com/slipway-k8s/slipway/internal/lib/store"
	"github.com/slipway-k8s/slipway/internal/machine/addon/applier"
	"github.com/slipway-k8s/slipway/internal/machine/addon/bundle"
	"github.com/slipway-k8s/slipway/internal/machine/addon/published"
)

// publishBench is a machine store in a directory.
type publishBench struct {
	t      *testing.T
	store  store.Store
	sealer store.Sealer
}

func newPublishBench(t *testing.T) publishBench {
	t.Helper()
	dir := t.TempDir()
	keyFile := filepath.Join(dir, "state.key")
	options := store.Options{KeyFile: keyFile}
	steps, err := store.PlanInit(t.Context(), "file://"+dir+"/state", options)
	if err != nil {
		t.Fatal(err)
	}

	if err := store.RunInitSteps(t.Context(), steps, func(store.InitStep) {}); err != nil {
		t.Fatal(err)
	}

	s, sealer, err := store.Open(t.Context(), "file://"+dir+"/state", options)
	if err != nil {
		t.Fatal(err)
	}

	return publishBench{t: t, store: s, sealer: sealer}
}

func (b publishBench) open() *Publication {
	b.t.Helper()
	p, err := newPublication(b.t.Context(), b.store, b.sealer, "demo", time.Unix(1000, 0))
	if err != nil {
		b.t.Fatal(err)
	}

	return p
}

func (b publishBench) plan(c Channel, o PublishOptions) *Publication {
	b.t.Helper()
	p := b.open()
	if err := p.Publish(c, o); err != nil {
		b.t.Fatal(err)
	}

	return p
}

func newTestRelease(t *testing.T, name, version, value string) applier.Release {
	t.Helper()
	objects, err := bundle.ReadObjects([]byte(
		"apiVersion: v1\nkind: Secret\nmetadata: {name: " + name + ", namespace: default}\nstringData: {a: " + value + "}\n"))
	if err == nil {
		objects, err = bundle.Prepare(name, objects, nil, nil)
	}

	if err != nil {
		t.Fatal(err)
	}

	return applier.Release{Addon: v1alpha1.Addon{Name: name, Version: version}, Wave: 1, Objects: objects}
}

func TestPublication(t *testing.T) {
	b := newPublishBench(t)
	first := Channel{Name: "base", Releases: []applier.Release{
		newTestRelease(t, "a", "1.0.0", "hunter2"),
		newTestRelease(t, "b", "1.0.0", "x"),
	}}
	options := PublishOptions{Mode: published.Correct}
	p := b.plan(first, options)
	want := []PublishedChange{{Name: "a", Update: "1.0.0", Wave: 1}, {Name: "b", Update: "1.0.0", Wave: 1}}
	if diff := cmp.Diff(want, p.Changes); diff != "" || !p.IsChange() {
		t.Error(diff)
	}

	late := b.plan(first, options)
	if err := p.Write(t.Context()); err != nil {
		t.Fatal(err)
	}

	if err := late.Write(t.Context()); err == nil || !strings.Contains(err.Error(), "changed by another writer") {
		t.Errorf("two processes published at once: %v", err)
	}

	object, err := b.store.Get(t.Context(), published.Key("demo"))
	if err != nil || strings.Contains(string(object.Body), "hunter2") {
		t.Errorf("the object is not encrypted: %v", err)
	}

	if p := b.plan(first, options); p.IsChange() || p.Changes[0].Update != "" || p.Changes[0].Current != "1.0.0" {
		t.Errorf("the same channel again: %+v", p.Changes)
	}

	if p := b.plan(first, PublishOptions{Mode: published.Report}); !p.IsChange() || p.Serial() != 1001 {
		t.Errorf("another mode is no change")
	}

	second := Channel{Name: "base", Releases: []applier.Release{newTestRelease(t, "a", "1.1.0", "hunter3")}}
	p = b.plan(second, options)
	want = []PublishedChange{{Name: "a", Current: "1.0.0", Update: "1.1.0", Wave: 1}, {Name: "b", Current: "1.0.0"}}
	if diff := cmp.Diff(want, p.Changes); diff != "" || !p.IsChange() {
		t.Error(diff)
	}
}

func TestWithdrawal(t *testing.T) {
	b := newPublishBench(t)
	channel := Channel{Name: "base", Releases: []applier.Release{newTestRelease(t, "a", "1.0.0", "x")}}
	if err := b.plan(channel, PublishOptions{Mode: published.Correct}).Write(t.Context()); err != nil {
		t.Fatal(err)
	}

	p := b.open()
	if err := p.Withdraw("basis"); err == nil || err.Error() != "cluster demo has no published channel basis" {
		t.Errorf("got %v", err)
	}

	if err := p.Withdraw("base"); err != nil {
		t.Fatal(err)
	}

	if err := p.Write(t.Context()); err != nil {
		t.Fatal(err)
	}

	if after := b.open(); len(after.former.Channels) != 0 || after.former.Serial != 1001 {
		t.Errorf("got %+v", after.former)
	}
}
