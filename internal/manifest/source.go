// SPDX-License-Identifier: Apache-2.0

package manifest

import (
	"fmt"
	"slices"
	"strings"

	"github.com/slipway-k8s/slipway/internal/lib/diag"
	"github.com/slipway-k8s/slipway/internal/lib/yamltext"
)

// Source is the text that a Set was parsed from. The zero Source is no text.
type Source struct {
	// File is the name of the text in messages: a path, or "stdin".
	File string
	// Text is what Parse got.
	Text []byte
}

// Locate returns findings with the file, the line and the column of each value that the text contains. A
// field that the text leaves out is located at the deepest field above it.
func (s Source) Locate(findings diag.Findings) diag.Findings {
	if s.File == "" {
		return findings
	}

	documents := s.documents()
	out := slices.Clone(findings)
	for i := range out {
		f := &out[i]
		if f.Line > 0 {
			f.File = s.File
			continue
		}

		name, path, _ := strings.Cut(f.Path, ": ")
		for _, doc := range documents[name] {
			at := doc.Find(path)
			if path == "" {
				at = yamltext.Position{Line: doc.FirstLine, Column: 1}
			}

			if at.Line == 0 { // the field and all above it are missing: where the document begins
				at = doc.Find("kind")
			}

			if at.Line > 0 {
				f.File = s.File
				f.Line = at.Line
				f.Column = at.Column

				break
			}
		}
	}

	return out
}

// documents returns the valid documents by what findings call them: "document 2", and "cluster/demo".
func (s Source) documents() map[string][]yamltext.Document {
	out := map[string][]yamltext.Document{}
	for i, doc := range yamltext.Split(s.Text) {
		doc, problem := doc.Parse()
		if problem != nil {
			continue
		}

		number := fmt.Sprintf("document %d", i+1)
		name := strings.ToLower(doc.Value("kind")) + "/" + doc.Value("metadata.name")
		out[number] = append(out[number], doc)
		out[name] = append(out[name], doc)
	}

	return out
}
