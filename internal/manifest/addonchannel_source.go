// SPDX-License-Identifier: Apache-2.0

package manifest

import (
	"fmt"
	"net/url"
	"path"
	"regexp"
	"strings"

	"k8s.io/apimachinery/pkg/util/validation"

	"github.com/slipway-k8s/slipway/api/v1alpha1"
)

const (
	// AddonStateScheme begins the address of a manifest in the state store.
	AddonStateScheme = "state://"
	// AddonRegistryScheme begins the address of a chart in a registry.
	AddonRegistryScheme = "oci://"
)

// IsWebAddress reports whether a source is read over HTTP.
func IsWebAddress(text string) bool {
	return strings.HasPrefix(text, "https://") || strings.HasPrefix(text, "http://")
}

// checkSource checks where the objects are read from.
func (c addonChecker) checkSource(i int, s v1alpha1.AddonSource) {
	fix := "write one of manifest: FILE, directory: DIRECTORY, kustomization: DIRECTORY, " +
		"helm: {chart: CHART} and namespaces: [{name: NAME}]"

	var given []string

	paths := map[string]string{"directory": s.Directory, "kustomization": s.Kustomization, "manifest": s.Manifest}
	for _, field := range sortedKeys(paths) {
		if paths[field] != "" {
			given = append(given, field)
		}
	}

	if s.Helm != nil {
		given = append(given, "helm")
		c.checkChart(i, *s.Helm)
	}

	if len(s.Namespaces) > 0 {
		given = append(given, "namespaces")
		c.checkNamespaces(i, s.Namespaces)
	}

	switch {
	case len(given) == 0:
		c.errorf(i, "source.manifest", [2]string{"", fix}, "is missing")
	case len(given) > 1:
		c.errorf(i, "source."+given[0], [2]string{"", fix}, "is given in addition to %s", strings.Join(given[1:], " and "))
	case s.SHA256 != "" && s.Manifest == "":
		c.errorf(i, "source.sha256", [2]string{s.SHA256, "remove it: a hash is of a manifest"}, "is given for a %s", given[0])
	}

	c.checkManifestAddress(i, s)
	c.checkLocalPath(i, "source.directory", s.Directory)
	c.checkLocalPath(i, "source.kustomization", s.Kustomization)
	if clean := path.Clean(s.Kustomization); path.IsAbs(clean) || clean == ".." || strings.HasPrefix(clean, "../") {
		hint := "move the channel's file to a directory above it"
		c.errorf(i, "source.kustomization", [2]string{s.Kustomization, hint}, "is not below the directory of the channel's file")
	}
}

// checkManifestAddress checks the address of a manifest and its hash.
func (c addonChecker) checkManifestAddress(i int, s v1alpha1.AddonSource) {
	inState, isState := strings.CutPrefix(s.Manifest, AddonStateScheme)

	switch {
	case isState && path.Join("/", inState) != "/"+inState:
		fix := "write the key of the object without CLUSTER/addons/, such as state://metrics.yaml"
		c.errorf(i, "source.manifest", [2]string{s.Manifest, fix}, "is not an address in the state store")
	case isState:
		// the store is trusted as that of the cluster's keys
	case IsWebAddress(s.Manifest):
		c.checkWebAddress(i, "source.manifest", s.Manifest)
		if s.SHA256 == "" {
			fix := "write the output of: curl -L ADDRESS | sha256sum"
			c.errorf(i, "source.sha256", [2]string{"", fix}, "is missing: a manifest that is downloaded needs its hash")
		}
	default:
		c.checkLocalPath(i, "source.manifest", s.Manifest)
	}

	if s.SHA256 != "" && !regexp.MustCompile(`^[0-9a-f]{64}$`).MatchString(s.SHA256) {
		hint := "write the output of sha256sum FILE"
		c.errorf(i, "source.sha256", [2]string{s.SHA256, hint}, "is not a SHA-256 in lower-case hexadecimal")
	}
}

