// SPDX-License-Identifier: Apache-2.0

package bundle_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/Masterminds/semver/v3"
	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"pgregory.net/rapid"

	"github.com/slipway-k8s/slipway/api/v1alpha1"
	"github.com/slipway-k8s/slipway/internal/machine/addon/bundle"
)

func TestChoose(t *testing.T) {
	addons := []v1alpha1.Addon{
		{Name: "a", Version: "1.0.0"},
		{Name: "a", Version: "1.10.0", KubernetesVersion: ">=1.30.0 <1.36.0"},
		{Name: "a", Version: "1.9.0", KubernetesVersion: ">=1.36.0"},
		{Name: "old", Version: "1.0.0", KubernetesVersion: "<1.20.0"},
		{Name: "kops", KubernetesVersion: ">=1.16.0-alpha.0 <1.40.0-beta.0", Source: v1alpha1.AddonSource{Manifest: "first"}},
		{Name: "kops", KubernetesVersion: "<1.10 || >=1.36", Source: v1alpha1.AddonSource{Manifest: "last"}},
	}
	for given, want := range map[string]string{
		"v1.35.9":                "a 1.10.0,kops first",
		"v1.36.0-rc.1":           "a 1.9.0,kops last",
		"v1.36.3+slipway":        "a 1.9.0,kops last",
		"v1.15.0":                "a 1.0.0,old 1.0.0",
		"v1.35.99-eks-1234+tag7": "a 1.10.0,kops first",
	} {
		version, err := bundle.ParseKubernetesVersion(given)
		if err != nil {
			t.Fatal(err)
		}
		choice, err := bundle.Choose(addons, version)
		if err != nil {
			t.Fatal(err)
		}
		var got []string
		for _, a := range choice.Addons {
			got = append(got, a.Name+" "+a.Version+a.Source.Manifest)
		}
		if strings.Join(got, ",") != want || len(choice.Addons)+len(choice.Unfit) != 3 {
			t.Errorf("%s: got %q and %q, want %s", given, got, choice.Unfit, want)
		}
	}
	if _, err := bundle.ParseKubernetesVersion("newest"); err == nil {
		t.Error("accepted")
	}
}

// TestChooseProperties: the chosen entry is for the version, and no other entry that is has a higher version. The order of
// entries with different versions does not matter.
func TestChooseProperties(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		versions := rapid.SliceOfNDistinct(rapid.IntRange(0, 30), 1, 12, rapid.ID[int]).Draw(t, "versions")
		var addons []v1alpha1.Addon
		for _, v := range versions {
			low := rapid.IntRange(25, 40).Draw(t, "low")
			high := low + rapid.IntRange(0, 8).Draw(t, "width")
			addons = append(addons, v1alpha1.Addon{
				Name:              rapid.SampledFrom([]string{"a", "b", "c"}).Draw(t, "name"),
				Version:           fmt.Sprintf("1.%d.0", v),
				KubernetesVersion: fmt.Sprintf(">=1.%d.0 <1.%d.0", low, high),
			})
		}
		minor := rapid.IntRange(20, 50).Draw(t, "kubernetes")
		kubernetes := semver.New(1, uint64(minor), 3, "", "")
		choice, err := bundle.Choose(addons, kubernetes)
		if err != nil {
			t.Fatal(err)
		}
		fits := func(a v1alpha1.Addon) bool {
			var low, high int
			if _, err := fmt.Sscanf(a.KubernetesVersion, ">=1.%d.0 <1.%d.0", &low, &high); err != nil {
				t.Fatal(err)
			}
			return low <= minor && minor < high
		}
		number := func(a v1alpha1.Addon) (n int) { _, _ = fmt.Sscanf(a.Version, "1.%d.0", &n); return n }
		for _, chosen := range choice.Addons {
			if !fits(chosen) {
				t.Errorf("%+v is not for %s", chosen, kubernetes)
			}
			for _, a := range addons {
				if a.Name == chosen.Name && fits(a) && number(a) > number(chosen) {
					t.Errorf("%+v is better than %+v", a, chosen)
				}
			}
		}
		for _, name := range choice.Unfit {
			if slices.ContainsFunc(addons, func(a v1alpha1.Addon) bool { return a.Name == name && fits(a) }) {
				t.Errorf("%s has a version for %s", name, kubernetes)
			}
		}
		slices.Reverse(addons)
		if reversed, err := bundle.Choose(addons, kubernetes); err != nil || cmp.Diff(choice, reversed) != "" {
			t.Errorf("another order chooses others: %s", cmp.Diff(choice, reversed))
		}
	})
}

