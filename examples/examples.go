// SPDX-License-Identifier: Apache-2.0

// Package examples contains one manifest for each topology that Slipway supports. The tests of
// test/judge run with every manifest of this folder, so that a new file is tested without further
// changes. The package does not parse the manifests.
package examples

import (
	"embed"
	"fmt"
	"slices"
	"strings"
)

//go:embed *.yaml
var files embed.FS

// Topology is one manifest of this folder.
type Topology struct {
	// Name is the file name without .yaml, as in docs/topologies.md.
	Name string
	// YAML is the content of the file.
	YAML []byte
}

// All returns the topologies, sorted by name.
func All() []Topology {
	entries, err := files.ReadDir(".")
	if err != nil {
		panic(fmt.Sprintf("read the embedded examples: %v", err))
	}

	var out []Topology

	for _, e := range entries {
		body, err := files.ReadFile(e.Name())
		if err != nil {
			panic(fmt.Sprintf("read the embedded examples: %v", err))
		}

		out = append(out, Topology{Name: strings.TrimSuffix(e.Name(), ".yaml"), YAML: body})
	}

	slices.SortFunc(out, func(a, b Topology) int { return strings.Compare(a.Name, b.Name) })

	return out
}
