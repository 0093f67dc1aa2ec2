// SPDX-License-Identifier: Apache-2.0

package source_test

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"log/slog"
	"maps"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/Masterminds/semver/v3"
	"github.com/google/go-cmp/cmp"
	"github.com/google/go-containerregistry/pkg/name"
	"github.com/google/go-containerregistry/pkg/registry"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/remote"
	"github.com/google/go-containerregistry/pkg/v1/static"
	"github.com/google/go-containerregistry/pkg/v1/types"
	"sigs.k8s.io/yaml"

	"github.com/slipway-k8s/slipway/api/v1alpha1"
	"github.com/slipway-k8s/slipway/internal/cluster/addons/source"
)

// tree writes files into a new directory.
func tree(tb testing.TB, files map[string]string) string {
	tb.Helper()
	dir := tb.TempDir()
	for file, text := range files {
		path := filepath.Join(dir, file)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			tb.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			tb.Fatal(err)
		}
	}

	return dir
}

func newReader(dir string) source.Reader {
	return source.Reader{
		Directory:  dir,
		Kubernetes: semver.MustParse("1.36.3"),
		Values:     map[string]string{"cluster.name": "demo"},
	}
}

// read returns the objects of an add-on as one text.
func read(tb testing.TB, r source.Reader, a v1alpha1.Addon) (string, error) {
	tb.Helper()
	a.Name = "app"
	objects, err := r.Objects(tb.Context(), a)
	var out []string
	for _, o := range objects {
		text, err := yaml.Marshal(o.Object)
		if err != nil {
			tb.Fatal(err)
		}
		out = append(out, string(text))
	}

	return strings.Join(out, "---\n"), err
}

// expect checks that a source has objects with a text, or that reading it ends with an error that has it.
func expect(t *testing.T, r source.Reader, s v1alpha1.AddonSource, want string) {
	t.Helper()
	got, err := read(t, r, v1alpha1.Addon{Source: s})
	if err != nil {
		got = err.Error()
	}
	if !strings.Contains(got, want) {
		t.Errorf("got %s\nwant %s", got, want)
	}
}

func hashOf(text string) string {
	sum := sha256.Sum256([]byte(text))
	return hex.EncodeToString(sum[:])
}

const settings = "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: settings}\ndata: {cluster: \"${CLUSTER}\"}\n"

func TestManifest(t *testing.T) {
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path != "/settings.yaml" {
			http.NotFound(w, r)
			return
		}
		_, _ = w.Write([]byte(settings))
	}))
	defer server.Close()
	r := newReader(tree(t, map[string]string{"settings.yaml": settings}))
	r.ReadState = func(_ context.Context, path string) ([]byte, error) {
		if path != "base/settings.yaml" {
			return nil, errors.New("not found")
		}
		return []byte(settings), nil
	}
	a := v1alpha1.Addon{Parameters: []v1alpha1.AddonParameter{{Name: "CLUSTER", From: "cluster.name"}}}
	want := "apiVersion: v1\ndata:\n  cluster: demo\nkind: ConfigMap\nmetadata:\n  labels:\n    slipway.dev/addon: app\n  name: settings\n"
	for _, address := range []string{"settings.yaml", server.URL + "/settings.yaml?token=secret", "state://base/settings.yaml"} {
		a.Source = v1alpha1.AddonSource{Manifest: address, SHA256: hashOf(settings)}
		got, err := read(t, r, a)
		if diff := cmp.Diff(want, got); diff != "" || err != nil {
			t.Errorf("%s: %v\n%s", address, err, diff)
		}
		a.Source.SHA256 = strings.Repeat("0", 64)
		if _, err := read(t, r, a); err == nil || !strings.Contains(err.Error(), "has the SHA-256 "+hashOf(settings)+", not 0000") || strings.Contains(err.Error(), "secret") {
			t.Errorf("%s with a wrong hash: %v", address, err)
		}
	}
	for address, want := range map[string]string{
		server.URL + "/none?token=secret":   "/none: the server answers 404 Not Found",
		"http://127.0.0.1:1/x?token=secret": "download http://127.0.0.1:1/x: dial tcp 127.0.0.1:1",
		"state://none":                      "not found",
		"none.yaml":                         "no such file",
	} {
		_, err := read(t, r, v1alpha1.Addon{Source: v1alpha1.AddonSource{Manifest: address}})
		if err == nil || !strings.Contains(err.Error(), want) || strings.Contains(err.Error(), "secret") {
			t.Errorf("%s: %v, want %s", address, err, want)
		}
	}
}