// TestWavesProperties: every add-on comes after all that it depends on, in the earliest such wave; a cycle is found and is
// one.
func TestWavesProperties(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		n := rapid.IntRange(1, 10).Draw(t, "n")
		var addons []v1alpha1.Addon
		for i := range n {
			a := v1alpha1.Addon{Name: fmt.Sprintf("a%d", i)}
			for j := range n {
				if rapid.IntRange(0, 5).Draw(t, "edge") == 0 {
					a.DependsOn = append(a.DependsOn, fmt.Sprintf("a%d", j))
				}
			}
			addons = append(addons, a)
		}
		waves, err := bundle.Waves(addons)
		if err != nil {
			checkCycle(t, addons, err.Error())
			return
		}
		at := map[string]int{}
		for w, wave := range waves {
			if len(wave) == 0 {
				t.Errorf("wave %d is empty", w+1)
			}
			for _, a := range wave {
				at[a.Name] = w + 1
			}
		}
		if len(at) != n {
			t.Errorf("%d of %d add-ons are in a wave", len(at), n)
		}
		for _, a := range addons {
			earliest := 1
			for _, d := range a.DependsOn {
				earliest = max(earliest, at[d]+1)
			}
			if at[a.Name] != earliest {
				t.Errorf("%s is in wave %d, want %d", a.Name, at[a.Name], earliest)
			}
		}
	})
}

// checkCycle checks that the cycle of an error exists.
func checkCycle(t *rapid.T, addons []v1alpha1.Addon, message string) {
	_, list, found := strings.Cut(message, "add-ons depend on each other: ")
	names := strings.Split(list, " → ")
	if !found || len(names) < 2 || names[0] != names[len(names)-1] {
		t.Fatalf("not a cycle: %s", message)
	}
	for i := range names[1:] {
		if !slices.ContainsFunc(addons, func(a v1alpha1.Addon) bool { return a.Name == names[i] && slices.Contains(a.DependsOn, names[i+1]) }) {
			t.Errorf("%s does not depend on %s", names[i], names[i+1])
		}
	}
}

func TestWavesNameAMissingDependency(t *testing.T) {
	_, err := bundle.Waves([]v1alpha1.Addon{{Name: "a", DependsOn: []string{"b"}}})
	if err == nil || !strings.Contains(err.Error(), "add-on a depends on b, which the channel does not have") {
		t.Errorf("got %v", err)
	}
}

func TestReadObjects(t *testing.T) {
	objects, err := bundle.ReadObjects([]byte(`# a comment
---
apiVersion: v1
kind: List
items:
- {apiVersion: v1, kind: ConfigMap, metadata: {name: a}}
- {apiVersion: v1, kind: ConfigMap, metadata: {name: b}}
---
# nothing
---
apiVersion: v1
kind: Namespace
metadata: {name: ns}
`))
	if err != nil || len(objects) != 3 {
		t.Errorf("%v, %v", objects, err)
	}
	_, err = bundle.ReadObjects([]byte("kind: ConfigMap\n---\napiVersion: v1\nkind: Pod\nmetadata: {generateName: x}\n---\napiVersion: v1\nkind: Pod\n---\na: 1\na: 2\n"))
	for _, want := range []string{"document 1, line 1", "document 2, line 2: Pod with generateName", "document 3, line 6: a Pod has no metadata.name", "document 4"} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("got %v, want %s", err, want)
		}
	}
}

