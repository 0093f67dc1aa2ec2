// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"context"
	"errors"
	"log/slog"
	"slices"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/slipway-k8s/slipway/internal/machine/addon"
	"github.com/slipway-k8s/slipway/internal/machine/addon/applier"
	"github.com/slipway-k8s/slipway/internal/machine/addon/bundle"
	"github.com/slipway-k8s/slipway/internal/machine/kube"
)

// liveObject holds the fields of an object that the checks of add-ons read.
type liveObject struct {
	Metadata struct {
		ResourceVersion string            `json:"resourceVersion"`
		Generation      int64             `json:"generation"`
		Labels          map[string]string `json:"labels"`
		ManagedFields   []struct{ Manager, Operation string }
	} `json:"metadata"`
	Data map[string]string `json:"data"`
}

const (
	corednsMap   = "/api/v1/namespaces/kube-system/configmaps/coredns"
	flannelSet   = "/apis/apps/v1/namespaces/kube-system/daemonsets/flannel"
	addonSecrets = "/api/v1/namespaces/kube-system/secrets"
)

func readLive(t *testing.T, api kube.Client, path string) liveObject {
	t.Helper()
	var o liveObject
	if err := api.Get(t.Context(), path, &o); err != nil {
		t.Fatal(err)
	}

	return o
}

// checkAddonElection: one machine corrects the add-ons, another one takes over when that one is silent.
func checkAddonElection(t *testing.T, a *Agent, api kube.Client) {
	t.Helper()
	run := func(task *addonTask) {
		t.Helper()
		if err := task.run(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	spoil := func() {
		t.Helper()
		err := api.MergePatch(t.Context(), corednsMap, map[string]any{"data": map[string]any{"Corefile": "spoiled"}})
		if err != nil {
			t.Fatal(err)
		}
	}
	isSpoiled := func() bool { return readLive(t, api, corednsMap).Data["Corefile"] == "spoiled" }

	now := a.Now()
	other := &Agent{doc: a.doc, Now: func() time.Time { return now }, Wait: a.Wait, Log: slog.New(slog.DiscardHandler), instance: Instance{ID: "i-other"}}
	second := newAddonTask(other, api)
	first := newAddonTask(a, api)
	run(first)
	spoil()
	run(second)
	if !isSpoiled() {
		t.Error("two machines apply add-ons")
	}

	run(first)
	if isSpoiled() {
		t.Error("the elected machine did not correct an add-on")
	}

	spoil()
	run(second) // it sees that the first one is alive
	now = now.Add(addonLease)
	run(second)
	if isSpoiled() {
		t.Error("no machine took over from the one that is silent")
	}

	spoil()
	run(first)
	if !isSpoiled() {
		t.Error("the former machine still applies add-ons")
	}

	now = now.Add(time.Second)
	run(second)
}

// checkAddonUpdate: what a former version of Slipway had is deleted, and clusters whose agents applied the same objects
// without inventories get these, and restart nothing.
func checkAddonUpdate(t *testing.T, a *Agent, api kube.Client) {
	t.Helper()
	task := newAddonTask(a, api)
	releases, err := addon.Releases(addonValues(a.doc), a.doc.KubernetesVersion)
	if err != nil {
		t.Fatal(err)
	}

	former := slices.Clone(releases)
	extra := func(name, addonName string) *applier.Release {
		text := "apiVersion: v1\nkind: ConfigMap\nmetadata: {namespace: kube-system, name: " + name + "}\n"
		objects, err := bundle.ReadObjects([]byte(text))
		if err == nil {
			objects, err = bundle.Prepare(addonName, objects, nil, nil)
		}
		if err != nil {
			t.Fatal(err)
		}

		out := former[len(former)-1]
		out.Addon.Name = addonName
		out.Objects = objects

		return &out
	}

	rules := &former[0] // it has no workload, so that nothing is waited for
	rules.Objects = append(slices.Clone(rules.Objects), extra("former-object", rules.Addon.Name).Objects...)
	former = append(former, *extra("former-addon", "slipway-former"))
	if err := task.apply(t.Context(), former); err != nil {
		t.Fatal(err)
	}

	paths := []string{
		"/api/v1/namespaces/kube-system/configmaps/former-object",
		"/api/v1/namespaces/kube-system/configmaps/former-addon",
		addonSecrets + "/slipway-addon-slipway-former",
	}
	for _, path := range paths {
		readLive(t, api, path)
	}

	eventually(t, "what clusters no longer have is deleted", func() error {
		if err := task.apply(t.Context(), releases); err != nil {
			return err
		}

		for _, path := range paths {
			if _, err := api.Do(t.Context(), "GET", path, "", nil); !errors.Is(err, kube.ErrNotFound) {
				return errors.New(path + " is still there")
			}
		}

		return nil
	})

	forgetInventories(t, api)
	rendered, err := addon.Render(addonValues(a.doc))
	if err != nil {
		t.Fatal(err)
	}

	for _, o := range rendered {
		if err := api.Apply(t.Context(), o.Path, o.Body); err != nil {
			t.Fatal(err)
		}
	}

	before := readLive(t, api, flannelSet)
	if before.Metadata.Labels[bundle.OwnerLabel] != "" {
		t.Fatalf("labels %v", before.Metadata.Labels)
	}

	if err := task.apply(t.Context(), releases); err != nil {
		t.Fatal(err)
	}

	after := readLive(t, api, flannelSet)
	if after.Metadata.Generation != before.Metadata.Generation || after.Metadata.Labels[bundle.OwnerLabel] != "slipway-flannel" {
		t.Errorf("generation %d → %d, labels %v", before.Metadata.Generation, after.Metadata.Generation, after.Metadata.Labels)
	}

	for _, f := range after.Metadata.ManagedFields {
		if f.Operation == "Apply" && f.Manager != kube.FieldManager {
			t.Errorf("fields of %s are applied by %s", flannelSet, f.Manager)
		}
	}
}

// forgetInventories deletes the inventories of add-ons.
func forgetInventories(t *testing.T, api kube.Client) {
	t.Helper()
	secrets := objectClient{api: api}.Resource(schema.GroupVersionResource{Version: "v1", Resource: "secrets"}, "kube-system")
	list, err := secrets.List(context.Background(), metav1.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}

	for _, o := range list.Items {
		if !strings.HasPrefix(o.GetName(), "slipway-addon") {
			continue
		}

		if err := secrets.Delete(t.Context(), o.GetName(), metav1.DeleteOptions{}); err != nil {
			t.Fatal(err)
		}
	}
}
