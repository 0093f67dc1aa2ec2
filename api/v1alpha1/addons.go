// SPDX-License-Identifier: Apache-2.0

package v1alpha1

// KindAddonChannel is the kind of a document that lists add-ons.
const KindAddonChannel = "AddonChannel"

const (
	// SystemChannel is the name of the channel of the add-ons that every cluster has. The control plane applies them, so
	// no other channel has this name.
	SystemChannel = "slipway"
	// SystemAddonPrefix begins the names of the add-ons that every cluster has, and no other names.
	SystemAddonPrefix = "slipway-"
)

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

	// Source is where the control plane reads the channel from, once it is published, instead of Addons.
	Source *AddonChannelSource `json:"source,omitempty"`
}

// AddonChannelSource is an artifact in a container registry or a Git repository, with a file channel.yaml and the
// manifests that it names. The control plane looks for a new revision at an interval. One of OCI and Git is set.
type AddonChannelSource struct {
	// OCI is the reference of an artifact: oci://HOST/REPOSITORY:TAG, or oci://HOST/REPOSITORY@sha256:HASH, which never
	// changes. oci+http:// asks the registry over HTTP; it needs public keys or a digest.
	OCI string `json:"oci,omitempty"`

	// Git is the address of a repository: https://HOST/PATH.
	Git string `json:"git,omitempty"`

	// Ref is the branch or the tag of a Git repository, such as main or refs/tags/v1.
	Ref string `json:"ref,omitempty"`

	// Path of the directory with channel.yaml. Empty: the root.
	Path string `json:"path,omitempty"`

	// Interval between two looks, from 1m to 24h. Empty: 5m.
	Interval string `json:"interval,omitempty"`

	// Credentials is the name of a registry secret of the state store (slipway addons secrets set) with credentials for
	// the host. Empty: none, or those of the machines' role for a registry in Amazon ECR.
	Credentials string `json:"credentials,omitempty"`

	// PublicKeys verify each revision before anything of it is applied: keys in PEM, as cosign writes them, for artifacts;
	// SSH keys for commits. One of them is enough. Empty: nothing is verified.
	PublicKeys []string `json:"publicKeys,omitempty"`
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

// AddonSource is where the objects of an add-on are read from. One of Manifest, Directory, Kustomization and Helm is set.
type AddonSource struct {
	// Manifest is a file with YAML documents, relative to the channel's file; an address (https://...), which needs a
	// SHA256; or state://PATH, which is object CLUSTER/addons/PATH of the state store.
	Manifest string `json:"manifest,omitempty"`

	// SHA256 is the hash of the manifest in hexadecimal. Empty: not checked.
	SHA256 string `json:"sha256,omitempty"`

	// Directory is a directory whose .yaml, .yml and .json files are read, without subdirectories.
	Directory string `json:"directory,omitempty"`

	// Kustomization is a directory with a kustomization, in the directory of the channel's file or below.
	Kustomization string `json:"kustomization,omitempty"`

	// Helm is a Helm chart, which is rendered.
	Helm *AddonChart `json:"helm,omitempty"`

	// Namespaces are namespaces with what a team needs in them: rights, quotas and policies.
	Namespaces []AddonNamespace `json:"namespaces,omitempty"`
}

// AddonNamespace is a namespace, with the objects that its other fields ask for.
type AddonNamespace struct {
	// Name of the namespace.
	Name string `json:"name"`

	// Labels of the namespace.
	Labels map[string]string `json:"labels,omitempty"`

	// Annotations of the namespace.
	Annotations map[string]string `json:"annotations,omitempty"`

	// PodSecurity is the level of the Pod Security Standards that is enforced: privileged, baseline or restricted. Empty:
	// the cluster's default, baseline.
	PodSecurity string `json:"podSecurity,omitempty"`

	// RoleBindings bind ClusterRoles within the namespace.
	RoleBindings []AddonRoleBinding `json:"roleBindings,omitempty"`

	// ResourceQuota limits the namespace as a whole, such as requests.cpu: "10" or pods: "50".
	ResourceQuota map[string]string `json:"resourceQuota,omitempty"`

	// ContainerLimits are what containers get that ask for nothing, and the most that one may ask for.
	ContainerLimits *AddonContainerLimits `json:"containerLimits,omitempty"`

	// RegistrySecrets are names of registry secrets of the state store (slipway addons secrets set). The namespace gets each
	// as a Secret of type kubernetes.io/dockerconfigjson with this name, for imagePullSecrets.
	RegistrySecrets []string `json:"registrySecrets,omitempty"`

	// NetworkPolicy is SameNamespace, with which only pods of the namespace can connect to its pods, or DenyIngress, with
	// which nobody can. Empty: everybody can. The network of the cluster must enforce it.
	NetworkPolicy string `json:"networkPolicy,omitempty"`
}

// The values of the NetworkPolicy of an [AddonNamespace].
const (
	// NetworkPolicySameNamespace lets the pods of the namespace connect to each other, and nobody else to them.
	NetworkPolicySameNamespace = "SameNamespace"
	// NetworkPolicyDenyIngress lets nobody connect to pods of the namespace.
	NetworkPolicyDenyIngress = "DenyIngress"
)

// AddonRoleBinding gives the rights of a ClusterRole within a namespace to groups, users and service accounts.
type AddonRoleBinding struct {
	// ClusterRole such as admin, edit or view.
	ClusterRole string `json:"clusterRole"`

	// Groups of users.
	Groups []string `json:"groups,omitempty"`

	// Users by their names.
	Users []string `json:"users,omitempty"`

	// ServiceAccounts of the namespace, or as NAMESPACE/NAME of another one.
	ServiceAccounts []string `json:"serviceAccounts,omitempty"`
}

// AddonContainerLimits are the limits of single containers, by resource, such as memory: 128Mi.
type AddonContainerLimits struct {
	// DefaultRequests are the requests of a container without requests.
	DefaultRequests map[string]string `json:"defaultRequests,omitempty"`

	// DefaultLimits are the limits of a container without limits.
	DefaultLimits map[string]string `json:"defaultLimits,omitempty"`

	// Max is the most that the limits of one container may be.
	Max map[string]string `json:"max,omitempty"`
}

// AddonChart is a Helm chart and the values that it is rendered with.
type AddonChart struct {
	// Chart is a directory or an archive, relative to the channel's file; the address of an archive (https://...); a
	// reference to a registry (oci://HOST/PATH); or the name of a chart in Repository.
	Chart string `json:"chart"`

	// Repository is the address of a chart repository.
	Repository string `json:"repository,omitempty"`

	// Version of the chart. Required with a repository.
	Version string `json:"version,omitempty"`

	// Digest is sha256:HASH of the archive, or of the manifest in a registry. Required unless the chart is local.
	Digest string `json:"digest,omitempty"`

	// ReleaseName is what templates know as .Release.Name. Empty: the name of the add-on.
	ReleaseName string `json:"releaseName,omitempty"`

	// ValuesFiles are files with values, relative to the channel's file. Later ones win.
	ValuesFiles []string `json:"valuesFiles,omitempty"`

	// Values of the chart, on top of those of the files. Parameters are replaced in all of them.
	Values map[string]any `json:"values,omitempty"`

	// APIVersions are added to .Capabilities.APIVersions, such as monitoring.coreos.com/v1.
	APIVersions []string `json:"apiVersions,omitempty"`

	// SkipHooks leaves out objects that are hooks of Helm. Otherwise a chart with hooks, except tests, is refused.
	SkipHooks bool `json:"skipHooks,omitempty"`
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