func FuzzReadObjects(f *testing.F) {
	f.Add([]byte("apiVersion: v1\nkind: ConfigMap\nmetadata: {name: a}\ndata: {k: '${X}'}\n"))
	f.Add([]byte("apiVersion: v1\nkind: List\nitems: [{}, 1]\n"))
	f.Fuzz(func(t *testing.T, text []byte) {
		objects, err := bundle.ReadObjects(text)
		if err != nil {
			return
		}
		prepared, err := bundle.Prepare("x", objects, nil, nil)
		if err != nil || len(prepared) != len(objects) {
			t.Errorf("%d objects, %d prepared, %v", len(objects), len(prepared), err)
		}
		for _, o := range prepared {
			if len(bundle.Compare(o, o)) > 0 {
				t.Errorf("%v differs from itself", o)
			}
		}
	})
}

func read(t *testing.T, text string) *unstructured.Unstructured {
	t.Helper()
	objects, err := bundle.ReadObjects([]byte(text))
	if err != nil {
		t.Fatal(err)
	}

	return objects[0]
}

func TestPrepare(t *testing.T) {
	o := read(t, `apiVersion: v1
kind: ConfigMap
metadata: {name: "${CLUSTER}-config", labels: {app: own}, creationTimestamp: null}
data: {script: "echo ${HOME} ${LEVEL}${", twice: "${CLUSTER} ${CLUSTER}", inject: "${LEVEL}"}
`)
	got, err := bundle.Prepare("x", []*unstructured.Unstructured{o}, map[string]string{"CLUSTER": "demo", "LEVEL": "${CLUSTER}\nkind: Secret"}, map[string]string{"app": "other", "team": "a"})
	if err != nil {
		t.Fatal(err)
	}
	want := map[string]any{
		"apiVersion": "v1", "kind": "ConfigMap",
		"metadata": map[string]any{"name": "demo-config", "labels": map[string]any{"app": "own", "team": "a", "slipway.dev/addon": "x"}},
		"data": map[string]any{
			"script": "echo ${HOME} ${CLUSTER}\nkind: Secret${", "twice": "demo demo", "inject": "${CLUSTER}\nkind: Secret",
		},
	}
	if diff := cmp.Diff(want, got[0].Object); diff != "" {
		t.Error(diff)
	}
	_, err = bundle.Prepare("x", []*unstructured.Unstructured{o}, map[string]string{"CLUSTR": "demo"}, nil)
	if err == nil || !strings.Contains(err.Error(), "no object contains ${CLUSTR}") {
		t.Errorf("got %v", err)
	}
}

func TestSortObjects(t *testing.T) {
	var objects []*unstructured.Unstructured
	for _, kind := range []string{
		"admissionregistration.k8s.io/v1 ValidatingWebhookConfiguration", "apps/v1 Deployment", "example.com/v1 Secret", "v1 Service",
		"v1 ConfigMap", "rbac.authorization.k8s.io/v1 RoleBinding", "rbac.authorization.k8s.io/v1 Role", "apiextensions.k8s.io/v1 CustomResourceDefinition", "v1 Namespace",
	} {
		version, name, _ := strings.Cut(kind, " ")
		objects = append(objects, read(t, "apiVersion: "+version+"\nkind: "+name+"\nmetadata: {name: x}\n"))
	}
	bundle.SortObjects(objects)
	var got []string
	for _, o := range objects {
		got = append(got, bundle.ReferenceOf(o).String())
	}
	want := []string{
		"Namespace x", "CustomResourceDefinition x", "ConfigMap x", "Role x", "RoleBinding x", "Service x", "Deployment x", "Secret.example.com x",
		"ValidatingWebhookConfiguration x",
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
}

func TestCompareHidesSecrets(t *testing.T) {
	before := read(t, "apiVersion: v1\nkind: Secret\nmetadata: {name: x, resourceVersion: '1'}\ndata: {password: aHVudGVyMg==}\ntype: a\n")
	after := read(t, "apiVersion: v1\nkind: Secret\nmetadata: {name: x, resourceVersion: '2'}\ndata: {password: bmV3, more: bmV3}\ntype: b\n")
	want := []bundle.Difference{
		{Path: ".data.more", After: "(hidden)"}, {Path: ".data.password", Before: "(hidden)", After: "(hidden)"}, {Path: ".type", Before: `"a"`, After: `"b"`},
	}
	if diff := cmp.Diff(want, bundle.Compare(before, after)); diff != "" {
		t.Error(diff)
	}
}
