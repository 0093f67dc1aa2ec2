// SPDX-License-Identifier: Apache-2.0

package manifest

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/slipway-k8s/slipway/api/v1alpha1"
)

// Diff lists how the fields of two sets differ, one a line: "+ path value", "- path value", "~ path old → new".
func Diff(before, after Set) []string {
	a, b := trees(before), trees(after)
	var lines []string
	for _, doc := range slices.Sorted(maps.Keys(merged(a, b))) {
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

// trees returns the documents of a set by kind and name.
func trees(s Set) map[string]any {
	out := map[string]any{}
	if s.Cluster.Kind != "" {
		out[docName(s.Cluster.Kind, s.Cluster.Metadata)] = treeOf(s.Cluster)
	}
	for _, g := range s.Groups {
		out[docName(g.Kind, g.Metadata)] = treeOf(g)
	}
	return out
}

func docName(kind string, m v1alpha1.Metadata) string { return strings.ToLower(kind) + "/" + m.Name }

func merged(a, b map[string]any) map[string]any {
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
		return diffMaps(path, indexed(x), indexed(y))
	}
	if before == nil {
		return []string{fmt.Sprintf("+ %s %s", path, show(after))}
	}
	if after == nil {
		return []string{fmt.Sprintf("- %s %s", path, show(before))}
	}
	if was, is := show(before), show(after); was != is {
		return []string{fmt.Sprintf("~ %s %s → %s", path, was, is)}
	}
	return nil
}

func diffMaps(path string, a, b map[string]any) []string {
	var lines []string
	for _, key := range slices.Sorted(maps.Keys(merged(a, b))) {
		at := path + "." + key
		if strings.HasSuffix(path, ": ") || strings.HasPrefix(key, "[") {
			at = path + key
		}
		lines = append(lines, diffTrees(at, a[key], b[key])...)
	}
	return lines
}

// indexed turns a list into a map by index.
func indexed(list []any) map[string]any {
	out := map[string]any{}
	for i, v := range list {
		out[fmt.Sprintf("[%d]", i)] = v
	}
	return out
}
