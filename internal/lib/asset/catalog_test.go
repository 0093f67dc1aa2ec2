// SPDX-License-Identifier: Apache-2.0

package asset_test

import (
	"errors"
	"flag"
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/Masterminds/semver/v3"
	"github.com/google/go-cmp/cmp"
	"sigs.k8s.io/yaml"

	"github.com/slipway-k8s/slipway/internal/lib/asset"
	"github.com/slipway-k8s/slipway/internal/lib/diag"
	"github.com/slipway-k8s/slipway/test/referencedata"
)

var update = flag.Bool("update", false, "write upstream.yaml from the table of hashes")

const hexSum = "46707a53209f826ad0f0d62371ac69cd00e78fd9a8176cf5f6f87f18f7f8b718"

func sample() asset.Catalog {
	return asset.Catalog{
		APIVersion: asset.APIVersion, Kind: asset.CatalogKind,
		Files: []asset.File{
			{Name: "kubelet", Version: "1.36.3", Arch: "amd64", URL: "https://dl.k8s.io/release/v1.36.3/bin/linux/amd64/kubelet", SHA256: hexSum, Format: asset.FormatBinary},
			{Name: "kubelet", Version: "1.36.2", Arch: "amd64", URL: "https://dl.k8s.io/release/v1.36.2/bin/linux/amd64/kubelet", SHA256: hexSum, Format: asset.FormatBinary},
		},
		Images: []asset.Image{
			{Name: "pause", Version: "3.10.1", Ref: "registry.k8s.io/pause:3.10.1"},
			{Name: "coredns", Version: "1.14.2", Ref: "registry.k8s.io/coredns/coredns:v1.14.2", Digests: map[string]string{"amd64": "sha256:" + hexSum}},
		},
	}
}

func TestFileIsFoundAndRewritten(t *testing.T) {
	c := sample()
	f, err := c.File("kubelet", "", "amd64")
	if err != nil || f.Version != "1.36.3" || f.URL != c.Files[0].URL {
		t.Errorf("default kubelet: %+v, %v", f, err)
	}
	c.FileRepository = "http://mirror:80/assets/"
	f, err = c.File("kubelet", "v1.36.2", "amd64")
	if want := "http://mirror:80/assets/dl.k8s.io/release/v1.36.2/bin/linux/amd64/kubelet"; err != nil || f.URL != want {
		t.Errorf("rewritten URL: %q, %v, want %q", f.URL, err, want)
	}
	for _, ask := range [][3]string{{"kubelet", "1.36.9", "amd64"}, {"kubelet", "", "arm64"}, {"nothing", "", "amd64"}} {
		if _, err := c.File(ask[0], ask[1], ask[2]); !errors.Is(err, asset.ErrNotFound) {
			t.Errorf("%v: %v, want ErrNotFound", ask, err)
		}
	}
}

func TestImageIsFoundAndRewritten(t *testing.T) {
	plain, mirrored := sample(), sample()
	mirrored.ContainerRegistry = "198.18.0.1:5000"
	tests := []struct {
		catalog         asset.Catalog
		name, arch, ref string
	}{
		{plain, "coredns", "amd64", "registry.k8s.io/coredns/coredns:v1.14.2@sha256:" + hexSum},
		{mirrored, "coredns", "amd64", "198.18.0.1:5000/registry.k8s.io/coredns/coredns:v1.14.2@sha256:" + hexSum},
	}
	for _, tt := range tests {
		if ref, err := tt.catalog.Image(tt.name, tt.arch); err != nil || ref != tt.ref {
			t.Errorf("%s for %s: %q, %v, want %q", tt.name, tt.arch, ref, err, tt.ref)
		}
	}
	if ref, err := mirrored.Image("pause", "amd64"); !errors.Is(err, asset.ErrNoDigest) || !strings.Contains(err.Error(), "image pause 3.10.1, registry.k8s.io/pause:3.10.1: has no digest") {
		t.Errorf("an image that is named by its tag: %q, %v, want ErrNoDigest", ref, err)
	}
	if ref := mirrored.PullReference(mirrored.Images[0], "amd64"); ref != "198.18.0.1:5000/"+mirrored.Images[0].Ref {
		t.Errorf("what digests are looked up of: %q", ref)
	}
	if _, err := plain.Image("coredns", "arm64"); !errors.Is(err, asset.ErrNotFound) {
		t.Errorf("an architecture without a digest: %v, want ErrNotFound", err)
	}
	if _, err := plain.ImageVersion("coredns", "1.0.0", "amd64"); !errors.Is(err, asset.ErrNotFound) {
		t.Errorf("a version that is not there: %v, want ErrNotFound", err)
	}
}

