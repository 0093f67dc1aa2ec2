// SPDX-License-Identifier: Apache-2.0

package manifest

import (
	"fmt"

	"github.com/slipway-k8s/slipway/api/v1alpha1"
	"github.com/slipway-k8s/slipway/internal/lib/diag"
)

// kindKopsAddons is the kind of a kops channel, as its publishers write it: without an apiVersion.
const kindKopsAddons = "Addons"

// kopsAddons is a kops channel: k8s.io/kops/channels/pkg/api, version 1.32.
type kopsAddons struct {
	APIVersion string            `json:"apiVersion"`
	Kind       string            `json:"kind"`
	Metadata   v1alpha1.Metadata `json:"metadata"`
	Spec       kopsAddonsSpec    `json:"spec"`
}

type kopsAddonsSpec struct {
	Addons []kopsAddon `json:"addons"`
}

// kopsAddon is one entry of a kops channel.
type kopsAddon struct {
	Name               string            `json:"name"` // empty: the channel's
	Namespace          string            `json:"namespace"`
	Selector           map[string]string `json:"selector"`
	Manifest           string            `json:"manifest"`
	ManifestHash       string            `json:"manifestHash"` // SHA-256 in hexadecimal
	KubernetesVersion  string            `json:"kubernetesVersion"`
	ID                 string            `json:"id"`
	NeedsRollingUpdate string            `json:"needsRollingUpdate"`
	NeedsPKI           bool              `json:"needsPKI"`
	Version            string            `json:"version"`
	Prune              kopsPrune         `json:"prune"`
}

type kopsPrune struct {
	Kinds []kopsPruneKind `json:"kinds"`
}

type kopsPruneKind struct {
	Group         string   `json:"group"`
	Kind          string   `json:"kind"`
	Namespaces    []string `json:"namespaces"`
	LabelSelector string   `json:"labelSelector"`
	FieldSelector string   `json:"fieldSelector"`
}

// parseKopsAddons converts a kops channel.
func parseKopsAddons(fields map[string]any, fs *diag.Findings) v1alpha1.AddonChannel {
	var from kopsAddons

	metadata, _ := fields["metadata"].(map[string]any)
	delete(metadata, "creationTimestamp") // kops writes null
	where := channelPath(kindKopsAddons, metadataName(fields))
	decodeDocument(fields, kopsAddonsShape(), &from, fieldChecker{where, kindKopsAddons, fs})

	channel := v1alpha1.AddonChannel{
		APIVersion: v1alpha1.APIVersion,
		Kind:       v1alpha1.KindAddonChannel,
		Metadata:   from.Metadata,
	}

	for i, a := range from.Spec.Addons {
		at := func(field string) string { return addonPath(where, i, field) }
		channel.Spec.Addons = append(channel.Spec.Addons, a.convert(from.Metadata.Name, at, fs))
	}

	return channel
}

// convert returns the entry as Slipway's. at returns the path of a field.
func (a kopsAddon) convert(channel string, at func(string) string, fs *diag.Findings) v1alpha1.Addon {
	out := v1alpha1.Addon{
		Name:               a.Name,
		Version:            a.Version,
		KubernetesVersion:  a.KubernetesVersion,
		Selector:           a.Selector,
		Namespace:          a.Namespace,
		Source:             v1alpha1.AddonSource{Manifest: a.Manifest, SHA256: a.ManifestHash},
		NeedsRollingUpdate: a.NeedsRollingUpdate,
	}

	if a.Name == "" {
		out.Name = channel
	}

	if a.NeedsPKI {
		hint := "install cert-manager, create an issuer for the add-on, and remove needsPKI"
		fs.Errorf(at("needsPKI"), "true", hint, "is not supported: slipway issues no certificates to add-ons")
	}

	for n, k := range a.Prune.Kinds {
		if k.FieldSelector != "" {
			path := at(fmt.Sprintf("prune.kinds[%d].fieldSelector", n))
			fs.Errorf(path, k.FieldSelector, "write a labelSelector", "is not supported")
		}

		out.Prune = append(out.Prune, v1alpha1.AddonPruneKind{
			Group:         k.Group,
			Kind:          k.Kind,
			Namespaces:    k.Namespaces,
			LabelSelector: k.LabelSelector,
		})
	}

	return out
}

// kopsAddonsShape returns a kops channel with every field set; see clusterShape.
func kopsAddonsShape() any {
	anyKey := map[string]string{"*": "x"}
	kind := kopsPruneKind{
		Group:         "x",
		Kind:          "x",
		Namespaces:    []string{"x"},
		LabelSelector: "x",
		FieldSelector: "x",
	}

	addon := kopsAddon{
		Name:               "x",
		Namespace:          "x",
		Selector:           anyKey,
		Manifest:           "x",
		ManifestHash:       "x",
		KubernetesVersion:  "x",
		ID:                 "x",
		NeedsRollingUpdate: "x",
		NeedsPKI:           true,
		Version:            "x",
		Prune:              kopsPrune{Kinds: []kopsPruneKind{kind}},
	}

	return toJSONTree(kopsAddons{
		APIVersion: "x",
		Kind:       "x",
		Metadata:   v1alpha1.Metadata{Name: "x", Labels: anyKey},
		Spec:       kopsAddonsSpec{Addons: []kopsAddon{addon}},
	})
}
