// SPDX-License-Identifier: Apache-2.0

package manifest

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"

	"sigs.k8s.io/yaml"

	"github.com/slipway-k8s/slipway/api/v1alpha1"
	"github.com/slipway-k8s/slipway/internal/lib/diag"
	"github.com/slipway-k8s/slipway/internal/lib/plainerror"
	"github.com/slipway-k8s/slipway/internal/lib/yamltext"
)

// maxManifestBytes limits the size of a manifest. It is far more than any cluster needs.
const maxManifestBytes = 1 << 20

// Parse reads a multi-document YAML or JSON manifest strictly: unknown fields and wrong types are
// findings. The Set contains everything that could be decoded even if there are findings, so that
// the caller can Default and Validate it and report all findings at once. A Set without a Cluster
// document has an empty Cluster.Kind.
func Parse(text []byte) (Set, diag.Findings) {
	var set Set
	var fs diag.Findings
	if len(text) > maxManifestBytes {
		fs.Errorf(
			"manifest",
			"",
			"remove everything that is not a manifest",
			"has %d bytes, more than the limit of %d",
			len(text),
			maxManifestBytes,
		)

		return set, fs
	}

	docs := yamltext.Split(text)
	if len(docs) == 0 {
		fs.Errorf("manifest", "", "print one with: slipway create cluster NAME --dry-run", "is empty")
		fs[len(fs)-1].Line = 1
		return set, fs
	}

	for i, doc := range docs {
		set = set.addDocument(doc, fmt.Sprintf("document %d", i+1), &fs)
	}

	return set.sortedByName(), fs
}

// addDocument decodes a document and returns the set with it. It returns the set unchanged if the
// document cannot be decoded.
func (s Set) addDocument(doc yamltext.Document, where string, fs *diag.Findings) Set {
	fields, ok := parseFields(doc, where, fs)
	if !ok {
		return s
	}

	return s.addFields(fields, where, fs)
}

// addFields adds a document, or each item of a List.
func (s Set) addFields(fields map[string]any, where string, fs *diag.Findings) Set {
	if items, ok := listItems(fields); ok {
		return s.addItems(items, where, fs)
	}

	kind := parseKind(fields, where, fs)
	if name := metadataName(fields); name != "" {
		where = strings.ToLower(kind) + "/" + name
	}

	switch kind {
	case v1alpha1.KindCluster:
		var c v1alpha1.Cluster
		decodeDocument(fields, clusterShape(), &c, fieldChecker{where, kind, fs})
		if s.Cluster.Kind != "" {
			fs.Errorf(where, "", "keep one Cluster; move the others to files of their own", "is a second Cluster")
			return s
		}

		s.Cluster = c

	case v1alpha1.KindInstanceGroup:
		var g v1alpha1.InstanceGroup
		decodeDocument(fields, groupShape(), &g, fieldChecker{where, kind, fs})
		s.Groups = append(s.Groups, g)
	}

	return s
}

// listItems returns the items of a List, which 'slipway get -o json' prints as kubectl does.
func listItems(fields map[string]any) ([]any, bool) {
	if fields["apiVersion"] != "v1" || fields["kind"] != "List" {
		return nil, false
	}

	items, ok := fields["items"].([]any)

	return items, ok
}

// addItems adds the documents of a List.
func (s Set) addItems(items []any, where string, fs *diag.Findings) Set {
	for i, item := range items {
		at := fmt.Sprintf("%s: items[%d]", where, i)
		fields, ok := item.(map[string]any)
		if !ok {
			fs.Errorf(at, "", "start it with apiVersion and kind", "is not a mapping of fields")
			continue
		}

		s = s.addFields(fields, at, fs)
	}

	return s
}

