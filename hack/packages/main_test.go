// SPDX-License-Identifier: Apache-2.0

package main

import (
	"archive/tar"
	"bytes"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"sigs.k8s.io/yaml"
)

func when() time.Time { return time.Date(2026, 11, 22, 5, 0, 0, 0, time.UTC) }

func TestNumberOf(t *testing.T) {
	t.Parallel()
	for described, want := range map[string]string{
		"v1.2.3":                     "1.2.3",
		"v1.2.3-rc.1":                "1.2.3-rc.1",
		"v1.2.3-dirty":               "1.2.4-dev.0.g0.dirty",
		"v1.2.3-14-gabc1234":         "1.2.4-dev.14.gabc1234",
		"v1.2.3-rc.1-14-gabc1234":    "1.2.3-rc.1.dev.14.gabc1234",
		"v1.2.3-14-gabc1234-dirty":   "1.2.4-dev.14.gabc1234.dirty",
		"abc1234":                    "0.0.0-dev.20261122050000.gabc1234",
		"abc1234-dirty":              "0.0.0-dev.20261122050000.gabc1234.dirty",
		"a-tag-of-another-kind":      "0.0.0-dev.20261122050000.ga-tag-of-another-kind",
		"v0.1.0-alpha.1-2-g0123abcd": "0.1.0-alpha.1.dev.2.g0123abcd",
	} {
		if got := numberOf(described, when()); got != want {
			t.Errorf("%s: %s, want %s", described, got, want)
		}
	}
}

// TestTarIsDeterministic: the order of files does not matter, and no time or owner of this machine is in it.
func TestTarIsDeterministic(t *testing.T) {
	t.Parallel()
	source := filepath.Join(t.TempDir(), "source")
	if err := os.WriteFile(source, []byte("text"), 0o600); err != nil {
		t.Fatal(err)
	}
	files := []file{
		{path: "b/c/one", mode: 0o755, source: source},
		{path: "a", mode: 0o644, body: []byte("x")},
		{path: "b/link", link: "c/one"},
		{path: "tmp/", mode: 0o777 | fs.ModeDir | fs.ModeSticky},
		{path: "home/me/", mode: 0o755 | fs.ModeDir, owner: 65532},
	}
	var first, second bytes.Buffer
	if err := writeTar(&first, files, when()); err != nil {
		t.Fatal(err)
	}
	files[0], files[4] = files[4], files[0]
	if err := writeTar(&second, files, when()); err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(first.Bytes(), second.Bytes()) {
		t.Error("the order of the files changes the archive")
	}
	var got []string
	for r := tar.NewReader(&first); ; {
		h, err := r.Next()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			t.Fatal(err)
		}
		if !h.ModTime.Equal(when()) || h.Uname != "" || h.Uid != h.Gid {
			t.Errorf("%s: %v %q %d:%d", h.Name, h.ModTime, h.Uname, h.Uid, h.Gid)
		}
		got = append(got, h.FileInfo().Mode().String()+" "+h.Name)
	}
	if diff := cmp.Diff([]string{
		"-rw-r--r-- a", "drwxr-xr-x b/", "drwxr-xr-x b/c/", "-rwxr-xr-x b/c/one", "Lrwxrwxrwx b/link",
		"drwxr-xr-x home/", "drwxr-xr-x home/me/", "dtrwxrwxrwx tmp/",
	}, got); diff != "" {
		t.Error(diff)
	}
}

// newTestRelease is a release whose archives exist already.
func newTestRelease(t *testing.T) *release {
	t.Helper()
	r := &release{
		options: options{root: "../..", out: t.TempDir(), baseURL: "https://example.com/download"},
		version: version{number: "1.2.3", when: when()},
		log:     io.Discard,
		targets: []platform{{"linux", "amd64"}, {"linux", "arm64"}, {"darwin", "arm64"}},
		files:   map[string]string{},
	}
	for _, p := range r.targets {
		r.files[r.archiveName(programCLI, p)] = strings.Repeat("0", 60) + p.arch[:4]
	}
	return r
}

func TestManifestsNameTheArchives(t *testing.T) {
	t.Parallel()
	r := newTestRelease(t)
	if err := errors.Join(r.writeFormula(t.Context(), ""), r.writeKrewManifest(t.Context(), ""), r.writeChecksums()); err != nil {
		t.Fatal(err)
	}
	formula, err := os.ReadFile(filepath.Join(r.out, "slipway.rb"))
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{
		`version "1.2.3"`, "on_macos do\n    on_arm do\n", "on_linux do\n    on_intel do\n",
		`url "https://example.com/download/v1.2.3/slipway_1.2.3_darwin_arm64.tar.gz"` + "\n      " + `sha256 "` + strings.Repeat("0", 60) + `arm6"`,
	} {
		if !strings.Contains(string(formula), want) {
			t.Errorf("the formula lacks %q:\n%s", want, formula)
		}
	}
	if strings.Count(string(formula), " do\n") != strings.Count(string(formula), "\n  end")+strings.Count(string(formula), "\n    end")-1 {
		t.Errorf("a block of the formula has no end:\n%s", formula) // the method install has an end and no do
	}
	body, err := os.ReadFile(filepath.Join(r.out, "slipway.krew.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	var m krewManifest
	if err := yaml.UnmarshalStrict(body, &m); err != nil {
		t.Fatal(err)
	}
	for i, p := range r.targets {
		name := r.archiveName(programCLI, p)
		want := krewPlatform{
			Selector: krewSelector{map[string]string{"os": p.os, "arch": p.arch}},
			URI:      "https://example.com/download/v1.2.3/" + name, SHA256: r.files[name], Bin: "slipway",
		}
		if diff := cmp.Diff(want, m.Spec.Platforms[i]); diff != "" {
			t.Error(diff)
		}
	}
	sums, err := os.ReadFile(filepath.Join(r.out, "checksums.txt"))
	if err != nil || strings.Count(string(sums), "\n") != len(r.files) || !strings.Contains(string(sums), r.files["slipway.rb"]+"  slipway.rb\n") {
		t.Errorf("%v\n%s", err, sums)
	}
}

// TestImageTrustsAmazon: a program in the image can verify AWS's certificates.
func TestImageTrustsAmazon(t *testing.T) {
	t.Parallel()
	var amazon, all int
	for rest := systemFiles()[0].body; ; all++ {
		var block *pem.Block
		if block, rest = pem.Decode(rest); block == nil {
			break
		}
		c, err := x509.ParseCertificate(block.Bytes)
		if err != nil {
			t.Fatal(err)
		}
		if strings.Contains(c.Subject.CommonName, "Amazon Root CA") {
			amazon++
		}
	}
	if amazon < 4 || all < 50 {
		t.Errorf("%d certificates, %d of Amazon's root authorities", all, amazon)
	}
}

func TestCompletionAndManual(t *testing.T) {
	t.Parallel()
	r := newTestRelease(t)
	completions, err := r.completionFiles("bash", "zsh", "fish")
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range completions {
		if !strings.Contains(string(f.body), "slipway") || !strings.Contains(string(f.body), "__complete") {
			t.Errorf("%s does not complete slipway", f.path)
		}
	}
	pages, err := r.manualFiles(t.TempDir(), "man1/")
	if err != nil {
		t.Fatal(err)
	}
	names := map[string]bool{}
	for _, f := range pages {
		names[f.path] = true
	}
	if !names["man1/slipway-apply.1.gz"] || !names["man1/slipway-create-cluster.1.gz"] {
		t.Errorf("pages: %v", names)
	}
}
