// SPDX-License-Identifier: Apache-2.0

package asset

import (
	"cmp"
	"encoding/json"
	"fmt"
	"maps"
	"math"
	"net/url"
	"regexp"
	"slices"
	"strings"

	"sigs.k8s.io/yaml"

	"github.com/slipway-k8s/slipway/internal/lib/diag"
	"github.com/slipway-k8s/slipway/internal/lib/plainerror"
)

// ParseCatalog parses and validates a catalogue strictly. The error is diag.Findings with all
// findings.
func ParseCatalog(raw []byte) (Catalog, error) {
	var (
		c  Catalog
		fs diag.Findings
	)

	asJSON, err := yaml.YAMLToJSONStrict(raw)
	if err != nil {
		fs.Errorf("catalog", "", "fix the YAML; each key is allowed only once", "cannot be parsed: %s", plainerror.Text(err.Error()))
		return Catalog{}, fs.Err()
	}

	var tree any
	if err := json.Unmarshal(asJSON, &tree); err != nil {
		fs.Errorf("catalog", "", "fix the YAML", "cannot be parsed: %s", plainerror.Text(err.Error()))
		return Catalog{}, fs.Err()
	}

	checkShape(&fs, "", tree, catalogShape())
	if fs.Err() != nil {
		return Catalog{}, fs.Err()
	}

	if err := json.Unmarshal(asJSON, &c); err != nil {
		fs.Errorf("catalog", "", "fix the YAML", "cannot be decoded: %v", err)
		return Catalog{}, fs.Err()
	}

	c.validate(&catalogChecker{findings: &fs, compiled: map[string]*regexp.Regexp{}})
	if err := fs.Err(); err != nil {
		return Catalog{}, err
	}

	return c, nil
}

// documentShape is the allowed structure of a part of a document. At most one field is set; the
// zero shape is a string.
type documentShape struct {
	fields map[string]documentShape // an object with these keys
	items  *documentShape           // a list of these
	values bool                     // an object with any keys and strings as values
	number bool                     // a whole number
}

// catalogShape returns the structure of a Catalog. With it, all unknown fields are reported with
// their paths, not only the first one.
func catalogShape() documentShape {
	s := documentShape{}
	file := documentShape{
		fields: map[string]documentShape{
			"name":    s,
			"version": s,
			"arch":    s,
			"url":     s,
			"sha256":  s,
			"form":    s,
			"size":    {number: true},
		},
	}

	image := documentShape{
		fields: map[string]documentShape{"name": s, "version": s, "ref": s, "digests": {values: true}},
	}

	return documentShape{fields: map[string]documentShape{
		"apiVersion": s, "kind": s, "fileRepository": s, "containerRegistry": s,
		"files": {items: &file}, "images": {items: &image},
	}}
}

func checkShape(fs *diag.Findings, path string, node any, want documentShape) {
	switch {
	case want.fields != nil || want.values:
		checkObject(fs, path, node, want)
	case want.items != nil:
		list, ok := node.([]any)
		if !ok && node != nil {
			fs.Errorf(path, "", "write one item per line, each with a dash", "must be a list")
		}

		for i, item := range list {
			checkShape(fs, fmt.Sprintf("%s[%d]", path, i), item, *want.items)
		}

	case want.number:
		checkNumber(fs, path, node)

	default:
		if _, ok := node.(string); !ok {
			fs.Errorf(path, fmt.Sprint(node), "put it in quotes", "must be a string")
		}
	}
}

func checkNumber(fs *diag.Findings, path string, node any) {
	if n, ok := node.(float64); !ok || n < 1 || n != math.Trunc(n) {
		fs.Errorf(path, fmt.Sprint(node), "write the size in bytes, or leave it out", "must be a positive whole number")
	}
}

func checkObject(fs *diag.Findings, path string, node any, want documentShape) {
	object, ok := node.(map[string]any)
	if !ok {
		fs.Errorf(cmp.Or(path, "catalog"), "", "write one key: value per line", "must be an object")
		return
	}

	for _, key := range slices.Sorted(maps.Keys(object)) {
		sub, known := want.fields[key]
		if !known && !want.values {
			fs.Errorf(
				joinPath(path, key),
				"",
				"use one of "+strings.Join(slices.Sorted(maps.Keys(want.fields)), ", "),
				"is not a known field",
			)

			continue
		}

		checkShape(fs, joinPath(path, key), object[key], sub)
	}
}

func joinPath(path, key string) string {
	if path == "" {
		return key
	}

	return path + "." + key
}