// TestDownloadsAreLimited: a server that never ends its answer fills no memory.
func TestDownloadsAreLimited(t *testing.T) {
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		for range 40 {
			_, _ = w.Write(bytes.Repeat([]byte("#"), 1<<20))
		}
	}))
	defer server.Close()
	expect(t, newReader(""), v1alpha1.AddonSource{Manifest: server.URL + "/x"}, "has more than the limit of 16777216 bytes")
}

func TestDirectory(t *testing.T) {
	r := newReader(tree(t, map[string]string{
		"two/a.yaml": settings, "two/b.json": `{"apiVersion":"v1","kind":"Secret","metadata":{"name":"b"}}`, "two/c.txt": "x", "two/d.yaml/e": "",
		"chart/Chart.yaml": "name: x", "kust/Kustomization": "",
	}))
	expect(t, r, v1alpha1.AddonSource{Directory: "two"}, "kind: Secret")
	expect(t, r, v1alpha1.AddonSource{Directory: "chart"}, "directory chart has Chart.yaml")
	expect(t, r, v1alpha1.AddonSource{Directory: "kust"}, "directory kust has Kustomization")
}

// chartFiles is a chart with a dependency, a CRD, a schema, notes and a test.
func chartFiles() map[string]string {
	return map[string]string{
		"Chart.yaml": "apiVersion: v2\nname: web\nversion: 1.2.3\nkubeVersion: \">=1.30.0-0\"\n" +
			"dependencies: [{name: sub, version: 0.1.0, condition: sub.enabled}]\n",
		"values.yaml":                      "replicas: 1\nlimit: 5\nremoved: default\nsub: {enabled: false}\n",
		"values.schema.json":               `{"type":"object","properties":{"replicas":{"type":"integer","maximum":9}}}`,
		"crds/widgets.yaml":                "apiVersion: apiextensions.k8s.io/v1\nkind: CustomResourceDefinition\nmetadata: {name: widgets.example.com}\n",
		"templates/NOTES.txt":              "not YAML: [",
		"templates/_helpers.tpl":           `{{ define "web.name" }}{{ .Release.Name }}-web{{ end }}`,
		"templates/tests/test.yaml":        "apiVersion: v1\nkind: Pod\nmetadata: {name: t, annotations: {helm.sh/hook: test}}\n",
		"charts/sub/Chart.yaml":            "apiVersion: v2\nname: sub\nversion: 0.1.0\n",
		"charts/sub/templates/config.yaml": "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: sub}\n",
		"files/note":                       "from a file",
		"templates/config.yaml": `apiVersion: v1
kind: ConfigMap
metadata: {name: {{ include "web.name" . }}, namespace: {{ .Release.Namespace }}}
data:
  replicas: "{{ .Values.replicas }}"
  limit: "{{ .Values.limit }}"
  removed: "{{ .Values.removed }}"
  cluster: "{{ .Values.cluster }}"
  kubernetes: {{ .Capabilities.KubeVersion.Version }}
  monitoring: "{{ .Capabilities.APIVersions.Has "monitoring.coreos.com/v1" }}"
  note: {{ .Files.Get "files/note" }}
  lookup: "{{ lookup "v1" "Secret" "kube-system" "x" }}"
  script: echo ${HOME} ${CLUSTER}
`,
	}
}

