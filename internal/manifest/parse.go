// SPDX-License-Identifier: Apache-2.0

package manifest

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"

	utilyaml "k8s.io/apimachinery/pkg/util/yaml"
	"sigs.k8s.io/yaml"

	"github.com/slipway-k8s/slipway/api/v1alpha1"
	"github.com/slipway-k8s/slipway/internal/lib/diag"
)

// maxManifestBytes of a manifest: far more than any cluster needs, and little enough to read at once.
const maxManifestBytes = 1 << 20

// Parse reads a multi-document YAML (or JSON) manifest strictly. What is understood is in the Set even when there are
// findings, so that the caller can Default and Validate it and report everything at once. A Set without a Cluster
// document has an empty Cluster.Kind.
func Parse(text []byte) (Set, diag.Findings) {
	var set Set
	var fs diag.Findings
	if len(text) > maxManifestBytes {
		fs.Errorf(
			"manifest",
			"",
			"split off what is not a manifest",
			"it has %d bytes, more than %d",
			len(text),
			maxManifestBytes,
		)

		return set, fs
	}

	docs, err := splitDocuments(text)
	if err != nil {
		fs.Errorf("manifest", "", "check the YAML", "cannot be read: %s", err)
		return set, fs
	}

	for i, doc := range docs {
		set = set.addDocument(doc, fmt.Sprintf("document %d", i+1), &fs)
	}

	return set.sortedByName(), fs
}

// splitDocuments returns the documents that are not empty.
func splitDocuments(text []byte) ([][]byte, error) {
	r := utilyaml.NewYAMLReader(bufio.NewReader(bytes.NewReader(text)))
	var docs [][]byte
	for {
		doc, err := r.Read()
		if errors.Is(err, io.EOF) {
			return docs, nil
		}

		if err != nil {
			return nil, err
		}

		if !isBlankDocument(doc) {
			docs = append(docs, doc)
		}
	}
}

// isBlankDocument says that a document has only comments and separators.
func isBlankDocument(doc []byte) bool {
	for line := range strings.Lines(string(doc)) {
		line = strings.TrimSpace(line)
		if line != "" && line != "---" && !strings.HasPrefix(line, "#") {
			return false
		}
	}

	return true
}

// addDocument returns the set with one document more, if it can be decoded.
func (s Set) addDocument(doc []byte, where string, fs *diag.Findings) Set {
	fields, ok := parseFields(doc, where, fs)
	if !ok {
		return s
	}

	kind := parseKind(fields, where, fs)
	if name := metadataName(fields); name != "" {
		where = strings.ToLower(kind) + "/" + name
	}

	switch kind {
	case v1alpha1.KindCluster:
		var c v1alpha1.Cluster
		decodeDocument(fields, clusterShape(), &c, fieldChecker{where, fs})
		if s.Cluster.Kind != "" {
			fs.Errorf(where, "", "keep one Cluster; give others a file of their own", "is a second Cluster")
			return s
		}

		s.Cluster = c

	case v1alpha1.KindInstanceGroup:
		var g v1alpha1.InstanceGroup
		decodeDocument(fields, groupShape(), &g, fieldChecker{where, fs})
		s.Groups = append(s.Groups, g)
	}

	return s
}

// parseFields reads a document as a tree of fields.
func parseFields(doc []byte, where string, fs *diag.Findings) (map[string]any, bool) {
	var tree any
	asJSON, err := yaml.YAMLToJSONStrict(doc)
	if err == nil {
		err = json.Unmarshal(asJSON, &tree)
	}

	if err != nil {
		fs.Errorf(
			where,
			"",
			"check the YAML",
			"cannot be read: %s",
			strings.TrimPrefix(err.Error(), "yaml: "),
		)

		return nil, false
	}

	fields, ok := tree.(map[string]any)
	if !ok {
		fs.Errorf(where, "", "begin it with apiVersion and kind", "is not a mapping of fields")
	}

	return fields, ok
}

// parseKind returns the document's kind, or "" after saying what is wrong with it.
func parseKind(fields map[string]any, where string, fs *diag.Findings) string {
	version, _ := fields["apiVersion"].(string)
	if version != v1alpha1.APIVersion {
		fs.Errorf(where+": apiVersion", version, "write apiVersion: "+v1alpha1.APIVersion, "is not known")
	}

	kinds := []string{v1alpha1.KindCluster, v1alpha1.KindInstanceGroup}
	kind, _ := fields["kind"].(string)
	if slices.Contains(kinds, kind) {
		return kind
	}

	hint := "write " + strings.Join(kinds, " or ")
	if near := diag.Nearest(kind, kinds); near != "" {
		hint = "did you mean " + near + "?"
	}

	fs.Errorf(where+": kind", kind, hint, "is not known")

	return ""
}