func (c Catalog) validate(check *catalogChecker) {
	if c.APIVersion != APIVersion {
		check.errorf("apiVersion", c.APIVersion, "use "+APIVersion, "is not supported")
	}

	if c.Kind != CatalogKind {
		check.errorf("kind", c.Kind, "use "+CatalogKind, "is not a known kind")
	}

	if u, err := url.Parse(c.FileRepository); c.FileRepository != "" &&
		(err != nil || u.Host == "" || (u.Scheme != "http" && u.Scheme != "https")) {
		check.errorf(
			"fileRepository",
			c.FileRepository,
			"use the form https://mirror.example/files",
			"must be an http or https URL",
		)
	}

	if c.ContainerRegistry != "" &&
		!check.matchesPattern(`^[a-zA-Z0-9.-]+(:[0-9]+)?(/[a-z0-9._/-]+)?/?$`, c.ContainerRegistry) {
		check.errorf(
			"containerRegistry",
			c.ContainerRegistry,
			"use the form registry.example:5000, without https://",
			"must be a host, port and path",
		)
	}

	seen := map[string]int{}

	for i, f := range c.Files {
		path := fmt.Sprintf("files[%d]", i)
		f.validateFile(check, path)
		checkUnique(check, seen, path, fmt.Sprintf("%s %s for %s", f.Name, f.Version, f.Arch))
	}

	clear(seen)

	for i, im := range c.Images {
		path := fmt.Sprintf("images[%d]", i)
		im.validateImage(check, path)
		checkUnique(check, seen, path, im.Name+" "+im.Version)
	}
}

// checkUnique reports an entry with the key of an earlier one. Otherwise the order would decide
// which hash applies.
func checkUnique(check *catalogChecker, seen map[string]int, path, key string) {
	if first, twice := seen[key]; twice {
		check.errorf(path, key, "remove one of the two", "duplicates entry %d", first)
		return
	}

	seen[key] = len(seen)
}

func (f File) validateFile(check *catalogChecker, path string) {
	checkNameVersion(check, path, f.Name, f.Version)
	if !IsKnownArchitecture(f.Arch) {
		check.errorf(
			path+".arch",
			f.Arch,
			"use one of "+strings.Join(knownArchitectures(), ", "),
			"is not a known architecture",
		)
	}

	if u, err := url.Parse(f.URL); err != nil || u.Scheme != "https" || u.Host == "" || u.Path == "" {
		check.errorf(
			path+".url",
			f.URL,
			"use the upstream URL; set a mirror in fileRepository",
			"must be an https URL",
		)
	}

	if !check.matchesPattern(`^[0-9a-f]{64}$`, f.SHA256) {
		check.errorf(path+".sha256", f.SHA256, "use the output of sha256sum", "must be 64 lowercase hex digits")
	}

	if f.Format != FormatBinary && f.Format != FormatArchive {
		check.errorf(path+".form", string(f.Format), "use binary or archive", "is not a known format")
	}
}

func (i Image) validateImage(check *catalogChecker, path string) {
	checkNameVersion(check, path, i.Name, i.Version)
	if !check.matchesPattern(
		`^[a-z0-9.-]+(:[0-9]+)?(/[a-z0-9._-]+)+:[A-Za-z0-9_][A-Za-z0-9._-]{0,127}$`,
		i.Ref,
	) {
		check.errorf(
			path+".ref",
			i.Ref,
			"use the form registry.k8s.io/pause:3.10.1; set the digest in digests",
			"must be host/path:tag",
		)
	}

	for _, arch := range slices.Sorted(maps.Keys(i.Digests)) {
		if !IsKnownArchitecture(arch) {
			check.errorf(
				path+".digests",
				arch,
				"use one of "+strings.Join(knownArchitectures(), ", "),
				"is not a known architecture",
			)
		}

		if !check.matchesPattern(`^sha256:[0-9a-f]{64}$`, i.Digests[arch]) {
			check.errorf(
				path+".digests."+arch,
				i.Digests[arch],
				"use the digest of the manifest",
				"must be sha256: and 64 lowercase hex digits",
			)
		}
	}
}

func checkNameVersion(check *catalogChecker, path, name, version string) {
	if !check.matchesPattern(`^[a-z0-9]([a-z0-9-]*[a-z0-9])?$`, name) {
		check.errorf(path+".name", name, "use the form kubelet", "must be lowercase letters, digits and dashes")
	}

	if !check.matchesPattern(`^[0-9A-Za-z][0-9A-Za-z.+-]*$`, version) || strings.HasPrefix(version, "v") {
		check.errorf(path+".version", version, "use the form 1.36.3, without a leading v", "is not a valid version")
	}
}

// IsKnownArchitecture reports whether a catalogue can have files and images for an architecture.
func IsKnownArchitecture(arch string) bool { return slices.Contains(knownArchitectures(), arch) }

func knownArchitectures() []string { return []string{"amd64", "arm64"} }

// catalogChecker collects findings. It compiles each pattern only once, since a catalogue has about
// a hundred entries.
type catalogChecker struct {
	findings *diag.Findings
	compiled map[string]*regexp.Regexp
}

func (c *catalogChecker) errorf(path, value, hint, format string, args ...any) {
	c.findings.Errorf(path, value, hint, format, args...)
}

func (c *catalogChecker) matchesPattern(pattern, s string) bool {
	re, ok := c.compiled[pattern]
	if !ok {
		re = regexp.MustCompile(pattern)
		c.compiled[pattern] = re
	}

	return re.MatchString(s)
}
