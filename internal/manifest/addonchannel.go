// SPDX-License-Identifier: Apache-2.0

package manifest

import (
	"strings"

	"github.com/slipway-k8s/slipway/api/v1alpha1"
	"github.com/slipway-k8s/slipway/internal/lib/diag"
	"github.com/slipway-k8s/slipway/internal/lib/yamltext"
)

// ParseAddonChannel reads a channel of add-ons: an AddonChannel, or a kops channel, which is converted to one. It
// reports everything that is wrong at once: YAML, unknown fields, wrong types and values.
func ParseAddonChannel(text []byte) (v1alpha1.AddonChannel, diag.Findings) {
	var channel v1alpha1.AddonChannel
	var fs diag.Findings

	docs := yamltext.Split(text)

	switch {
	case len(text) > maxManifestBytes:
		fs.Errorf("channel", "", "split the channel", "has %d bytes, more than the limit of %d", len(text), maxManifestBytes)
		return channel, fs
	case len(docs) != 1:
		fs.Errorf("channel", "", "write one document of kind "+v1alpha1.KindAddonChannel, "has %d documents", len(docs))
		return channel, fs
	}

	fields, ok := parseFields(docs[0], "document 1", &fs)
	if !ok {
		return channel, fs
	}

	kind, _ := fields["kind"].(string)
	if kind == kindKopsAddons {
		channel = parseKopsAddons(fields, &fs)
	} else {
		channel = decodeAddonChannel(fields, &fs)
	}

	if channel.Kind != "" {
		addonChecker{channel: channel, kops: kind == kindKopsAddons, fs: &fs}.check()
	}

	return channel, dropConsequences(fs)
}

// decodeAddonChannel decodes a document of Slipway's kind.
func decodeAddonChannel(fields map[string]any, fs *diag.Findings) v1alpha1.AddonChannel {
	var channel v1alpha1.AddonChannel

	version, _ := fields["apiVersion"].(string)
	kind, _ := fields["kind"].(string)
	before := len(*fs)
	if kind != v1alpha1.KindAddonChannel {
		hint := "write kind: " + v1alpha1.KindAddonChannel + ", or the kind " + kindKopsAddons + " of a kops channel"
		fs.Errorf("document 1: kind", kind, hint, "is not a channel of add-ons")
	}

	if version != v1alpha1.APIVersion {
		fs.Errorf("document 1: apiVersion", version, "write apiVersion: "+v1alpha1.APIVersion, "is not supported")
	}

	if len(*fs) > before {
		return channel
	}

	refuseOtherSources(fields, fs)
	where := channelPath(kind, metadataName(fields))
	decodeDocument(fields, addonChannelShape(), &channel, fieldChecker{where, kind, fs})

	return channel
}

// channelPath returns how findings name a channel.
func channelPath(kind, name string) string { return strings.ToLower(kind) + "/" + name }

// refuseOtherSources reports the sources that this version cannot read, and removes them.
func refuseOtherSources(fields map[string]any, fs *diag.Findings) {
	hints := map[string]string{
		"oci": "copy its files into a directory next to the channel, and write directory: DIRECTORY",
		"git": "clone it next to the channel, and write directory: DIRECTORY",
	}

	spec, _ := fields["spec"].(map[string]any)
	addons, _ := spec["addons"].([]any)
	for i, entry := range addons {
		addon, _ := entry.(map[string]any)
		source, _ := addon["source"].(map[string]any)
		for _, name := range sortedKeys(hints) {
			if _, given := source[name]; !given {
				continue
			}

			delete(source, name)
			source["manifest"] = unreadableSource // so that nothing else is reported of it
			at := addonPath(channelPath(v1alpha1.KindAddonChannel, metadataName(fields)), i, "source."+name)
			fs.Errorf(at, "", hints[name], "is a source that this version of slipway cannot read")
		}
	}
}

// unreadableSource stands for a source that was reported already.
const unreadableSource = "-"

// addonChannelShape returns an AddonChannel with every field set; see clusterShape.
func addonChannelShape() any {
	anyKey := map[string]string{"*": "x"}
	check := v1alpha1.AddonHealthCheck{
		APIVersion: "x",
		Kind:       "x",
		Namespace:  "x",
		Name:       "x",
		Condition:  "x",
	}

	prune := v1alpha1.AddonPruneKind{
		Group:         "x",
		Kind:          "x",
		Namespaces:    []string{"x"},
		LabelSelector: "x",
	}

	chart := v1alpha1.AddonChart{
		Chart:       "x",
		Repository:  "x",
		Version:     "x",
		Digest:      "x",
		ReleaseName: "x",
		ValuesFiles: []string{"x"},
		Values:      map[string]any{"*": nil},
		APIVersions: []string{"x"},
		SkipHooks:   true,
	}

	source := v1alpha1.AddonSource{
		Manifest:      "x",
		SHA256:        "x",
		Directory:     "x",
		Kustomization: "x",
		Helm:          &chart,
		Namespaces:    []v1alpha1.AddonNamespace{addonNamespaceShape()},
	}

	addon := v1alpha1.Addon{
		Name:               "x",
		Version:            "x",
		KubernetesVersion:  "x",
		Selector:           anyKey,
		Namespace:          "x",
		Source:             source,
		Parameters:         []v1alpha1.AddonParameter{{Name: "x", Value: "x", From: "x"}},
		DependsOn:          []string{"x"},
		HealthChecks:       []v1alpha1.AddonHealthCheck{check},
		Timeout:            "x",
		NeedsRollingUpdate: "x",
		Prune:              []v1alpha1.AddonPruneKind{prune},
	}

	return toJSONTree(v1alpha1.AddonChannel{
		APIVersion: "x",
		Kind:       "x",
		Metadata:   v1alpha1.Metadata{Name: "x", Labels: anyKey},
		Spec:       v1alpha1.AddonChannelSpec{Addons: []v1alpha1.Addon{addon}, Source: addonChannelSourceShape()},
	})
}
