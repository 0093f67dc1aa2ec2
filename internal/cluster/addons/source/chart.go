// SPDX-License-Identifier: Apache-2.0

package source

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"path"
	"slices"
	"strconv"
	"strings"

	"helm.sh/helm/v3/pkg/chart"
	"helm.sh/helm/v3/pkg/chartutil"
	"helm.sh/helm/v3/pkg/engine"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/yaml"

	"github.com/slipway-k8s/slipway/api/v1alpha1"
	"github.com/slipway-k8s/slipway/internal/lib/diag"
	"github.com/slipway-k8s/slipway/internal/machine/addon/bundle"
)

// readChart returns the objects of a chart.
func (r Reader) readChart(
	ctx context.Context,
	a v1alpha1.Addon,
	parameters *bundle.Parameters,
) ([]*unstructured.Unstructured, error) {
	source := a.Source.Helm
	values, err := r.chartValues(source, parameters)
	if err != nil {
		return nil, err
	}

	loaded, err := r.loadChart(ctx, source)
	if err != nil {
		return nil, fmt.Errorf("chart %s: %w", withoutQuery(source.Chart), err)
	}

	rendering := chartRendering{addon: a, chart: loaded, values: values, capabilities: r.capabilities(source)}

	objects, err := rendering.objects()
	if err != nil {
		return nil, fmt.Errorf("chart %s: %w", withoutQuery(source.Chart), err)
	}

	return objects, nil
}

// chartValues returns the values that the channel gives a chart: the files in their order, then the values of the
// channel, with the parameters.
func (r Reader) chartValues(source *v1alpha1.AddonChart, parameters *bundle.Parameters) (map[string]any, error) {
	out := map[string]any{}
	for _, file := range source.ValuesFiles {
		text, err := readFile(r.resolve(file), maxManifestBytes)
		if err != nil {
			return nil, fmt.Errorf("read the values: %w", err)
		}

		var values map[string]any
		if err := yaml.UnmarshalStrict(text, &values); err != nil {
			return nil, fmt.Errorf("read the values in %s: %w", file, err)
		}

		out = mergeValues(out, values)
	}

	out = mergeValues(out, source.Values)
	replaced, _ := parameters.Replace(wholeNumbers(out)).(map[string]any)

	return replaced, nil
}

// mergeValues returns values with others on top. Maps are merged, other values are replaced. A null stays: it removes
// a default of the chart.
func mergeValues(below, above map[string]any) map[string]any {
	out := maps.Clone(below)
	for key, value := range above {
		upper, isMap := value.(map[string]any)
		lower, wasMap := out[key].(map[string]any)
		if isMap && wasMap {
			out[key] = mergeValues(lower, upper)
			continue
		}

		out[key] = value
	}

	return out
}

// wholeNumbers returns a value with integers where JSON's decoder has made floating-point numbers of them: a template
// prints 1000000 as 1e+06 otherwise.
func wholeNumbers(value any) any {
	const exact = 1 << 53 // a float64 has all integers below

	switch value := value.(type) {
	case map[string]any:
		out := map[string]any{}
		for key, member := range value {
			out[key] = wholeNumbers(member)
		}

		return out

	case []any:
		out := make([]any, len(value))
		for i, item := range value {
			out[i] = wholeNumbers(item)
		}

		return out

	case float64:
		if value > -exact && value < exact && value == float64(int64(value)) {
			return int64(value)
		}
	}

	return value
}

// capabilities returns what a chart is told about the cluster. They do not depend on what the cluster has at the
// moment, so that the same channel gives the same objects.
func (r Reader) capabilities(source *v1alpha1.AddonChart) *chartutil.Capabilities {
	out := chartutil.DefaultCapabilities.Copy()
	out.KubeVersion = chartutil.KubeVersion{
		Version: "v" + r.Kubernetes.String(),
		Major:   strconv.FormatUint(r.Kubernetes.Major(), 10),
		Minor:   strconv.FormatUint(r.Kubernetes.Minor(), 10),
	}

	out.APIVersions = append(slices.Clone(out.APIVersions), source.APIVersions...)

	return out
}

// chartRendering renders a chart.
type chartRendering struct {
	addon        v1alpha1.Addon
	chart        *chart.Chart
	values       map[string]any
	capabilities *chartutil.Capabilities
}