// parseFields decodes a document into a tree of fields.
func parseFields(doc yamltext.Document, where string, fs *diag.Findings) (map[string]any, bool) {
	if _, problem := doc.Parse(); problem != nil {
		fs.Errorf(where, "", problem.Hint, "%s", problem.Message)
		last := &(*fs)[len(*fs)-1]
		last.Line = problem.At.Line
		last.Column = problem.At.Column

		return nil, false
	}

	var tree any
	asJSON, err := yaml.YAMLToJSONStrict(doc.Text)
	if err == nil {
		err = json.Unmarshal(asJSON, &tree)
	}

	if err != nil {
		fs.Errorf(where, "", "check the YAML", "cannot be parsed: %s", plainerror.Text(err.Error()))
		return nil, false
	}

	fields, ok := tree.(map[string]any)
	if !ok {
		fs.Errorf(where, "", "start it with apiVersion and kind", "is not a mapping of fields")
		(*fs)[len(*fs)-1].Line = doc.FirstLine
	}

	return fields, ok
}

// parseKind returns the kind of the document. It reports an unknown kind and returns "".
func parseKind(fields map[string]any, where string, fs *diag.Findings) string {
	kinds := []string{v1alpha1.KindCluster, v1alpha1.KindInstanceGroup}
	version, _ := fields["apiVersion"].(string)
	kind, _ := fields["kind"].(string)
	if version != v1alpha1.APIVersion {
		fs.Errorf(where+": apiVersion", version, hintForVersion(version, kind), "is not supported")
		if !isOwnGroup(version) {
			return "" // a document of another program: one finding is enough
		}
	}

	if slices.Contains(kinds, kind) {
		return kind
	}

	hint := "write " + strings.Join(kinds, " or ")
	if near := diag.Nearest(kind, kinds); near != "" {
		hint = "did you mean " + near + "?"
	}

	fs.Errorf(where+": kind", kind, hint, "is not a known kind")

	return ""
}

// isOwnGroup reports whether an apiVersion is empty or one of Slipway's, perhaps of another release.
func isOwnGroup(version string) bool {
	group, _, _ := strings.Cut(version, "/")
	own, _, _ := strings.Cut(v1alpha1.APIVersion, "/")

	return version == "" || group == own
}

// hintForVersion returns what to do about a document of another apiVersion.
func hintForVersion(version, kind string) string {
	const example = "print a manifest of Slipway with: slipway create cluster NAME --dry-run"
	if isOwnGroup(version) {
		return "write apiVersion: " + v1alpha1.APIVersion
	}

	group, _, _ := strings.Cut(version, "/")

	switch {
	case strings.HasPrefix(group, "kops"):
		return "this is a manifest of kops; " + example
	case strings.HasPrefix(group, "eksctl"):
		return "this is a manifest of eksctl; " + example
	case kind == "List":
		return "write each item of the list as a document of its own: slipway prints them so with -o yaml"
	case kind != "" && kind != v1alpha1.KindCluster && kind != v1alpha1.KindInstanceGroup:
		return "this is not a manifest of Slipway; kubectl apply creates objects in a cluster"
	}

	return "write apiVersion: " + v1alpha1.APIVersion
}

func metadataName(fields map[string]any) string {
	metadata, _ := fields["metadata"].(map[string]any)
	name, _ := metadata["name"].(string)
	return name
}

// decodeDocument removes the fields that do not match shape, with a finding for each, and decodes
// the others into into.
func decodeDocument(fields map[string]any, shape any, into any, c fieldChecker) {
	c.pruneFields("", fields, shape)
	rest, err := json.Marshal(fields)
	if err == nil {
		err = json.Unmarshal(rest, into)
	}

	if err != nil { // the shape does not match its type, which TestShapesLeaveOutNoField prevents
		c.fs.Errorf(c.document, "", "report this as a bug in Slipway", "cannot be decoded: %s", err)
	}
}

// fieldChecker reports the unknown fields and wrong types of a document.
type fieldChecker struct {
	document string
	kind     string // of the document
	fs       *diag.Findings
}

