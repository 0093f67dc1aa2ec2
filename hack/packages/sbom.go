// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"debug/buildinfo"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"regexp"
	"runtime/debug"
	"slices"
	"strings"
	"time"
)

// spdxDocument is a bill of materials in the format SPDX 2.3.
type spdxDocument struct {
	SPDXVersion       string             `json:"spdxVersion"`
	DataLicense       string             `json:"dataLicense"`
	ID                string             `json:"SPDXID"`
	Name              string             `json:"name"`
	DocumentNamespace string             `json:"documentNamespace"`
	CreationInfo      spdxCreationInfo   `json:"creationInfo"`
	Packages          []spdxPackage      `json:"packages"`
	Relationships     []spdxRelationship `json:"relationships"`
}

// spdxCreationInfo says who wrote a document, and when.
type spdxCreationInfo struct {
	Created  string   `json:"created"`
	Creators []string `json:"creators"`
}

// spdxPackage is a released file, or a Go module that a program contains.
type spdxPackage struct {
	ID               string            `json:"SPDXID"`
	Name             string            `json:"name"`
	VersionInfo      string            `json:"versionInfo"`
	DownloadLocation string            `json:"downloadLocation"`
	LicenseConcluded string            `json:"licenseConcluded"`
	LicenseDeclared  string            `json:"licenseDeclared"`
	CopyrightText    string            `json:"copyrightText"`
	FilesAnalyzed    bool              `json:"filesAnalyzed"`
	Comment          string            `json:"comment,omitempty"`
	Checksums        []spdxChecksum    `json:"checksums,omitempty"`
	ExternalRefs     []spdxExternalRef `json:"externalRefs,omitempty"`
}

// spdxChecksum is the hash of a released file.
type spdxChecksum struct {
	Algorithm string `json:"algorithm"`
	Value     string `json:"checksumValue"`
}

// spdxExternalRef identifies a package elsewhere, by its package URL.
type spdxExternalRef struct {
	Category string `json:"referenceCategory"`
	Type     string `json:"referenceType"`
	Locator  string `json:"referenceLocator"`
}

// spdxRelationship connects two packages.
type spdxRelationship struct {
	Element string `json:"spdxElementId"`
	Type    string `json:"relationshipType"`
	Related string `json:"relatedSpdxElement"`
}

const (
	spdxDocumentID = "SPDXRef-DOCUMENT"
	noAssertion    = "NOASSERTION"
	ownLicense     = "Apache-2.0"
)

// writeSBOM writes the bill of materials: the released files, the programs, and the Go modules and the Go
// version that each program was built from, which the programs themselves have.
func (r *release) writeSBOM(context.Context, string) error {
	doc := spdxDocument{
		SPDXVersion: "SPDX-2.3",
		DataLicense: "CC0-1.0",
		ID:          spdxDocumentID,
		Name:        "slipway-" + r.version.number,
		CreationInfo: spdxCreationInfo{
			Created:  r.version.when.Format(time.RFC3339),
			Creators: []string{"Tool: slipway hack/packages"},
		},
	}

	for _, name := range slices.Sorted(maps.Keys(r.files)) {
		doc.addOwn(name, r.version.number, r.url(name), r.files[name])
	}

	modules := map[string]bool{}
	for _, key := range slices.Sorted(maps.Keys(r.programs)) {
		info, err := buildinfo.ReadFile(r.programs[key])
		if err != nil {
			return fmt.Errorf("read the modules of %s: %w", key, err)
		}

		body, err := file{source: r.programs[key]}.read()
		if err != nil {
			return err
		}

		id := doc.addOwn(key, r.version.number, noAssertion, sumOf(body))
		doc.addModules(id, info, modules)
	}

	// The namespace must be unique for the content, and the same for the same content.
	body, err := json.Marshal(doc)
	if err != nil {
		return err
	}

	doc.DocumentNamespace = "https://slipway.dev/spdx/slipway-" + r.version.number + "-" + sumOf(body)[:16]
	if body, err = json.MarshalIndent(doc, "", "  "); err != nil {
		return err
	}

	return r.writeFile(fmt.Sprintf("slipway_%s.spdx.json", r.version.number), func(w io.Writer) error {
		_, err := w.Write(append(body, '\n'))
		return err
	})
}

// addOwn adds something that is released or was built here, and returns its id.
func (d *spdxDocument) addOwn(name, number, location, sum string) string {
	id := spdxID("Package", name)
	d.Packages = append(d.Packages, spdxPackage{
		ID:               id,
		Name:             name,
		VersionInfo:      number,
		DownloadLocation: location,
		LicenseConcluded: ownLicense,
		LicenseDeclared:  ownLicense,
		CopyrightText:    noAssertion,
		Checksums:        []spdxChecksum{{Algorithm: "SHA256", Value: sum}},
	})

	d.Relationships = append(d.Relationships, spdxRelationship{spdxDocumentID, "DESCRIBES", id})

	return id
}

// addModules adds what a program was built from. added has the ids that the document has already.
func (d *spdxDocument) addModules(program string, info *debug.BuildInfo, added map[string]bool) {
	parts := []debug.Module{{Path: "stdlib", Version: strings.TrimPrefix(info.GoVersion, "go")}}
	for _, m := range info.Deps {
		if m.Replace != nil {
			m = m.Replace
		}

		parts = append(parts, *m)
	}

	for _, m := range parts {
		id := spdxID("Module", m.Path+"-"+m.Version)
		d.Relationships = append(d.Relationships, spdxRelationship{program, "CONTAINS", id})
		if added[id] {
			continue
		}

		added[id] = true
		location := "https://proxy.golang.org/" + escapeModule(m.Path) + "/@v/" + m.Version + ".zip"
		if m.Path == "stdlib" {
			location = "https://go.dev/dl/go" + m.Version + ".src.tar.gz"
		}

		d.Packages = append(d.Packages, spdxPackage{
			ID:               id,
			Name:             m.Path,
			VersionInfo:      m.Version,
			DownloadLocation: location,
			LicenseConcluded: noAssertion,
			LicenseDeclared:  noAssertion,
			CopyrightText:    noAssertion,
			Comment:          m.Sum,
			ExternalRefs: []spdxExternalRef{{
				Category: "PACKAGE-MANAGER",
				Type:     "purl",
				Locator:  "pkg:golang/" + m.Path + "@" + m.Version,
			}},
		})
	}
}

// spdxID returns an id of letters, digits, dots and dashes.
func spdxID(kind, name string) string {
	return "SPDXRef-" + kind + "-" + regexp.MustCompile(`[^A-Za-z0-9.]+`).ReplaceAllString(name, "-")
}

// escapeModule escapes the upper-case letters of a module path, as module proxies require.
func escapeModule(path string) string {
	return regexp.MustCompile(`[A-Z]`).ReplaceAllStringFunc(path, func(c string) string { return "!" + strings.ToLower(c) })
}