// below returns files in a directory.
func below(dir string, files map[string]string) map[string]string {
	out := map[string]string{}
	for file, text := range files {
		out[dir+"/"+file] = text
	}

	return out
}

// archive packs files as 'helm package' does.
func archive(tb testing.TB, files map[string]string) string {
	tb.Helper()
	var out bytes.Buffer
	zipped := gzip.NewWriter(&out)
	packed := tar.NewWriter(zipped)
	for _, file := range slices.Sorted(maps.Keys(files)) {
		text := files[file]
		if err := packed.WriteHeader(&tar.Header{Name: file, Mode: 0o600, Size: int64(len(text)), Typeflag: tar.TypeReg}); err != nil {
			tb.Fatal(err)
		}
		if _, err := packed.Write([]byte(text)); err != nil {
			tb.Fatal(err)
		}
	}
	if err := errors.Join(packed.Close(), zipped.Close()); err != nil {
		tb.Fatal(err)
	}

	return out.String()
}

// TestChart reads the same chart from a directory, an archive, an address, a repository and a registry.
func TestChart(t *testing.T) {
	packed := archive(t, below("web", chartFiles()))
	digest := "sha256:" + hashOf(packed)
	index := "apiVersion: v1\nentries:\n  web:\n  - {version: 1.2.2, urls: [old.tgz]}\n  - {version: 1.2.3, urls: [charts/web.tgz]}\n  - {version: 9.0.0, urls: [\"file:///etc/passwd\"]}\n"
	registryServer := registry.New(registry.Logger(slog.NewLogLogger(slog.DiscardHandler, slog.LevelInfo)))
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch r.URL.Path {
		case "/repo/index.yaml":
			_, _ = w.Write([]byte(index))
		case "/repo/charts/web.tgz":
			_, _ = w.Write([]byte(packed))
		default:
			registryServer.ServeHTTP(w, r)
		}
	}))
	defer server.Close()
	host := strings.TrimPrefix(server.URL, "http://")
	pushed := push(t, host+"/charts/web", packed)
	files := below("charts/web", chartFiles())
	files["web.tgz"] = packed
	files["values.yaml"] = "replicas: 2\nlimit: 1000000\ncluster: none\n"
	r := newReader(tree(t, files))
	a := v1alpha1.Addon{Namespace: "team", Parameters: []v1alpha1.AddonParameter{{Name: "CLUSTER", From: "cluster.name"}}}
	want := map[string]string{
		"cluster": "demo", "kubernetes": "v1.36.3", "limit": "1000000", "lookup": "map[]", "monitoring": "true", "note": "from a file",
		"removed": "", "replicas": "3", "script": "echo ${HOME} ${CLUSTER}",
	}
	for _, c := range []v1alpha1.AddonChart{
		{Chart: "charts/web"},
		{Chart: "web.tgz", Digest: digest},
		{Chart: server.URL + "/repo/charts/web.tgz", Digest: digest},
		{Chart: "web", Repository: server.URL + "/repo", Version: "1.2.3", Digest: digest},
		{Chart: "oci://" + host + "/charts/web", Version: "1.2.3", Digest: pushed},
	} {
		c.ValuesFiles = []string{"values.yaml"}
		c.Values = map[string]any{"replicas": 3.0, "cluster": "${CLUSTER}", "removed": nil}
		c.APIVersions = []string{"monitoring.coreos.com/v1"}
		a.Name = "app"
		a.Source = v1alpha1.AddonSource{Helm: &c}
		objects, err := r.Objects(t.Context(), a)
		if err != nil || len(objects) != 2 {
			t.Errorf("%s: %d objects, %v", c.Chart, len(objects), err)
			continue
		}
		data := map[string]string{}
		for key, value := range objects[1].Object["data"].(map[string]any) {
			data[key], _ = value.(string)
		}
		if diff := cmp.Diff(want, data); diff != "" {
			t.Errorf("%s: %s", c.Chart, diff)
		}
		if objects[1].GetName() != "app-web" || objects[1].GetNamespace() != "team" || objects[0].GetKind() != "CustomResourceDefinition" {
			t.Errorf("%s: %v", c.Chart, objects)
		}
	}
	a.Source.Helm = &v1alpha1.AddonChart{Chart: "charts/web", ReleaseName: "other", Values: map[string]any{"sub": map[string]any{"enabled": true}, "x": "${CLUSTER}"}}
	if objects, err := r.Objects(t.Context(), a); err != nil || len(objects) != 3 || objects[2].GetName() != "other-web" {
		t.Errorf("with the dependency: %v, %v", objects, err)
	}
	wrong := "sha256:" + strings.Repeat("0", 64)
	for want, c := range map[string]v1alpha1.AddonChart{
		"the archive has the SHA-256":               {Chart: server.URL + "/repo/charts/web.tgz", Digest: wrong},
		"has the SHA-256 " + hashOf(packed):         {Chart: "web", Repository: server.URL + "/repo/", Version: "1.2.3", Digest: wrong},
		"does not have version 3.0.0 of it":         {Chart: "web", Repository: server.URL + "/repo", Version: "3.0.0", Digest: digest},
		"it refers to an address of file":           {Chart: "web", Repository: server.URL + "/repo", Version: "9.0.0", Digest: digest},
		"pull it:":                                  {Chart: "oci://" + host + "/charts/web", Digest: wrong},
		"it has version 1.2.3, not 1.2.4":           {Chart: "oci://" + host + "/charts/web", Version: "1.2.4", Digest: pushed},
		"no value of the chart contains ${CLUSTER}": {Chart: "charts/web"},
		"no such file":                              {Chart: "none"},
		"maximum: got 10":                           {Chart: "charts/web", Values: map[string]any{"replicas": 10.0, "x": "${CLUSTER}"}},
	} {
		a.Source.Helm = &c
		if _, err := r.Objects(t.Context(), a); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("got %v, want %s", err, want)
		}
	}
}