func TestParseReportsAllFindings(t *testing.T) {
	tests := map[string]struct {
		document string
		paths    []string
	}{
		"no YAML":        {":\n- {", []string{"catalog"}},
		"a key twice":    {"kind: a\nkind: b\n", []string{"catalog"}},
		"not an object":  {"[]", []string{"catalog"}},
		"unknown fields": {"kinds: x\nfiles: [{nam: kubelet, shasum: x}]\nimages: 3\n", []string{"files[0].nam", "files[0].shasum", "images", "kinds"}},
		"wrong types":    {"kind: 3\nfiles: [{version: 1.36}]\nimages: [{digests: {amd64: 1}}]\n", []string{"files[0].version", "images[0].digests.amd64", "kind"}},
		"wrong values": {
			"apiVersion: v9\nkind: Other\nfileRepository: ftp://x\ncontainerRegistry: https://x\n" +
				"files: [{name: Kubelet, version: v1, arch: s390, url: http://x/y, sha256: abc, form: zip}]\n" +
				"images: [{name: '', version: '', ref: pause, digests: {mips: md5}}]\n",
			[]string{
				"apiVersion", "kind", "fileRepository", "containerRegistry",
				"files[0].name", "files[0].version", "files[0].arch", "files[0].url", "files[0].sha256", "files[0].form",
				"images[0].name", "images[0].version", "images[0].ref", "images[0].digests", "images[0].digests.mips",
			},
		},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			_, err := asset.ParseCatalog([]byte(tt.document))
			var findings diag.Findings
			if !errors.As(err, &findings) {
				t.Fatalf("error %v, want findings", err)
			}
			var paths []string
			for _, f := range findings {
				paths = append(paths, f.Path)
				if f.Hint == "" {
					t.Errorf("%s has no hint", f)
				}
			}
			if diff := cmp.Diff(tt.paths, paths); diff != "" {
				t.Errorf("paths (-want +got):\n%s", diff)
			}
		})
	}
}

func TestParseRefusesAnEntryTwice(t *testing.T) {
	c := sample()
	c.Files = append(c.Files, c.Files[0])
	c.Images = append(c.Images, c.Images[1])
	raw, err := c.YAML()
	if err != nil {
		t.Fatal(err)
	}
	if _, err = asset.ParseCatalog(raw); err == nil || strings.Count(err.Error(), "duplicates entry") != 2 {
		t.Errorf("error %v, want two duplicate entries", err)
	}
}

func TestVersionsHasTheDefaultFirst(t *testing.T) {
	if diff := cmp.Diff([]string{"1.36.3", "1.36.2"}, sample().Versions("kubelet")); diff != "" {
		t.Error(diff)
	}
}

func TestEmbeddedHasWhatAClusterNeeds(t *testing.T) {
	c, err := asset.LoadEmbedded()
	if err != nil {
		t.Fatal(err)
	}
	for _, arch := range []string{"amd64", "arm64"} {
		for _, name := range []string{"kubelet", "kubectl", "containerd", "runc", "cni-plugins", "etcd"} {
			if _, err := c.File(name, "", arch); err != nil {
				t.Error(err)
			}
		}
		for _, name := range []string{
			"kube-apiserver", "kube-controller-manager", "kube-scheduler", "kube-proxy", "coredns", "flannel", "flannel-cni-plugin", "pause",
		} {
			if _, err := c.Image(name, arch); !errors.Is(err, asset.ErrNoDigest) {
				t.Errorf("image %s: %v, want ErrNoDigest: upstream's lists have none", name, err)
			}
		}
	}
}

// facts is the part of the reference data that the catalogue must match.
type facts struct {
	Kubernetes struct {
		URL         string
		Recommended map[string]string `json:"recommended_by_kops"`
		Versions    map[string]map[string]any
	}
	Tools  map[string]tool
	Images struct {
		Hosts        map[string]string
		ControlPlane map[string]imageFact `json:"control_plane"`
		DNS          map[string]imageFact
		Networking   map[string]imageFact
	}
}

type tool struct {
	URL      string
	Form     asset.FileFormat
	Default  string
	ByMinor  map[string]string `json:"default_by_kubernetes"`
	Versions map[string]map[string]string
}

type imageFact struct{ Host, Name, Tag string }

// TestEmbeddedIsTheTableOfFacts compares every entry with the shared table; with -update it writes the catalogue from it.
func TestEmbeddedIsTheTableOfFacts(t *testing.T) {
	var table facts
	if err := yaml.Unmarshal(referencedata.Read(t, referencedata.AssetHashes), &table); err != nil {
		t.Fatal(err)
	}
	want := fromFacts(table)
	if *update {
		out, err := want.YAML()
		if err != nil {
			t.Fatal(err)
		}
		head := "# What machines download, from upstream. Of several versions of one name the first is the default.\n" +
			"# Written by: go test ./internal/lib/asset -run Facts -update. Hashes are facts from upstream's lists; images have no published digests there.\n"
		if err := os.WriteFile("upstream.yaml", append([]byte(head), out...), 0o644); err != nil {
			t.Fatal(err)
		}
		return
	}
	got, err := asset.LoadEmbedded()
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("upstream.yaml is out of step (-facts +embedded); run with -update:\n%s", diff)
	}
}

