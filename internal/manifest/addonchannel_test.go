// SPDX-License-Identifier: Apache-2.0

package manifest_test

import (
	"encoding/json"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/slipway-k8s/slipway/api/v1alpha1"
	"github.com/slipway-k8s/slipway/internal/lib/diag"
	"github.com/slipway-k8s/slipway/internal/manifest"
)

const goodChannel = `apiVersion: slipway.dev/v1alpha1
kind: AddonChannel
metadata: {name: base}
spec:
  addons:
  - name: metrics
    version: 1.2.3
    kubernetesVersion: ">=1.30.0 <1.38.0"
    namespace: metrics
    selector: {team: platform}
    source: {manifest: metrics.yaml}
    parameters:
    - {name: CLUSTER, from: cluster.name}
    - {name: LEVEL, value: info}
    - {name: VPC, from: cluster.vpcID}
    - {name: ROLE, from: "serviceAccountRole:kube-system/web"}
    dependsOn: [base]
    healthChecks:
    - {apiVersion: example.com/v1, kind: Widget, name: w, condition: Ready}
    timeout: 2m
    needsRollingUpdate: workers
  - name: base
    version: v2.0.0
    source: {directory: base}
`

func TestAddonChannel(t *testing.T) {
	channel, fs := manifest.ParseAddonChannel([]byte(goodChannel))
	if len(fs) > 0 {
		t.Fatal(fs)
	}
	if len(channel.Spec.Addons) != 2 || channel.Spec.Addons[0].Parameters[0].From != "cluster.name" || channel.Metadata.Name != "base" {
		t.Errorf("%+v", channel)
	}
}

// TestAddonChannelReportsAllAtOnce: each mistake is one finding with its path, value and fix.
func TestAddonChannelReportsAllAtOnce(t *testing.T) {
	text := `apiVersion: slipway.dev/v1alpha1
kind: AddonChannel
metadata: {name: Base}
spec:
  addons:
  - name: Metrics_1
    version: newest
    kubernetesVersion: ">=newest"
    namespace: a/b
    source: {git: {url: https://example.com/chart}}
    parameters:
    - {name: a-b, value: x, from: cluster.name}
    - {name: NAME, from: cluster.nmae}
    - {name: NAME}
    dependsOn: [none]
    healthChecks: [{kind: Widget}]
    timeout: 2h
    needsRollingUpdate: some
    prune: [{kind: ConfigMap, labelSelector: ""}, {kind: Namespace, labelSelector: a=b}]
    chart: x
  - {name: two, version: 1.0.0, source: {}}
  - {name: two, version: 1.0.0, source: {manifest: "https://example.com/x.yaml", sha256: ABC}}
  - {name: three, version: 1.0.0, source: {manifest: a, directory: b}}
  - {name: four, version: 1.0.0, source: {kustomization: ../x}}
  - {name: five, version: 1, source: {manifest: a}}
  - {name: six, version: 1.0.0, source: {helm: {chart: "oci://example.com/a", repository: "https://example.com", releaseName: A}}}
  - {name: seven, version: 1.0.0, source: {helm: {chart: a, repository: example.com, digest: "sha256:x", valuesFiles: ["https://x"]}}}
  - {name: eight, version: 1.0.0, source: {helm: {values: {a: 1}, digets: x}}}
  - {name: nine, version: 1.0.0, source: {manifest: "https://user@example.com/x.yaml"}}
  - {name: ten, version: 1.0.0, source: {manifest: "state://../x", directory: x, helm: {chart: "s3://x/y"}}}
  - {name: eleven, version: 1.0.0, source: {manifest: "s3://x/y"}}
  - name: twelve
    version: 1.0.0
    source:
      manifest: a
      namespaces:
      - {name: Shop, podSecurity: strict, networkPolicy: deny, labels: {a/b/c: d}}
      - {name: kube-public, resourceQuota: {pods: many}, containerLimits: {max: {memory: 4Gx}, min: {}}}
      - name: shop
        podSecurity: baseline
        labels: {pod-security.kubernetes.io/enforce: privileged}
        roleBindings: [{groups: [a]}, {clusterRole: edit}, {clusterRole: edit, groups: [" "], serviceAccounts: [a/b/c]}]
      - {name: shop}
`
	_, fs := manifest.ParseAddonChannel([]byte(text))
	var paths []string
	for _, f := range fs {
		_, path, _ := strings.Cut(f.Path, ": ")
		paths = append(paths, strings.TrimPrefix(path, "spec.addons"))
		if f.Hint == "" || f.Severity != diag.Error {
			t.Errorf("%s has no fix", f)
		}
	}
	slices.Sort(paths)
	want := []string{
		"[0].chart", "[0].dependsOn[0]", "[0].healthChecks[0].apiVersion", "[0].healthChecks[0].condition", "[0].healthChecks[0].name",
		"[0].kubernetesVersion", "[0].name", "[0].namespace", "[0].needsRollingUpdate", "[0].parameters[0].from", "[0].parameters[0].name",
		"[0].parameters[1].from", "[0].parameters[2].name", "[0].prune[0].labelSelector", "[0].prune[1].kind", "[0].source.git",
		"[0].timeout", "[0].version", "[10].source.directory", "[10].source.helm.chart", "[10].source.manifest",
		"[11].source.manifest", "[12].source.manifest", "[12].source.namespaces[0].labels[a/b/c]", "[12].source.namespaces[0].name",
		"[12].source.namespaces[0].networkPolicy", "[12].source.namespaces[0].podSecurity",
		"[12].source.namespaces[1].containerLimits.max[memory]", "[12].source.namespaces[1].containerLimits.min",
		"[12].source.namespaces[1].name", "[12].source.namespaces[1].resourceQuota[pods]",
		"[12].source.namespaces[2].labels[pod-security.kubernetes.io/enforce]",
		"[12].source.namespaces[2].roleBindings[0].clusterRole", "[12].source.namespaces[2].roleBindings[1]",
		"[12].source.namespaces[2].roleBindings[2]", "[12].source.namespaces[2].roleBindings[2].clusterRole",
		"[12].source.namespaces[2].roleBindings[2].serviceAccounts[0]", "[12].source.namespaces[3].name", "[1].source.manifest", "[2]", "[2].source.sha256", "[3].source.directory", "[4].source.kustomization",
		"[5].version", "[6].source.helm.chart", "[6].source.helm.digest", "[6].source.helm.releaseName", "[6].source.helm.version",
		"[7].source.helm.digest", "[7].source.helm.repository", "[7].source.helm.valuesFiles[0]", "[7].source.helm.version",
		"[8].source.helm.chart", "[8].source.helm.digets", "[9].source.manifest", "[9].source.sha256", "metadata.name",
	}
	if diff := cmp.Diff(want, paths); diff != "" {
		t.Errorf("%s\n%v", diff, fs)
	}
}