// push pushes a chart as 'helm push' does, and returns the digest of its manifest.
func push(t *testing.T, repository, packed string) string {
	t.Helper()
	image := mutate.MediaType(empty.Image, types.OCIManifestSchema1)
	image = mutate.ConfigMediaType(image, "application/vnd.cncf.helm.config.v1+json")
	image, err := mutate.AppendLayers(image, static.NewLayer([]byte(packed), "application/vnd.cncf.helm.chart.content.v1.tar+gzip"))
	if err != nil {
		t.Fatal(err)
	}
	digest, err := image.Digest()
	if err != nil {
		t.Fatal(err)
	}
	reference, err := name.ParseReference(repository + ":1.2.3")
	if err != nil {
		t.Fatal(err)
	}
	if err := remote.Write(reference, image); err != nil {
		t.Fatal(err)
	}

	return digest.String()
}

// TestChartsThatAreRefused: what would not work later, differ each time or leave the chart is an error now.
func TestChartsThatAreRefused(t *testing.T) {
	secret := filepath.Join(tree(t, map[string]string{"secret": "password"}), "secret")
	meta := "apiVersion: v2\nname: web\nversion: 1.2.3\n"
	config := "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: x}\n"
	hook := "apiVersion: batch/v1\nkind: Job\nmetadata: {name: x, annotations: {helm.sh/hook: pre-install}}\n"
	for problem, c := range map[string]struct {
		files map[string]string
		want  string
	}{
		"hooks":      {map[string]string{"templates/a.yaml": config, "templates/b.yaml": hook}, "it has hooks, which slipway does not run: Job x (pre-install)"},
		"random":     {map[string]string{"templates/a.yaml": config + "data: {x: {{ randAlphaNum 20 }}}\n"}, "web/templates/a.yaml generates a password"},
		"library":    {map[string]string{"Chart.yaml": meta + "type: library\n"}, "it is a library"},
		"version":    {map[string]string{"Chart.yaml": meta + "kubeVersion: <1.30.0\n"}, "is for Kubernetes <1.30.0, and the cluster has v1.36.3"},
		"dependency": {map[string]string{"Chart.yaml": meta + "dependencies: [{name: db, version: 1.0.0}]\n"}, "its dependency db is not in charts/"},
		"template":   {map[string]string{"templates/a.yaml": "{{ fail \"no value\" }}"}, "no value"},
		"nothing":    {map[string]string{"templates/a.yaml": "# empty"}, "its source has no objects"},
		"not a tree": {map[string]string{"Chart.yaml": "x"}, "read the chart"},
		"env":        {map[string]string{"templates/a.yaml": config + "data: {x: {{ env \"HOME\" }}}\n"}, `function "env" not defined`},
		"dns":        {map[string]string{"templates/a.yaml": config + "data: {x: \"[{{ getHostByName \"localhost\" }}]\"}\n"}, "x: '[]'"},
		"schema":     {map[string]string{"templates/a.yaml": config, "values.schema.json": `{"$ref":"file://` + secret + `"}`}, "which slipway does not read"},
		"web schema": {map[string]string{"templates/a.yaml": config, "values.schema.json": `{"$ref":"http://127.0.0.1:1/x"}`}, "it refers to http://127.0.0.1:1/x, which slipway does not read"},
	} {
		t.Run(problem, func(t *testing.T) {
			files := map[string]string{"Chart.yaml": meta}
			maps.Copy(files, c.files)
			expect(t, newReader(tree(t, files)), v1alpha1.AddonSource{Helm: &v1alpha1.AddonChart{Chart: "."}}, c.want)
		})
	}
	dir := tree(t, map[string]string{"Chart.yaml": meta, "templates/a.yaml": config + "data: {x: {{ .Files.Get \"link\" }}}\n"})
	if err := os.Symlink(secret, filepath.Join(dir, "link")); err != nil {
		t.Fatal(err)
	}
	expect(t, newReader(dir), v1alpha1.AddonSource{Helm: &v1alpha1.AddonChart{Chart: "."}}, "path escapes from parent")
	outside := archive(t, map[string]string{"web/Chart.yaml": meta, "web/../../x": "x"})
	expect(t, newReader(tree(t, map[string]string{"c.tgz": outside})), v1alpha1.AddonSource{Helm: &v1alpha1.AddonChart{Chart: "c.tgz"}}, "read the chart: chart illegally references parent directory")
	big := archive(t, map[string]string{"web/Chart.yaml": meta, "web/x": strings.Repeat("x", 6<<20)})
	expect(t, newReader(tree(t, map[string]string{"c.tgz": big})), v1alpha1.AddonSource{Helm: &v1alpha1.AddonChart{Chart: "c.tgz"}}, "larger than the maximum file size")
	with := tree(t, map[string]string{"Chart.yaml": meta, "templates/a.yaml": config, "templates/b.yaml": hook, ".helmignore": "broken/\n", "templates/broken/x.yaml": "{{"})
	expect(t, newReader(with), v1alpha1.AddonSource{Helm: &v1alpha1.AddonChart{Chart: ".", SkipHooks: true}}, "kind: ConfigMap")
}

// FuzzChartArchive: an archive that is not a chart is an error, not a panic.
func FuzzChartArchive(f *testing.F) {
	f.Add([]byte(archive(f, below("web", chartFiles()))), "replicas: 2")
	f.Add([]byte("x"), "")
	f.Fuzz(func(t *testing.T, packed []byte, values string) {
		dir := tree(t, map[string]string{"c.tgz": string(packed), "values.yaml": values})
		chart := &v1alpha1.AddonChart{Chart: "c.tgz", ValuesFiles: []string{"values.yaml"}}
		_, _ = read(t, newReader(dir), v1alpha1.Addon{Source: v1alpha1.AddonSource{Helm: chart}})
	})
}
