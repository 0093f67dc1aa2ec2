// SPDX-License-Identifier: Apache-2.0

package channelsource_test

import (
	"strings"
	"testing"

	"github.com/Masterminds/semver/v3"

	"github.com/slipway-k8s/slipway/internal/lib/diag"
	"github.com/slipway-k8s/slipway/internal/machine/addon/channelsource"
)

const head = "apiVersion: slipway.dev/v1alpha1\nkind: AddonChannel\nmetadata: {name: base}\nspec:\n"

func newFiles(spec string) channelsource.Files {
	return channelsource.Files{
		"channel.yaml":   []byte(head + spec),
		"a.yaml":         []byte("apiVersion: v1\nkind: ConfigMap\nmetadata: {name: a}\ndata: {a: \"${NAME}\"}\n"),
		"tools/b.yaml":   []byte("apiVersion: v1\nkind: ConfigMap\nmetadata: {name: b}\n"),
		"tools/c.json":   []byte(`{"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "c"}}`),
		"tools/x/d.yaml": []byte("not: read\n"),
		"tools/README":   []byte("not read"),
	}
}

func newCluster() channelsource.Cluster {
	return channelsource.Cluster{Kubernetes: semver.MustParse("1.36.0"), Values: map[string]string{"cluster.name": "demo"}}
}

// TestChannel: the versions for the cluster are read from the files, with the cluster's values.
func TestChannel(t *testing.T) {
	t.Parallel()
	got, err := newFiles(`  addons:
  - {name: late, version: 9.0.0, kubernetesVersion: ">=1.90.0", source: {manifest: a.yaml}}
  - {name: tools, version: 1.0.0, dependsOn: [app], source: {directory: ./tools}}
  - {name: app, version: 1.0.0, source: {manifest: ./a.yaml}, parameters: [{name: NAME, from: cluster.name}]}
`).Channel("base", newCluster())
	if err != nil {
		t.Fatal(err)
	}

	if len(got.Releases) != 2 || got.Releases[0].Addon.Name != "app" || got.Releases[1].Wave != 2 || len(got.Releases[1].Objects) != 2 ||
		len(got.Unfit) != 1 || got.Unfit[0] != "late" {
		t.Fatalf("got %+v", got)
	}

	data, _ := got.Releases[0].Objects[0].Object["data"].(map[string]any)
	if data["a"] != "demo" || got.Releases[0].Objects[0].GetLabels()["slipway.dev/addon"] != "app" {
		t.Errorf("got %+v", got.Releases[0].Objects[0].Object)
	}
}

// TestRefusedChannels: what the control plane cannot read, or must not apply, is an error of the whole revision.
func TestRefusedChannels(t *testing.T) {
	t.Parallel()

	for spec, want := range map[string]string{
		"  addons: []\n": "has no add-ons",
		"  source: {oci: \"oci://a/b:c\"}\n  addons: [{name: a}]\n":                                                            "follows another source",
		"  addons: [{name: a, version: 1.0.0, unknown: x}]\n":                                                                  "unknown field",
		"  addons: [{name: slipway-coredns, version: 1.0.0, source: {manifest: a.yaml}}]\n":                                    "is reserved",
		"  addons: [{name: A_B, version: 1.0.0, source: {manifest: a.yaml}}]\n":                                                `name "A_B" is not valid`,
		"  addons: [{name: a, version: new, source: {manifest: a.yaml}}]\n":                                                    "is not a semantic version",
		"  addons: [{name: a, version: 1.0.0, namespace: a/b, source: {manifest: a.yaml}}]\n":                                  "namespace",
		"  addons: [{name: a, version: 1.0.0, source: {manifest: ../a.yaml}}]\n":                                               "has no file ../a.yaml",
		"  addons: [{name: a, version: 1.0.0, source: {manifest: /etc/passwd}}]\n":                                             "has no file /etc/passwd",
		"  addons: [{name: a, version: 1.0.0, source: {manifest: \"https://example.com/a\", sha256: x}}]\n":                    "render charts",
		"  addons: [{name: a, version: 1.0.0, source: {manifest: \"state://a.yaml\"}}]\n":                                      "render charts",
		"  addons: [{name: a, version: 1.0.0, source: {helm: {chart: a}}}]\n":                                                  "render charts",
		"  addons: [{name: a, version: 1.0.0, source: {directory: none}}]\n":                                                   "no manifests in directory none",
		"  addons: [{name: a, version: 1.0.0, dependsOn: [b], source: {manifest: a.yaml}}]\n":                                  "depends on b",
		"  addons: [{name: a, version: 1.0.0, source: {manifest: a.yaml}, prune: [{kind: Pod}]}]\n":                            "selects no objects",
		"  addons: [{name: a, version: 1.0.0, source: {manifest: tools/README}}]\n":                                            "read tools/README",
		"  addons: [{name: a, version: 1.0.0, source: {manifest: a.yaml}, parameters: [{name: NAME, from: cluster.vpcID}]}]\n": "cluster.vpcID is not a value",
	} {
		_, err := newFiles(spec).Channel("base", newCluster())
		if err == nil || !strings.Contains(err.Error(), want) && !strings.Contains(strings.Join(diag.Hints(err), " "), want) {
			t.Errorf("%s: %v, want %s", spec, err, want)
		}
	}

	spec := "  addons: [{name: a, version: 1.0.0, source: {manifest: a.yaml}}]\n"
	if _, err := newFiles(spec).Channel("other", newCluster()); err == nil || !strings.Contains(err.Error(), `is channel "base", not "other"`) {
		t.Errorf("another channel: %v", err)
	}

	if _, err := (channelsource.Files{"x": nil}).Channel("base", newCluster()); err == nil || !strings.Contains(err.Error(), "has no file channel.yaml") {
		t.Errorf("no channel: %v", err)
	}
}

func FuzzChannel(f *testing.F) {
	f.Add([]byte(head + "  addons: [{name: a, version: 1.0.0, source: {manifest: a.yaml}}]\n"))
	f.Fuzz(func(t *testing.T, text []byte) {
		files := newFiles("")
		files["channel.yaml"] = text
		got, err := files.Channel("base", newCluster())
		for _, r := range got.Releases {
			if err == nil && strings.HasPrefix(r.Addon.Name, "slipway-") {
				t.Errorf("%s is accepted", r.Addon.Name)
			}
		}
	})
}