// TestKopsChannel reads a channel as kops publishes it, without an apiVersion and with creationTimestamp: null.
func TestKopsChannel(t *testing.T) {
	hash := strings.Repeat("0a", 32)
	text := `kind: Addons
metadata:
  creationTimestamp: null
  name: bootstrap
spec:
  addons:
  - id: k8s-1.16
    manifest: kops-controller.addons.k8s.io/k8s-1.16.yaml
    manifestHash: ` + hash + `
    name: kops-controller.addons.k8s.io
    needsRollingUpdate: control-plane
    selector:
      k8s-addon: kops-controller.addons.k8s.io
    version: 9.99.0
  - manifest: own.yaml
    kubernetesVersion: ">=1.16.0-alpha.0 <1.40.0"
    prune:
      kinds:
      - {group: apps, kind: Deployment, labelSelector: "addon.kops.k8s.io/name=x", namespaces: [kube-system]}
      - {kind: ConfigMap, labelSelector: ""}
      - {kind: Secret, labelSelector: "a=b", fieldSelector: "metadata.name=x"}
    needsPKI: true
`
	channel, fs := manifest.ParseAddonChannel([]byte(text))
	var paths []string
	for _, f := range fs {
		paths = append(paths, strings.TrimPrefix(f.Path, "addons/bootstrap: spec.addons"))
	}
	if diff := cmp.Diff([]string{"[1].needsPKI", "[1].prune.kinds[2].fieldSelector", "[1].prune.kinds[1].labelSelector"}, paths); diff != "" {
		t.Errorf("%s\n%v", diff, fs)
	}
	want := v1alpha1.Addon{
		Name: "kops-controller.addons.k8s.io", Version: "9.99.0", NeedsRollingUpdate: "control-plane",
		Selector: map[string]string{"k8s-addon": "kops-controller.addons.k8s.io"},
		Source:   v1alpha1.AddonSource{Manifest: "kops-controller.addons.k8s.io/k8s-1.16.yaml", SHA256: hash},
	}
	if diff := cmp.Diff(want, channel.Spec.Addons[0]); diff != "" {
		t.Error(diff)
	}
	if a := channel.Spec.Addons[1]; a.Name != "bootstrap" || a.Prune[0].Group != "apps" || channel.Kind != v1alpha1.KindAddonChannel {
		t.Errorf("%+v", a)
	}
}