func metadataName(fields map[string]any) string {
	metadata, _ := fields["metadata"].(map[string]any)
	name, _ := metadata["name"].(string)
	return name
}

// decodeDocument checks fields against shape, drops what does not fit, and puts the rest into the document.
func decodeDocument(fields map[string]any, shape any, into any, c fieldChecker) {
	c.pruneFields("", fields, shape)
	rest, err := json.Marshal(fields)
	if err == nil {
		err = json.Unmarshal(rest, into)
	}

	if err != nil { // a shape that does not fit its type; the test of shapes forbids it
		c.fs.Errorf(c.document, "", "report this", "cannot be decoded: %s", err)
	}
}

// fieldChecker reports what in a document does not fit.
type fieldChecker struct {
	document string
	fs       *diag.Findings
}

// pruneFields removes from got what shape has no place for, and reports it. Shape is a complete example of the document:
// its members are the known fields, and its values have the right types. A map with the key "*" takes any key.
func (c fieldChecker) pruneFields(path string, got map[string]any, shape any) {
	want, ok := shape.(map[string]any)
	if !ok {
		return
	}

	for _, key := range slices.Sorted(maps.Keys(got)) {
		at := strings.TrimPrefix(path+"."+key, ".")
		member, known := want[key]
		if any, free := want["*"]; free {
			member = any
			known = true
			at = path + "[" + key + "]"
		}

		switch {
		case !known:
			c.reportUnknownField(at, key, slices.Sorted(maps.Keys(want)))
			delete(got, key)
		case got[key] == nil:
			delete(got, key) // null is unset, as in Kubernetes
		case !c.checkType(at, got[key], member):
			delete(got, key)
		}
	}
}

func (c fieldChecker) reportUnknownField(at, key string, known []string) {
	hint := "known here: " + strings.Join(known, ", ")
	if near := diag.Nearest(key, known); near != "" {
		hint = "did you mean " + near + "?"
	}

	c.fs.Errorf(c.document+": "+at, "", hint, "is not a known field")
}

// checkType says whether got has the type of the example want, and goes down into objects and lists.
func (c fieldChecker) checkType(at string, got, want any) bool {
	switch want := want.(type) {
	case map[string]any:
		fields, ok := got.(map[string]any)
		if ok {
			c.pruneFields(at, fields, want)
			return true
		}

	case []any:
		items, ok := got.([]any)
		if ok {
			return c.checkItemTypes(at, items, want[0])
		}

	case string:
		if _, ok := got.(string); ok {
			return true
		}

	case bool:
		if _, ok := got.(bool); ok {
			return true
		}

	case float64:
		if n, ok := got.(float64); ok && n == float64(int32(n)) {
			return true
		}
	}

	c.fs.Errorf(
		c.document+": "+at,
		formatValue(got),
		"write "+typeHint(want),
		"must be %s, not %s",
		typeName(want),
		typeName(got),
	)

	return false
}

func (c fieldChecker) checkItemTypes(at string, items []any, want any) bool {
	all := true
	for i, item := range items {
		all = c.checkType(fmt.Sprintf("%s[%d]", at, i), item, want) && all
	}

	return all
}

func typeName(v any) string {
	switch v := v.(type) {
	case map[string]any:
		return "a mapping"
	case []any:
		return "a list"
	case string:
		return "a string"
	case bool:
		return "a boolean"
	case float64:
		if v != float64(int32(v)) {
			return "a number with a fraction or too large"
		}

		return "an integer"
	}

	return "empty"
}

func typeHint(want any) string {
	switch want.(type) {
	case map[string]any:
		return "fields under it, indented"
	case []any:
		return "one item a line, each with a dash"
	case string:
		return "it in quotes"
	case bool:
		return "true or false"
	}

	return "a whole number without quotes"
}

// formatValue renders a wrong value, shortened.
func formatValue(v any) string {
	b, err := json.Marshal(v)
	if err != nil {
		return ""
	}

	const most = 40
	if len(b) > most {
		return string(bytes.ToValidUTF8(b[:most], nil)) + "…"
	}

	return strings.Trim(string(b), `"`)
}
