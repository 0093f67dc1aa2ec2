// SPDX-License-Identifier: Apache-2.0

package source_test

import (
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/slipway-k8s/slipway/api/v1alpha1"
)

func TestKustomization(t *testing.T) {
	r := newReader(tree(t, map[string]string{
		"base/kustomization.yaml":       "resources: [settings.yaml]\nconfigMapGenerator: [{name: made, files: [key=data.txt]}]\n",
		"base/settings.yaml":            settings,
		"base/data.txt":                 "from a file",
		"overlays/p/kustomization.yaml": "resources: [../../base]\nnamespace: team\nnamePrefix: p-\npatches: [{path: patch.yaml}]\n",
		"overlays/p/patch.yaml":         "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: settings}\ndata: {patched: \"yes\"}\n",
	}))
	a := v1alpha1.Addon{
		Source:     v1alpha1.AddonSource{Kustomization: "overlays/p"},
		Parameters: []v1alpha1.AddonParameter{{Name: "CLUSTER", From: "cluster.name"}},
	}
	got, err := read(t, r, a)
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"name: p-settings", "namespace: team", "patched: \"yes\"", "cluster: demo", "key: from a file", "name: p-made-"} {
		if !strings.Contains(got, want) {
			t.Errorf("%s is missing:\n%s", want, got)
		}
	}
}

// TestKustomizationsThatAreRefused: nothing is downloaded, no git is run, no file outside of the channel is read.
func TestKustomizationsThatAreRefused(t *testing.T) {
	ran := filepath.Join(t.TempDir(), "ran")
	programs := tree(t, map[string]string{"git": "#!/bin/sh\ntouch " + ran + "\n", "helm": "#!/bin/sh\ntouch " + ran + "\n"})
	for _, program := range []string{"git", "helm"} {
		if err := os.Chmod(filepath.Join(programs, program), 0o700); err != nil {
			t.Fatal(err)
		}
	}
	t.Setenv("PATH", programs+":"+os.Getenv("PATH"))
	server := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { t.Error("it was downloaded") }))
	defer server.Close()
	for text, want := range map[string]string{
		"resources: [" + server.URL + "/x.yaml]":                                                           "is not the path of a local file",
		"resources: [github.com/a/b]":                                                                      "is not the path of a local file",
		"resources: [GitHub.com/a/b]":                                                                      "is not the path of a local file",
		"resources: [\"git@example.com:a/b\"]":                                                             "is not the path of a local file",
		"Resources: [\"git@example.com:a/b\"]":                                                             "Resources is not supported",
		"resources: [x]\nresources: [\"git@example.com:a/b\"]":                                             "already set in map",
		"components: [\"ssh://example.com/a/b\"]":                                                          "is not the path of a local file",
		"bases: [\"file:///etc\"]":                                                                         "is not the path of a local file",
		"resources: [settings.yaml]\npatches: [{path: \"" + server.URL + "/x\"}]":                          "is not the path of a local file",
		"resources: [settings.yaml]\npatches: [{Path: \"" + server.URL + "/x\"}]":                          "is not the path of a local file",
		"resources: [settings.yaml]\nconfigMapGenerator: [{name: x, files: [\"a=" + server.URL + "/x\"]}]": "is not the path of a local file",
		"resources: [settings.yaml]\nopenapi: {path: \"" + server.URL + "/x\"}":                            "is not the path of a local file",
		"generators: [x.yaml]":                                                                             "generators is not supported",
		"helmCharts: [{name: x}]":                                                                          "helmCharts runs the program helm",
		"resources: [link.yaml]":                                                                           "link.yaml",
		"resources: [../../../../etc/hostname]":                                                            "etc/hostname",
		"resources: [settings.yaml]\nconfigMapGenerator: [{name: x, files: [../outside]}]":                 "is not in or below",
	} {
		dir := tree(t, map[string]string{"k/kustomization.yaml": text, "k/settings.yaml": settings, "outside": "x"})
		if err := os.Symlink("/etc/hostname", filepath.Join(dir, "k", "link.yaml")); err != nil {
			t.Fatal(err)
		}
		_, err := read(t, newReader(dir), v1alpha1.Addon{Source: v1alpha1.AddonSource{Kustomization: "k"}})
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: got %v, want %s", text, err, want)
		}
	}
	if _, err := os.Stat(ran); err == nil {
		t.Error("a program was run")
	}
}

// FuzzKustomization: whatever a kustomization has, no program is run and nothing is downloaded.
func FuzzKustomization(f *testing.F) {
	for _, text := range []string{
		"resources: [settings.yaml]", "bases: [x]", "patches: [{path: x}]", "components: ['git::github.com/a/b']",
		"Resources: [x]", "resources: [github.com/a/b]", "{resources: [{a: 'http://x'}]}",
	} {
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, text string) {
		dir := tree(t, map[string]string{"k/kustomization.yaml": text, "k/settings.yaml": settings})
		t.Setenv("PATH", dir) // no git
		_, err := read(t, newReader(dir), v1alpha1.Addon{Source: v1alpha1.AddonSource{Kustomization: "k"}})
		if err == nil {
			return
		}
		for _, sign := range []string{"executable file not found", "no 'git' program", "dial tcp", "lookup ", "unsupported protocol"} {
			if strings.Contains(err.Error(), sign) {
				t.Errorf("%q: %v", text, err)
			}
		}
	})
}
