// SPDX-License-Identifier: Apache-2.0

package source

import (
	"errors"
	"fmt"
	"maps"
	"os"
	"path"
	"regexp"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/kustomize/api/krusty"
	"sigs.k8s.io/yaml"

	"github.com/slipway-k8s/slipway/internal/lib/diag"
)

// readKustomization returns the objects of a kustomization. It reads files of the channel's directory only.
func (r Reader) readKustomization(directory string) ([]*unstructured.Unstructured, error) {
	root, err := os.OpenRoot(r.resolve("."))
	if err != nil {
		return nil, fmt.Errorf("open the directory of the channel: %w", err)
	}

	defer func() { _ = root.Close() }()

	tree := &kustomizeTree{reader: treeReader{root: root}}

	resources, err := krusty.MakeKustomizer(krusty.MakeDefaultOptions()).Run(tree, path.Join("/", directory))
	if tree.refused != nil {
		return nil, fmt.Errorf("kustomization %s: %w", directory, tree.refused)
	}

	if err != nil {
		return nil, diag.WithHint(
			fmt.Errorf("kustomization %s: %w", directory, err),
			"all its files must be in the directory of the channel's file, or below",
		)
	}

	text, err := resources.AsYaml()
	if err != nil {
		return nil, fmt.Errorf("kustomization %s: encode its objects: %w", directory, err)
	}

	if len(text) > maxManifestBytes {
		return nil, fmt.Errorf("kustomization %s: its objects have more than the limit of %d bytes", directory, maxManifestBytes)
	}

	return parseObjects("kustomization "+directory, text)
}

// isKustomizationName reports whether a file of this name is a kustomization.
func isKustomizationName(name string) bool {
	return slices.Contains([]string{"kustomization.yaml", "kustomization.yml", "Kustomization"}, name)
}

// checkKustomization refuses a kustomization that names anything but local files: kustomize runs git for the address of a
// repository, and downloads other addresses without a hash. It refuses unknown fields, which may name files, too.
func checkKustomization(text []byte) error {
	var fields map[string]any
	if err := yaml.UnmarshalStrict(text, &fields); err != nil {
		return err
	}

	checker := kustomizationChecker{}
	for _, key := range slices.Sorted(maps.Keys(fields)) {
		checker.checkField(key, fields[key])
	}

	return errors.Join(checker.errs...)
}

// kustomizationChecker collects what a kustomization must not have.
type kustomizationChecker struct {
	errs []error
}

// checkField checks one field of a kustomization.
func (c *kustomizationChecker) checkField(key string, value any) {
	switch key {
	case "apiVersion", "kind", "metadata", "namePrefix", "nameSuffix", "namespace", "commonLabels", "labels",
		"commonAnnotations", "images", "imageTags", "replicas", "vars", "sortOptions", "generatorOptions", "buildMetadata":
		// they name no files

	case "resources", "components", "bases", "crds", "configurations", "openapi", "patchesStrategicMerge":
		c.checkPaths(key, value)

	case "patches", "patchesJson6902", "replacements", "configMapGenerator", "secretGenerator":
		c.checkMembers(key, value)

	case "helmCharts", "helmGlobals", "helmChartInflationGenerator":
		c.refuse(key, "", "write an add-on with helm: {chart: CHART}", "runs the program helm")

	default:
		c.refuse(key, "", "render the kustomization with 'kubectl kustomize', and write manifest: FILE", "is not supported")
	}
}

// refuse records a finding.
func (c *kustomizationChecker) refuse(key, value, hint, problem string) {
	if value != "" {
		key += " " + fmt.Sprintf("%q", value)
	}

	c.errs = append(c.errs, diag.WithHint(fmt.Errorf("%s %s", key, problem), hint))
}

// checkMembers checks the members of a list that name files. Kustomize ignores the case of their names.
func (c *kustomizationChecker) checkMembers(key string, value any) {
	switch value := value.(type) {
	case []any:
		for _, item := range value {
			c.checkMembers(key, item)
		}

	case map[string]any:
		for _, name := range slices.Sorted(maps.Keys(value)) {
			isPath := func(known string) bool { return strings.EqualFold(name, known) }
			if slices.ContainsFunc([]string{"path", "files", "envs", "env"}, isPath) {
				c.checkPaths(key+"."+name, value[name])
			}
		}
	}
}

// checkPaths checks that all texts of a value are relative paths.
func (c *kustomizationChecker) checkPaths(key string, value any) {
	switch value := value.(type) {
	case []any:
		for _, item := range value {
			c.checkPaths(key, item)
		}

	case map[string]any:
		for _, name := range slices.Sorted(maps.Keys(value)) {
			c.checkPaths(key+"."+name, value[name])
		}

	case string:
		if !isLocalPath(value) {
			hint := "copy it into the directory of the channel, and write its path"
			c.refuse(key, value, hint, "is not the path of a local file")
		}
	}
}

// isLocalPath reports whether kustomize reads a text as a path of a file: not as an address, nor as a repository, which
// may be written as host:path, as user@host:path or as github.com/path.
func isLocalPath(text string) bool {
	const paths = `^[A-Za-z0-9._][A-Za-z0-9._/+=, ~-]*$`

	return regexp.MustCompile(paths).MatchString(text) && !strings.HasPrefix(strings.ToLower(text), "github.com")
}
