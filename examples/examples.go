// SPDX-License-Identifier: Apache-2.0

// Package examples holds one manifest for each topology that slipway builds. Every judge takes its topologies from
// here, so that a new file is judged without another line. It does not know what a manifest means.
package examples

import (
	"embed"
	"fmt"
	"slices"
	"strings"
)

//go:embed *.yaml
var files embed.FS

// Topology is one file of this folder.
type Topology struct {
	// Name of the file without .yaml, as in docs/topologies.md.
	Name string
	// YAML is what the file holds.
	YAML []byte
}

// All returns the topologies, sorted by name.
func All() []Topology {
	entries, err := files.ReadDir(".")
	if err != nil {
		panic(fmt.Sprintf("examples: %v", err)) // they are part of the program
	}
	var out []Topology
	for _, e := range entries {
		body, err := files.ReadFile(e.Name())
		if err != nil {
			panic(fmt.Sprintf("examples: %v", err))
		}
		out = append(out, Topology{Name: strings.TrimSuffix(e.Name(), ".yaml"), YAML: body})
	}
	slices.SortFunc(out, func(a, b Topology) int { return strings.Compare(a.Name, b.Name) })
	return out
}