func fromFacts(table facts) asset.Catalog {
	c := asset.Catalog{APIVersion: asset.APIVersion, Kind: asset.CatalogKind}
	fill := func(url, name, version, arch string) string {
		return strings.NewReplacer("{version}", version, "{arch}", arch, "{name}", name).Replace(url)
	}
	minor := table.Kubernetes.Recommended["1.36"]
	kubernetes := slices.DeleteFunc(newestFirst(maps.Keys(table.Kubernetes.Versions), minor), func(v string) bool {
		return !strings.HasPrefix(v, "1.36.") && !strings.HasPrefix(v, "1.35.")
	})
	for _, name := range []string{"kubelet", "kubectl"} {
		for _, v := range kubernetes {
			sums, _ := table.Kubernetes.Versions[v][name].(map[string]any)
			for _, arch := range []string{"amd64", "arm64"} {
				c.Files = append(c.Files, asset.File{
					Name: name, Version: v, Arch: arch, URL: fill(table.Kubernetes.URL, name, v, arch), SHA256: fmt.Sprint(sums[arch]), Format: asset.FormatBinary,
				})
			}
		}
	}
	for _, name := range []string{"containerd", "runc", "cni-plugins", "etcd", "crictl"} {
		tool := table.Tools[name]
		def := tool.Default
		if v, ok := tool.ByMinor["1.36"]; ok {
			def = v
		}
		if name == "crictl" {
			def = "" // the default there is years behind; the newest goes with the cluster's minor
		}
		v := newestFirst(maps.Keys(tool.Versions), def)[0]
		for _, arch := range []string{"amd64", "arm64"} {
			c.Files = append(c.Files, asset.File{
				Name: name, Version: v, Arch: arch, URL: fill(tool.URL, name, v, arch), SHA256: tool.Versions[v][arch], Format: tool.Form,
			})
		}
	}
	addImage := func(name, version string, i imageFact) {
		tag := fill(i.Tag, "", version, "")
		c.Images = append(c.Images, asset.Image{Name: name, Version: strings.TrimPrefix(tag, "v"), Ref: table.Images.Hosts[i.Host] + "/" + i.Name + ":" + tag})
	}
	for _, name := range []string{"kube-apiserver", "kube-controller-manager", "kube-scheduler", "kube-proxy"} {
		for _, v := range kubernetes {
			addImage(name, v, table.Images.ControlPlane[name])
		}
	}
	addImage("pause", "", table.Images.ControlPlane["pause"])
	addImage("coredns", "", table.Images.DNS["coredns"])
	addImage("flannel", "", table.Images.Networking["flannel"])
	addImage("flannel-cni-plugin", "", table.Images.Networking["flannel-cni-plugin"])
	return c
}

// newestFirst sorts versions, with the default before all.
func newestFirst(versions func(func(string) bool), def string) []string {
	return slices.SortedFunc(versions, func(a, b string) int {
		switch {
		case a == b:
			return 0
		case a == def:
			return -1
		case b == def:
			return 1
		}
		return semver.MustParse(b).Compare(semver.MustParse(a))
	})
}

func FuzzParse(f *testing.F) {
	raw, err := sample().YAML()
	if err != nil {
		f.Fatal(err)
	}
	f.Add(raw)
	f.Add([]byte("files: [{}]\nimages: [null]\n"))
	f.Add([]byte("apiVersion: slipway.dev/v1alpha1\nkind: AssetCatalog\nfiles:\nimages: []\n"))
	f.Fuzz(func(t *testing.T, raw []byte) {
		c, err := asset.ParseCatalog(raw)
		if err != nil {
			return
		}
		printed, err := c.YAML()
		if err != nil {
			t.Fatal(err)
		}
		again, err := asset.ParseCatalog(printed)
		if err != nil {
			t.Fatalf("what was printed does not parse: %v\n%s", err, printed)
		}
		second, err := again.YAML()
		if err != nil || string(second) != string(printed) {
			t.Errorf("printing is not stable: %v\n%s\n%s", err, printed, second)
		}
	})
}

// TestKnownDigestsAreKept: another catalogue does not forget the digests of images that are the same, and changes none.
func TestKnownDigestsAreKept(t *testing.T) {
	known, given := sample(), sample()
	given.Images[1].Digests = nil
	given.Images = append(given.Images, asset.Image{Name: "coredns", Version: "1.15.0", Ref: "registry.k8s.io/coredns/coredns:v1.15.0"})
	for name, got := range map[string]asset.Catalog{"WithDigests": given.WithDigests(known), "WithMissing": given.WithMissing(known)} {
		if diff := cmp.Diff(append(known.Images, given.Images[2]), got.Images); diff != "" {
			t.Errorf("%s (-want +got):\n%s", name, diff)
		}
	}
	if given.Images[1].Digests != nil {
		t.Error("the given catalogue was changed")
	}

	other := map[string]string{"amd64": "sha256:" + strings.Repeat("ab", 32)}
	given.Images[1].Digests = other
	if diff := cmp.Diff(other, given.WithDigests(known).Images[1].Digests); diff != "" {
		t.Errorf("digests that are given (-want +got):\n%s", diff)
	}
	given.Images[1].Digests = nil
	given.Images[1].Ref = "mirror.example.com/coredns:v1.14.2"
	if got := given.WithDigests(known).Images[1].Digests; len(got) > 0 {
		t.Errorf("the image of another registry has the digests %v", got)
	}
}
