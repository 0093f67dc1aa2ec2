// SPDX-License-Identifier: Apache-2.0

package cloudformation

import (
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/slipway-k8s/slipway/internal/infra/graph"
	"github.com/slipway-k8s/slipway/internal/infra/render"
)

const (
	// KubernetesVersion is the parameter that chooses among the versions whose documents a template knows.
	KubernetesVersion = "KubernetesVersion"
	// versionsMapping is the mapping that holds them.
	versionsMapping = "Versions"
	// maxEarlier is how many other versions a template keeps: who goes back, goes back to one of the last.
	maxEarlier = 4
)

// Versions are the ends of the names of the documents of each group, with their hashes, by the group's name as templates
// spell it, by version.
type Versions map[string]map[string]string

// versionsOf finds the present version in the texts of g and adds those earlier ones that know all of its groups.
func versionsOf(g *graph.Graph, earlier Versions) (version string, all Versions) {
	present := map[string]string{}
	for _, n := range g.Nodes() {
		for _, f := range graph.Fields(n.Resource) {
			walkVersioned(f.Value, func(v graph.VersionedValue) {
				version = v.Version
				present[render.CamelCase(v.Key)] = v.Value
			})
		}
	}

	if version == "" {
		return "", nil
	}

	all = Versions{version: present}

	for _, v := range slices.SortedFunc(maps.Keys(earlier), func(a, b string) int { return slices.Compare(versionNumbers(b), versionNumbers(a)) }) {
		documents := maps.Clone(earlier[v])
		maps.DeleteFunc(documents, func(group, _ string) bool { return present[group] == "" })
		if v != version && len(documents) == len(present) && len(all) <= maxEarlier {
			all[v] = documents
		}
	}

	return version, all
}

// versionNumbers of a version, to compare 1.36.10 with 1.36.9.
func versionNumbers(version string) []int {
	var out []int
	for part := range strings.SplitSeq(version, ".") {
		n, _ := strconv.Atoi(part) // what is no number comes first
		out = append(out, n)
	}

	return out
}

func walkVersioned(v any, found func(graph.VersionedValue)) {
	switch x := v.(type) {
	case graph.Text:
		for _, p := range x.Parts() {
			for v, _, rest := graph.FindVersioned(p.Literal); v.Key != ""; v, _, rest = graph.FindVersioned(rest) {
				found(v)
			}
		}

	case map[string]any:
		for _, e := range x {
			walkVersioned(e, found)
		}
	}
}

// renderVersioned renders a string in which values may be marked that go with a version.
func renderVersioned(s string) []any {
	var out []any
	for s != "" {
		v, before, after := graph.FindVersioned(s)
		if before != "" {
			out = append(out, before)
		}

		if v.Key != "" {
			out = append(
				out,
				jsonObject{
					"Fn::FindInMap": []any{
						versionsMapping,
						jsonObject{"Ref": KubernetesVersion},
						render.CamelCase(v.Key),
					},
				},
			)
		}

		s = after
	}

	return out
}

// versionParameter is the parameter of the version.
func (r renderer) versionParameter() jsonObject {
	if r.currentVersion == "" {
		return nil
	}

	return jsonObject{KubernetesVersion: jsonObject{
		"Type": "String", "Default": r.currentVersion, "AllowedValues": slices.Sorted(maps.Keys(r.versions)),
		"Description": "version of Kubernetes",
	}}
}