// pruneFields removes the fields of got that do not match shape, with a finding for each. The shape
// is a complete example of the document: its members are the known fields, and its values have the
// right types. A map with the key "*" allows any key, and anything below it if its value is nil.
func (c fieldChecker) pruneFields(path string, got map[string]any, shape any) {
	want, ok := shape.(map[string]any)
	if !ok {
		return
	}

	if example, anyKey := want["*"]; anyKey && example == nil {
		return
	}

	for _, key := range slices.Sorted(maps.Keys(got)) {
		at := strings.TrimPrefix(path+"."+key, ".")
		member, known := want[key]
		if example, anyKey := want["*"]; anyKey {
			member = example
			known = true
			at = path + "[" + key + "]"
		}

		switch {
		case !known:
			c.reportUnknownField(at, key, got, slices.Sorted(maps.Keys(want)))
			delete(got, key)
		case got[key] == nil:
			delete(got, key) // null means unset, as in Kubernetes
		case !c.checkType(at, got[key], member):
			delete(got, key)
		}
	}
}

// reportUnknownField reports the field key of got. It explains what is wrong with the field that was meant, unless
// got has that one, too.
func (c fieldChecker) reportUnknownField(at, key string, got map[string]any, known []string) {
	near := diag.Nearest(key, known)
	hint := "known here: " + strings.Join(known, ", ")
	if near != "" {
		hint = "did you mean " + near + "?"
	}

	if elsewhere := hintForField(c.kind, at); elsewhere != "" {
		near = ""
		hint = elsewhere
	}

	c.fs.Errorf(c.document+": "+at, "", hint, "is not a known field")
	if _, given := got[near]; near != "" && !given {
		last := &(*c.fs)[len(*c.fs)-1]
		last.Covers = c.document + ": " + strings.TrimSuffix(at, key) + near
	}
}

// checkType reports whether got has the type of the example want. It descends into objects and
// lists.
func (c fieldChecker) checkType(at string, got, want any) bool {
	switch want := want.(type) {
	case map[string]any:
		if fields, ok := got.(map[string]any); ok {
			c.pruneFields(at, fields, want)
			return true
		}

	case []any:
		if items, ok := got.([]any); ok {
			return c.checkItemTypes(at, items, want[0])
		}

	default:
		if isScalarOfType(got, want) {
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
	(*c.fs)[len(*c.fs)-1].Covers = c.document + ": " + at

	return false
}

// isScalarOfType reports whether got is a text, a truth value or an integer as the example want is. For a field
// that is a number or a percentage both a text and an integer are right.
func isScalarOfType(got, want any) bool {
	number, isNumber := got.(float64)
	isInteger := isNumber && number == float64(int32(number))

	switch want.(type) {
	case string:
		_, isText := got.(string)

		return isText || isInteger && want == numberOrPercent

	case bool:
		_, isBool := got.(bool)

		return isBool

	case float64:
		return isInteger
	}

	return false
}

func (c fieldChecker) checkItemTypes(at string, items []any, want any) bool {
	all := true
	for i, item := range items {
		all = c.checkType(fmt.Sprintf("%s[%d]", at, i), item, want) && all
	}

	return all
}

// typeName returns the type of a JSON value for findings.
func typeName(v any) string {
	if v == any(numberOrPercent) {
		return "a number or a percentage"
	}

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
			return "a fractional or too large number"
		}

		return "an integer"
	}

	return "empty"
}

// typeHint returns what to write for a value of the type of want.
func typeHint(want any) string {
	if want == any(numberOrPercent) {
		return "a number, or a percentage in quotes"
	}

	switch want.(type) {
	case map[string]any:
		return "indented fields below it"
	case []any:
		return "one item per line, each with a dash"
	case string:
		return "it in quotes"
	case bool:
		return "true or false"
	}

	return "a whole number without quotes"
}

// formatValue renders a value for a finding, cut to 40 bytes.
func formatValue(v any) string {
	b, err := json.Marshal(v)
	if err != nil {
		return ""
	}

	const maxBytes = 40
	if len(b) > maxBytes {
		return string(bytes.ToValidUTF8(b[:maxBytes], nil)) + "…"
	}

	return strings.Trim(string(b), `"`)
}
