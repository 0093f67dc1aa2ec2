// SPDX-License-Identifier: Apache-2.0

package manifest

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/slipway-k8s/slipway/api/v1alpha1"
)

// Diff returns one line for each field that differs between two sets: "+ path value", "- path
// value" or "~ path old → new". Lines are sorted by document and path.
func Diff(before, after Set) []string {
	a := documentTrees(before)
	b := documentTrees(after)
	var lines []string

	for _, doc := range slices.Sorted(maps.Keys(mergeMaps(a, b))) {
		switch {
		case a[doc] == nil:
			lines = append(lines, "+ "+doc)
		case b[doc] == nil:
			lines = append(lines, "- "+doc)
		default:
			lines = append(lines, diffTrees(doc+": ", a[doc], b[doc])...)
		}
	}

	return lines
}

// documentTrees returns the documents of a set as JSON trees, by kind and name.
func documentTrees(s Set) map[string]any {
	out := map[string]any{}
	if s.Cluster.Kind != "" {
		out[documentName(s.Cluster.Kind, s.Cluster.Metadata)] = toJSONTree(s.Cluster)
	}

	for _, g := range s.Groups {
		out[documentName(g.Kind, g.Metadata)] = toJSONTree(g)
	}

	return out
}

// documentName returns the name of a document in findings and differences, such as cluster/demo.
func documentName(kind string, m v1alpha1.Metadata) string {
	return strings.ToLower(kind) + "/" + m.Name
}

func mergeMaps(a, b map[string]any) map[string]any {
	all := maps.Clone(a)
	maps.Copy(all, b)
	return all
}

func diffTrees(path string, before, after any) []string {
	a, aMap := before.(map[string]any)
	b, bMap := after.(map[string]any)
	if aMap && bMap {
		return diffMaps(path, a, b)
	}

	x, xList := before.([]any)
	y, yList := after.([]any)
	if xList && yList {
		return diffMaps(path, indexList(x), indexList(y))
	}

	if before == nil {
		return []string{fmt.Sprintf("+ %s %s", path, formatValue(after))}
	}

	if after == nil {
		return []string{fmt.Sprintf("- %s %s", path, formatValue(before))}
	}

	if was, is := formatValue(before), formatValue(after); was != is {
		return []string{fmt.Sprintf("~ %s %s → %s", path, was, is)}
	}

	return nil
}

func diffMaps(path string, a, b map[string]any) []string {
	var lines []string
	for _, key := range slices.Sorted(maps.Keys(mergeMaps(a, b))) {
		at := path + "." + key
		if strings.HasSuffix(path, ": ") || strings.HasPrefix(key, "[") {
			at = path + key
		}

		lines = append(lines, diffTrees(at, a[key], b[key])...)
	}

	return lines
}

// indexList converts a list into a map with keys such as [0].
func indexList(list []any) map[string]any {
	out := map[string]any{}
	for i, v := range list {
		out[fmt.Sprintf("[%d]", i)] = v
	}

	return out
}