// checkWebAddress checks an address, which is printed.
func (c addonChecker) checkWebAddress(i int, field, address string) {
	parsed, err := url.Parse(address)

	switch {
	case err != nil || parsed.Host == "":
		fix := "write an address such as https://example.com/FILE"
		c.errorf(i, field, [2]string{"", fix}, "is not a valid address")
	case parsed.User != nil:
		fix := "remove them: the channel is not secret"
		c.errorf(i, field, [2]string{"", fix}, "has a user name or a password")
	}
}

// checkLocalPath refuses addresses where the path of a file is expected.
func (c addonChecker) checkLocalPath(i int, field, file string) {
	if scheme, _, found := strings.Cut(file, "://"); found {
		hint := "download it, and write the path of the file"
		c.errorf(i, field, [2]string{file, hint}, "is an address of %s, which this version of slipway cannot read", scheme)
	}
}

// maxReleaseName is Helm's limit: charts append to the name.
const maxReleaseName = 53

// checkChart checks a Helm chart.
func (c addonChecker) checkChart(i int, h v1alpha1.AddonChart) {
	registry := strings.HasPrefix(h.Chart, AddonRegistryScheme)

	switch {
	case h.Chart == "":
		fix := "write a directory, an address, or the name of a chart in a repository"
		c.errorf(i, "source.helm.chart", [2]string{"", fix}, "is missing")
	case h.Repository != "" && strings.ContainsAny(h.Chart, "/:"):
		fix := "write the name of the chart as the repository lists it"
		c.errorf(i, "source.helm.chart", [2]string{h.Chart, fix}, "is not the name of a chart in a repository")
	case IsWebAddress(h.Chart):
		c.checkWebAddress(i, "source.helm.chart", h.Chart)
	case !registry:
		c.checkLocalPath(i, "source.helm.chart", h.Chart)
	}

	c.checkChartVersion(i, h, registry)
	if problems := validation.IsDNS1123Subdomain(h.ReleaseName); h.ReleaseName != "" && len(problems) > 0 ||
		len(h.ReleaseName) > maxReleaseName {
		fix := fmt.Sprintf("write lower-case letters, digits and dashes, %d at most", maxReleaseName)
		c.errorf(i, "source.helm.releaseName", [2]string{h.ReleaseName, fix}, "is not a valid name of a release")
	}

	for n, file := range h.ValuesFiles {
		c.checkLocalPath(i, fmt.Sprintf("source.helm.valuesFiles[%d]", n), file)
	}
}

// checkChartVersion checks what fixes the content of a chart.
func (c addonChecker) checkChartVersion(i int, h v1alpha1.AddonChart, registry bool) {
	if h.Repository != "" {
		if IsWebAddress(h.Repository) {
			c.checkWebAddress(i, "source.helm.repository", h.Repository)
		} else {
			fix := "write https://HOST/PATH; for a registry write chart: oci://HOST/PATH without a repository"
			c.errorf(i, "source.helm.repository", [2]string{h.Repository, fix}, "is not the address of a chart repository")
		}

		if h.Version == "" {
			fix := "write the version of the chart"
			c.errorf(i, "source.helm.version", [2]string{"", fix}, "is missing: a chart of a repository needs it")
		}
	}

	remote := registry || h.Repository != "" || IsWebAddress(h.Chart)

	switch {
	case h.Digest == "" && remote:
		fix := "write sha256: and the hash of the archive, or the digest that 'helm pull' prints for a registry"
		c.errorf(i, "source.helm.digest", [2]string{"", fix}, "is missing: a chart that is downloaded needs it")
	case h.Digest != "" && !regexp.MustCompile(`^sha256:[0-9a-f]{64}$`).MatchString(h.Digest):
		fix := "write sha256: and 64 hexadecimal digits"
		c.errorf(i, "source.helm.digest", [2]string{h.Digest, fix}, "is not a digest")
	}
}
