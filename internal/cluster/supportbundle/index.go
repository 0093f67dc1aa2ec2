// SPDX-License-Identifier: Apache-2.0

package supportbundle

import (
	"bytes"
	_ "embed"
	"fmt"
	"html/template"
)

//go:embed index.html.tmpl
var indexTemplate string

// indexPage is what the index shows.
type indexPage struct {
	Header
	// Files are all sources, also those that failed.
	Files []File
	// Failed is the number of sources that could not be read.
	Failed int
	// Redactions is the number of secrets that were replaced in all files.
	Redactions int
}

// renderIndex returns the index of a bundle as HTML. It needs nothing but the files next to it.
func renderIndex(h Header, files []File) ([]byte, error) {
	page := indexPage{Header: h, Files: files}
	for _, f := range files {
		page.Redactions += f.Redactions
		if f.Error != "" {
			page.Failed++
		}
	}

	t, err := template.New("index").Parse(indexTemplate)
	if err != nil {
		return nil, fmt.Errorf("parse the index's template: %w", err)
	}

	var out bytes.Buffer
	if err := t.Execute(&out, page); err != nil {
		return nil, fmt.Errorf("render the index: %w", err)
	}

	return out.Bytes(), nil
}
