// SPDX-License-Identifier: Apache-2.0

package main

import (
	"encoding/json"
	"os"
	"path/filepath"
	"regexp"
	"runtime/debug"
	"strings"
	"testing"
)

// TestSBOMNamesEveryModule: the bill of materials has each released file and each module of each program, and is well-formed.
func TestSBOMNamesEveryModule(t *testing.T) {
	t.Parallel()
	r := newTestRelease(t)
	program, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	r.programs = map[string]string{"slipway_linux_amd64": program}
	first := readSBOM(t, r)
	delete(r.files, "slipway_1.2.3.spdx.json")
	if second := readSBOM(t, r); second.DocumentNamespace != first.DocumentNamespace {
		t.Errorf("the same content has the namespaces %s and %s", first.DocumentNamespace, second.DocumentNamespace)
	}
	checkSPDXReferences(t, first)
	versions := map[string]string{}
	for _, p := range first.Packages {
		versions[p.Name] = p.VersionInfo
	}
	info, ok := debug.ReadBuildInfo()
	if !ok || len(info.Deps) == 0 {
		t.Fatal("this test does not know its modules")
	}
	for _, m := range info.Deps {
		if m.Replace != nil {
			m = m.Replace
		}
		if versions[m.Path] != m.Version {
			t.Errorf("%s has version %q in the bill, want %s", m.Path, versions[m.Path], m.Version)
		}
	}
	if versions["stdlib"] == "" || "go"+versions["stdlib"] != info.GoVersion {
		t.Errorf("the version of Go is %q, want %s", versions["stdlib"], info.GoVersion)
	}
	for name := range r.files {
		if strings.HasSuffix(name, ".tar.gz") && versions[name] != "1.2.3" {
			t.Errorf("the bill lacks the file %s", name)
		}
	}
}

// checkSPDXReferences checks what SPDX 2.3 requires of ids, references and times.
func checkSPDXReferences(t *testing.T, doc spdxDocument) {
	t.Helper()
	ids := map[string]bool{doc.ID: true}
	for _, p := range doc.Packages {
		if !regexp.MustCompile(`^SPDXRef-[A-Za-z0-9.-]+$`).MatchString(p.ID) || ids[p.ID] {
			t.Errorf("the id %s of %s is not valid or not unique", p.ID, p.Name)
		}
		ids[p.ID] = true
		if p.DownloadLocation == "" || p.LicenseConcluded == "" || p.CopyrightText == "" {
			t.Errorf("%s lacks a field that SPDX requires: %+v", p.Name, p)
		}
	}
	for _, r := range doc.Relationships {
		if !ids[r.Element] || !ids[r.Related] {
			t.Errorf("a relationship names a package that the bill lacks: %+v", r)
		}
	}
	if doc.SPDXVersion != "SPDX-2.3" || doc.CreationInfo.Created != "2026-11-22T05:00:00Z" {
		t.Errorf("version %s, created %s", doc.SPDXVersion, doc.CreationInfo.Created)
	}
}

func readSBOM(t *testing.T, r *release) spdxDocument {
	t.Helper()
	if err := r.writeSBOM(t.Context(), ""); err != nil {
		t.Fatal(err)
	}
	body, err := os.ReadFile(filepath.Join(r.out, "slipway_1.2.3.spdx.json"))
	if err != nil {
		t.Fatal(err)
	}
	var doc spdxDocument
	if err := json.Unmarshal(body, &doc); err != nil {
		t.Fatal(err)
	}
	return doc
}