func TestAddonChannelRefusesOtherDocuments(t *testing.T) {
	for text, want := range map[string]string{
		"":                                     "has 0 documents",
		goodChannel + "---\n" + goodChannel:    "has 2 documents",
		"apiVersion: v1\nkind: ConfigMap\n":    "is not a channel of add-ons",
		"kind: AddonChannel\napiVersion: x/v1": "is not supported",
		"[]":                                   "is not a mapping",
		"kind: Addons\nmetadata: {name: x}\n":  "is empty",
		"\tx":                                  "tab",
	} {
		if _, fs := manifest.ParseAddonChannel([]byte(text)); !strings.Contains(fs.Error(), want) {
			t.Errorf("%q: got %v, want %s", text, fs, want)
		}
	}
}

// TestAddonChannelShape: every field of the type can be written.
func TestAddonChannelShape(t *testing.T) {
	var all v1alpha1.AddonChannel
	v := reflect.ValueOf(&all).Elem()
	fill(v)
	all.APIVersion = v1alpha1.APIVersion
	all.Kind = v1alpha1.KindAddonChannel
	text, err := json.Marshal(all)
	if err != nil {
		t.Fatal(err)
	}
	got, fs := manifest.ParseAddonChannel(text)
	for _, f := range fs {
		if strings.Contains(f.Message, "known field") || strings.Contains(f.Message, "must be") {
			t.Error(f)
		}
	}
	if diff := cmp.Diff(all, got); diff != "" {
		t.Error(diff)
	}
}

func FuzzParseAddonChannel(f *testing.F) {
	f.Add([]byte(goodChannel))
	f.Add([]byte("kind: Addons\nmetadata: {name: x}\nspec: {addons: [{manifest: a, prune: {kinds: [{kind: Pod}]}}]}\n"))
	f.Fuzz(func(t *testing.T, text []byte) {
		channel, fs := manifest.ParseAddonChannel(text)
		if fs.Err() != nil {
			for _, finding := range fs {
				if finding.Path == "" || finding.Message == "" {
					t.Errorf("an empty finding: %+v", finding)
				}
			}
			return
		}
		again, err := json.Marshal(channel)
		if err != nil {
			t.Fatal(err)
		}
		if len(again) > 1<<20 {
			return
		}
		// What was accepted is accepted again, but for kops's defaults, which Slipway's kind requires.
		second, fs := manifest.ParseAddonChannel(again)
		for _, finding := range fs {
			if !strings.HasSuffix(finding.Path, ".version") && !strings.HasSuffix(finding.Path, ".name") {
				t.Errorf("%s\n%s", finding, again)
			}
		}
		if len(fs) == 0 && len(second.Spec.Addons) != len(channel.Spec.Addons) {
			t.Errorf("%d add-ons have become %d", len(channel.Spec.Addons), len(second.Spec.Addons))
		}
	})
}

// TestReservedAddons: no channel can have the names of what the control plane applies.
func TestReservedAddons(t *testing.T) {
	text := strings.ReplaceAll(goodChannel, "metadata: {name: base}", "metadata: {name: slipway}")
	_, fs := manifest.ParseAddonChannel([]byte(text))
	if len(fs) != 1 || !strings.HasSuffix(fs[0].Path, "metadata.name") || fs[0].Hint == "" {
		t.Errorf("%v", fs)
	}

	text = strings.ReplaceAll(goodChannel, "- name: ", "- name: slipway-")
	_, fs = manifest.ParseAddonChannel([]byte(text))
	if !strings.Contains(fs.Err().Error(), "is reserved for the add-ons that the control plane applies") {
		t.Errorf("%v", fs)
	}
}