// objects returns the objects of the chart and of its dependencies, CustomResourceDefinitions among them.
func (c chartRendering) objects() ([]*unstructured.Unstructured, error) {
	if err := c.check(); err != nil {
		return nil, err
	}

	if err := chartutil.ProcessDependenciesWithMerge(c.chart, c.values); err != nil {
		return nil, fmt.Errorf("select its dependencies: %w", err)
	}

	rendered, err := c.render()
	if err != nil {
		return nil, err
	}

	var objects []*unstructured.Unstructured

	for _, crd := range c.chart.CRDObjects() {
		read, err := parseObjects(crd.Filename, crd.File.Data)
		if err != nil {
			return nil, err
		}

		objects = append(objects, read...)
	}

	for _, name := range slices.Sorted(maps.Keys(rendered)) {
		read, err := parseObjects(name, []byte(rendered[name]))
		if err != nil {
			return nil, err
		}

		objects = append(objects, read...)
	}

	return c.withoutHooks(objects)
}

// check refuses a chart that cannot be rendered for this cluster.
func (c chartRendering) check() error {
	meta := c.chart.Metadata
	version := c.capabilities.KubeVersion.Version

	switch {
	case meta.Type == "library":
		return diag.WithHint(errors.New("it is a library, which has no objects"), "name a chart that uses it")

	case meta.KubeVersion != "" && !chartutil.IsCompatibleRange(meta.KubeVersion, version):
		return diag.WithHint(
			fmt.Errorf("version %s is for Kubernetes %s, and the cluster has %s", meta.Version, meta.KubeVersion, version),
			"choose another version of the chart, and give each entry a kubernetesVersion",
		)
	}

	for _, wanted := range meta.Dependencies {
		named := func(d *chart.Chart) bool { return d.Name() == wanted.Name }
		if !slices.ContainsFunc(c.chart.Dependencies(), named) {
			return diag.WithHint(
				fmt.Errorf("its dependency %s is not in charts/", wanted.Name),
				"run 'helm dependency build', or use a packaged chart, which has its dependencies",
			)
		}
	}

	return nil
}

// render returns the texts of the templates. It renders twice: what differs is generated, and would change with each
// apply.
func (c chartRendering) render() (map[string]string, error) {
	first, err := c.renderOnce()
	if err != nil {
		return nil, err
	}

	second, err := c.renderOnce()
	if err != nil {
		return nil, err
	}

	for _, name := range slices.Sorted(maps.Keys(first)) {
		if first[name] != second[name] {
			return nil, diag.WithHint(
				fmt.Errorf("%s generates a password, a key or a name, which would change with each apply", name),
				"set values so that the chart uses an existing Secret",
			)
		}
	}

	return first, nil
}

// renderOnce returns the texts of the templates that have objects.
func (c chartRendering) renderOnce() (map[string]string, error) {
	options := chartutil.ReleaseOptions{
		Name:      c.addon.Source.Helm.ReleaseName,
		Namespace: c.addon.Namespace,
		Revision:  1,
		IsInstall: true,
	}

	if options.Name == "" {
		options.Name = c.addon.Name
	}

	if options.Namespace == "" {
		options.Namespace = metav1.NamespaceDefault
	}

	// Helm's own validation downloads what a schema refers to.
	values, err := chartutil.ToRenderValuesWithSchemaValidation(c.chart, c.values, options, c.capabilities, true)
	if err != nil {
		return nil, err
	}

	if table, err := values.Table("Values"); err == nil {
		if err := checkSchemas(c.chart, table); err != nil {
			return nil, err
		}
	}

	texts, err := engine.Engine{}.Render(c.chart, values)
	if err != nil {
		return nil, diag.WithHint(err, "correct the values; 'helm template --debug' shows more")
	}

	size := 0
	for name, text := range texts {
		size += len(text)
		if path.Base(name) == "NOTES.txt" || strings.HasPrefix(path.Base(name), "_") {
			delete(texts, name)
		}
	}

	if size > maxManifestBytes {
		return nil, fmt.Errorf("its objects have %d bytes, more than the limit of %d", size, maxManifestBytes)
	}

	return texts, nil
}

// hookAnnotation is on objects that Helm creates at a moment of an installation, and deletes later.
const hookAnnotation = "helm.sh/hook"

// withoutHooks returns the objects without those of tests. Other hooks are refused: nothing would run them, and a chart
// that has them may not work without.
func (c chartRendering) withoutHooks(objects []*unstructured.Unstructured) ([]*unstructured.Unstructured, error) {
	var out []*unstructured.Unstructured
	var hooks []string

	for _, o := range objects {
		hook := o.GetAnnotations()[hookAnnotation]

		switch {
		case hook == "" || hook == "crd-install":
			out = append(out, o)
		case strings.HasPrefix(hook, "test") || c.addon.Source.Helm.SkipHooks:
			// left out
		default:
			hooks = append(hooks, bundle.ReferenceOf(o).String()+" ("+hook+")")
		}
	}

	if len(hooks) > 0 {
		return nil, diag.WithHint(
			fmt.Errorf("it has hooks, which slipway does not run: %s", strings.Join(hooks, ", ")),
			"set values so that the chart has none, or write skipHooks: true if it works without them",
		)
	}

	return out, nil
}
