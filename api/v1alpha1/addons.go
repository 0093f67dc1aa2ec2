// SPDX-License-Identifier: Apache-2.0

package v1alpha1

// KindAddonChannel is the kind of a document that lists add-ons.
const KindAddonChannel = "AddonChannel"

// AddonChannel lists versions of add-ons: bundles of Kubernetes objects that are applied, updated and deleted together.
type AddonChannel struct {
	// APIVersion is slipway.dev/v1alpha1.
	APIVersion string `json:"apiVersion"`

	// Kind is AddonChannel.
	Kind     string           `json:"kind"`
	Metadata Metadata         `json:"metadata"`
	Spec     AddonChannelSpec `json:"spec"`
}

// AddonChannelSpec is the content of a channel.
type AddonChannelSpec struct {
	// Addons are the entries. Several may have the same name: the highest version whose kubernetesVersion contains
	// the cluster's wins.
	Addons []Addon `json:"addons,omitempty"`
}

// Addon is one version of an add-on.
type Addon struct {
	// Name of the add-on: a DNS name of at most 63 characters.
	Name string `json:"name"`

	// Version of the add-on, such as 1.2.3.
	Version string `json:"version,omitempty"`

	// KubernetesVersion is the range of Kubernetes versions that the entry is for, such as ">=1.30.0 <1.38.0".
	// Empty: all.
	KubernetesVersion string `json:"kubernetesVersion,omitempty"`

	// Selector has labels that are set on every object of the add-on.
	Selector map[string]string `json:"selector,omitempty"`

	// Namespace of objects that name none themselves. Empty: default.
	Namespace string `json:"namespace,omitempty"`

	// Source is where the objects are read from.
	Source AddonSource `json:"source"`

	// Parameters replace ${NAME} in the values of the objects.
	Parameters []AddonParameter `json:"parameters,omitempty"`

	// DependsOn has the names of add-ons that must be healthy before this one is applied.
	DependsOn []string `json:"dependsOn,omitempty"`

	// HealthChecks are objects with a condition that must be true, in addition to the checks of workloads.
	HealthChecks []AddonHealthCheck `json:"healthChecks,omitempty"`

	// Timeout is how long the add-on may take to become healthy, from 1s to 1h.
	Timeout string `json:"timeout,omitempty"`

	// NeedsRollingUpdate names the machines that must be replaced after an update: control-plane, workers or all.
	NeedsRollingUpdate string `json:"needsRollingUpdate,omitempty"`

	// Prune selects objects that are deleted if the source does not contain them, although the add-on's inventory
	// does not know them. Objects of the inventory need no entry.
	Prune []AddonPruneKind `json:"prune,omitempty"`
}

// AddonSource is where the objects of an add-on are read from. One of Manifest and Directory is set.
type AddonSource struct {
	// Manifest is a file with YAML documents, relative to the channel's file.
	Manifest string `json:"manifest,omitempty"`

	// SHA256 is the hash of the manifest in hexadecimal. Empty: not checked.
	SHA256 string `json:"sha256,omitempty"`

	// Directory is a directory whose .yaml, .yml and .json files are read, without subdirectories.
	Directory string `json:"directory,omitempty"`
}

// AddonParameter is a value that the manifests of an add-on contain as ${NAME}.
type AddonParameter struct {
	// Name of the parameter: letters, digits and underscores.
	Name string `json:"name"`

	// Value is the text that is put in.
	Value string `json:"value,omitempty"`

	// From takes the value from the cluster, such as cluster.name.
	From string `json:"from,omitempty"`
}

// AddonHealthCheck is an object with a condition that must be true.
type AddonHealthCheck struct {
	// APIVersion and Kind of the object.
	APIVersion string `json:"apiVersion"`
	Kind       string `json:"kind"`

	// Namespace of the object; empty if its kind has none.
	Namespace string `json:"namespace,omitempty"`

	// Name of the object.
	Name string `json:"name"`

	// Condition is the type of an entry of status.conditions, such as Ready.
	Condition string `json:"condition"`
}

// AddonPruneKind selects objects of one kind.
type AddonPruneKind struct {
	// Group of the kind; empty for the core group.
	Group string `json:"group,omitempty"`

	// Kind of the objects.
	Kind string `json:"kind"`

	// Namespaces of the objects. Empty: all.
	Namespaces []string `json:"namespaces,omitempty"`

	// LabelSelector that the objects match, such as "app=example".
	LabelSelector string `json:"labelSelector"`
}
