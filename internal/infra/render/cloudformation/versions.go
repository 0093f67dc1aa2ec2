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
	// KubernetesVersion is the parameter that selects the Kubernetes version and so the node documents.
	KubernetesVersion = "KubernetesVersion"
	// versionsMapping is the mapping with the documents of each version.
	versionsMapping = "Versions"
	// maxEarlier is the number of earlier versions that a template keeps, the latest ones.
	maxEarlier = 4
)

// Versions maps a Kubernetes version to a map from instance groups, in camel case, to the end of the name of
// the group's node document and its hash.
type Versions map[string]map[string]string

// versionsOf returns the Kubernetes version in the texts of g, and the versions of the template: the present
// one, and those of earlier that have all of its groups. It returns nothing if g has no
// [graph.VersionedValue].
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

	latestFirst := func(a, b string) int { return slices.Compare(versionNumbers(b), versionNumbers(a)) }
	for _, v := range slices.SortedFunc(maps.Keys(earlier), latestFirst) {
		documents := maps.Clone(earlier[v])
		maps.DeleteFunc(documents, func(group, _ string) bool { return present[group] == "" })
		if v != version && len(documents) == len(present) && len(all) <= maxEarlier {
			all[v] = documents
		}
	}

	return version, all
}

// versionNumbers returns the numbers of a version, which sort 1.36.10 after 1.36.9.
func versionNumbers(version string) []int {
	var out []int
	for part := range strings.SplitSeq(version, ".") {
		n, _ := strconv.Atoi(part) // 0 if it is not a number
		out = append(out, n)
	}

	return out
}

func walkVersioned(v any, found func(graph.VersionedValue)) {
	switch x := v.(type) {
	case graph.Text:
		for _, p := range x.Parts() {
			v, _, rest := graph.FindVersioned(p.Literal)
			for v.Key != "" {
				found(v)
				v, _, rest = graph.FindVersioned(rest)
			}
		}

	case map[string]any:
		for _, e := range x {
			walkVersioned(e, found)
		}
	}
}

// renderVersioned renders a string that may contain placeholders of [graph.VersionedValue].
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

// versionParameter returns the parameter KubernetesVersion.
func (r renderer) versionParameter() jsonObject {
	if r.currentVersion == "" {
		return nil
	}

	return jsonObject{KubernetesVersion: jsonObject{
		"Type":          "String",
		"Default":       r.currentVersion,
		"AllowedValues": slices.Sorted(maps.Keys(r.versions)),
		"Description":   "version of Kubernetes",
	}}
}
