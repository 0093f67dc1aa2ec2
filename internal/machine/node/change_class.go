// SPDX-License-Identifier: Apache-2.0

package node

import (
	"cmp"
	"slices"
	"strings"
)

// ChangeClass is how a running machine gets a changed setting of its node document.
type ChangeClass string

// The classes, from harmless to expensive.
const (
	// ClassLive is applied without restarting anything.
	ClassLive ChangeClass = "live"
	// ClassRestart is applied by restarting components of the machine, one after the other.
	ClassRestart ChangeClass = "restart"
	// ClassReboot is applied by the next boot of the machine. No setting has it yet.
	ClassReboot ChangeClass = "reboot"
	// ClassReplace needs a new machine.
	ClassReplace ChangeClass = "replace"
)

// The components of a machine that a change can restart.
const (
	ComponentContainerd        = "containerd"
	ComponentKubelet           = "kubelet"
	ComponentEtcd              = "etcd"
	ComponentAPIServer         = "kube-apiserver"
	ComponentControllerManager = "kube-controller-manager"
	ComponentScheduler         = "kube-scheduler"
)

// RestartOrder returns the components in the order in which an agent restarts them.
func RestartOrder() []string {
	return []string{
		ComponentContainerd,
		ComponentKubelet,
		ComponentEtcd,
		ComponentAPIServer,
		ComponentControllerManager,
		ComponentScheduler,
	}
}

// FieldRule is the class of one field of the node document.
type FieldRule struct {
	// Field is its path. A star stands for one key of a map, or for one name in a list.
	Field string
	// Class of a change.
	Class ChangeClass
	// Restarts are the components that read the field only when they start. A worker restarts those that it has.
	Restarts []string
	// Reason why the field has this class, for people.
	Reason string
	// First is set for what etcd's members need to have a quorum, or to get one again: machines apply it before they wait for
	// their turn to restart components, because without a quorum no component may restart.
	First bool
}

// FieldRules returns the class of each field of the node document. The agent, the plan and the documentation use
// this table. A test fails for a field that is not in it.
func FieldRules() []FieldRule {
	return slices.Concat(identityRules(), slotRules(), programRules(), trustRules(), settingRules(),
		quorumRules(), newVolumeRules())
}

// identityRules are about what a machine is.
func identityRules() []FieldRule {
	rule := func(field, reason string) FieldRule {
		return FieldRule{Field: field, Class: ClassReplace, Reason: reason}
	}

	const identity = "it says which machine this is"
	const addresses = "running pods keep their addresses"
	const registration = "a kubelet sets it only when it registers a new node"

	return []FieldRule{
		rule("apiVersion", identity),
		rule("kind", identity),
		rule("cluster", identity),
		rule("clusterID", identity),
		rule("group", identity),
		rule("role", identity),
		rule("region", identity),
		rule("network.networkCIDR", addresses),
		rule("network.podCIDR", addresses),
		rule("network.serviceCIDR", addresses),
		rule("network.kubernetesIP", addresses),
		rule("network.dnsIP", addresses),
		rule("network.dnsDomain", "running pods keep their DNS settings"),
		rule("network.cni", "running pods keep their addresses and their routes"),
		rule("network.flannelBackend", "machines with another backend do not exchange packets of pods"),
		rule("store.url", "the machine's boot configuration names the store too"),
		rule("nodeLabels.*", registration),
		rule("taints", registration),
		rule("nodeController", registration),
	}
}

// slotRules are about the size of the control plane. The names of a slot never change, see checkSlotNames.
func slotRules() []FieldRule {
	rule := func(field string) FieldRule {
		return FieldRule{
			Field:  field,
			Class:  ClassLive,
			Reason: "agents add and remove etcd members, one at a time",
			First:  true,
		}
	}

	return []FieldRule{
		rule("slots.*.name"),
		rule("slots.*.member"),
		rule("slots.*.host"),
		rule("slots.*.peerURL"),
	}
}

// programRules are about what a machine runs.
func programRules() []FieldRule {
	const download = "a machine never exchanges its programs"
	const addOn = "agents apply the add-ons; Kubernetes rolls them out"
	restart := func(field string, components ...string) FieldRule {
		return FieldRule{
			Field:    field,
			Class:    ClassRestart,
			Restarts: components,
			Reason:   "the component runs from this image",
		}
	}

	return []FieldRule{
		{Field: versionField, Class: ClassReplace, Reason: "machines of two versions must not differ in other ways"},
		{Field: "files.*.name", Class: ClassReplace, Reason: download},
		{Field: "files.*.sha256", Class: ClassReplace, Reason: download},
		{Field: "files.*.form", Class: ClassReplace, Reason: download},
		{Field: "files.*.url", Class: ClassLive, Reason: "the file with this hash is on the machine"},
		{Field: "files.*.size", Class: ClassLive, Reason: "the file with this hash is on the machine"},
		{Field: "programs", Class: ClassReplace, Reason: download},
		restart("images.kube-apiserver", ComponentAPIServer),
		restart("images.kube-controller-manager", ComponentControllerManager),
		restart("images.kube-scheduler", ComponentScheduler),
		restart("images.pause", ComponentContainerd),
		{Field: "images.*", Class: ClassLive, Reason: addOn},
		{Field: "network.vpcCNIRole", Class: ClassLive, Reason: addOn},
	}
}

// trustRules are about certificates.
func trustRules() []FieldRule {
	trust := func(name string) FieldRule {
		return FieldRule{
			Field:  "trust." + name,
			Class:  ClassReplace,
			Reason: "a machine that trusts another CA than its neighbours cannot work with them",
		}
	}

	return []FieldRule{
		trust("kubernetesCA"),
		trust("etcdPeerCA"),
		trust("etcdClientCA"),
		trust("frontProxyCA"),
		trust("serviceAccountKeys"),
		{Field: "apiSANs", Class: ClassLive, Reason: "kube-apiserver reloads its certificate"},
		{Field: "join.workerRoles.*", Class: ClassLive, Reason: "the agent serves the join endpoint itself"},
		{
			Field:    "join.users",
			Class:    ClassRestart,
			Restarts: []string{ComponentAPIServer},
			Reason:   "the agent reviews tokens itself; kube-apiserver restarts only with the first user and without the last one",
		},
	}
}

// settingRules are about settings of components.
func settingRules() []FieldRule {
	restart := func(field, component string) FieldRule {
		return FieldRule{
			Field:    field,
			Class:    ClassRestart,
			Restarts: []string{component},
			Reason:   "the component reads its settings when it starts",
		}
	}

	live := func(field string) FieldRule {
		return FieldRule{Field: field, Class: ClassLive, Reason: "the agent takes the backups of etcd"}
	}

	return []FieldRule{
		restart("kubelet.kubeReserved.*", ComponentKubelet),
		restart("kubelet.systemReserved.*", ComponentKubelet),
		restart("kubelet.evictionHard.*", ComponentKubelet),
		restart("kubelet.evictionSoft.*", ComponentKubelet),
		restart("kubelet.evictionSoftGracePeriod.*", ComponentKubelet),
		restart("kubelet.maxPods", ComponentKubelet),
		restart("kubelet.podPidsLimit", ComponentKubelet),
		restart("kubelet.imageGCHighThresholdPercent", ComponentKubelet),
		restart("kubelet.imageGCLowThresholdPercent", ComponentKubelet),
		restart("kubelet.containerLogMaxSize", ComponentKubelet),
		restart("kubelet.containerLogMaxFiles", ComponentKubelet),
		restart("kubelet.maxParallelImagePulls", ComponentKubelet),
		restart("kubelet.allowedUnsafeSysctls", ComponentKubelet),
		{Field: "sysctls.*", Class: ClassLive, Reason: "the agent sets it"},
		{Field: "metadataCgroups", Class: ClassLive, Reason: "the agent loads the rules"},
		restart("kubeAPIServer.maxRequestsInflight", ComponentAPIServer),
		restart("kubeAPIServer.maxMutatingRequestsInflight", ComponentAPIServer),
		restart("kubeAPIServer.eventTTL", ComponentAPIServer),
		restart("kubeAPIServer.defaultNotReadyTolerationSeconds", ComponentAPIServer),
		restart("kubeAPIServer.defaultUnreachableTolerationSeconds", ComponentAPIServer),
		restart("kubeAPIServer.auditLogMaxAge", ComponentAPIServer),
		restart("kubeAPIServer.auditLogMaxBackup", ComponentAPIServer),
		restart("kubeAPIServer.auditLogMaxSize", ComponentAPIServer),
		live("kubeAPIServer.auditLogUpload"),
		restart("kubeAPIServer.serviceAccountIssuer", ComponentAPIServer),
		restart("kubeAPIServer.acceptedServiceAccountIssuers", ComponentAPIServer),
		restart("kubeControllerManager.terminatedPodGCThreshold", ComponentControllerManager),
		restart("kubeControllerManager.nodeMonitorGracePeriod", ComponentControllerManager),
		restart("kubeControllerManager.horizontalPodAutoscalerSyncPeriod", ComponentControllerManager),
		restart("kubeControllerManager.serviceAccountTokenSecrets", ComponentControllerManager),
		restart("etcd.heartbeatIntervalMS", ComponentEtcd),
		restart("etcd.quotaBytes", ComponentEtcd),
		restart("etcd.electionTimeoutMS", ComponentEtcd),
		live("etcd.backup.disabled"),
		live("etcd.backup.interval"),
		live("etcd.backup.keepAll"),
		live("etcd.backup.keepDaily"),
		live("etcd.backup.verifyEvery"),
		live("store.kmsKeyARN"),
	}
}

// quorumRules are about how members find each other, and how machines recover etcd.
func quorumRules() []FieldRule {
	rule := func(field, reason string) FieldRule {
		return FieldRule{Field: field, Class: ClassLive, Reason: reason, First: true}
	}

	return []FieldRule{
		rule("etcd.quorumLoss.recovery", "the agent recovers etcd"),
		rule("etcd.quorumLoss.after", "the agent recovers etcd"),
		rule("etcd.discovery", "the agent looks for the addresses of the other members"),
	}
}

// newVolumeRules are about the volumes that the agent creates after a loss.
func newVolumeRules() []FieldRule {
	var out []FieldRule
	for _, field := range []string{
		"after", "volume.type", "volume.size", "volume.iops", "volume.throughput", "tags.*",
	} {
		out = append(out, FieldRule{
			Field:  "etcd.newVolumes." + field,
			Class:  ClassLive,
			Reason: "the agent creates the volume",
			First:  true,
		})
	}

	return out
}

// versionField is the field whose change makes all others wait for a new machine: a new version must not be started
// with settings of the old one, or the other way round.
const versionField = "kubernetesVersion"

// Change is one difference between two node documents.
type Change struct {
	// Setting is its path, such as kubelet.evictionHard.memory.available.
	Setting string `json:"setting"`
	// Class is how a running machine gets it.
	Class ChangeClass `json:"class"`
	// Restarts are the components that it restarts.
	Restarts []string `json:"restarts,omitempty"`
}

// NeedsMachine reports whether a running machine cannot apply the change itself.
func (c Change) NeedsMachine() bool { return c.Class == ClassReplace || c.Class == ClassReboot }

// Compare returns the differences between two documents, sorted by setting, each with its class. If the Kubernetes
// version differs, every change needs a new machine.
func Compare(old, now Document) ([]Change, error) {
	before, err := flatten(old)
	if err != nil {
		return nil, err
	}

	after, err := flatten(now)
	if err != nil {
		return nil, err
	}

	var out []Change
	for _, l := range differences(before, after) {
		out = append(out, l.change())
	}

	if old.KubernetesVersion != now.KubernetesVersion {
		for i := range out {
			out[i] = Change{Setting: out[i].Setting, Class: ClassReplace}
		}
	}

	slices.SortFunc(out, func(a, b Change) int { return cmp.Compare(a.Setting, b.Setting) })

	return out, nil
}

// ClassOf returns the rule of a setting, such as images.coredns. A setting without a rule needs a new machine.
func ClassOf(setting string) FieldRule { return ruleFor(strings.Split(setting, ".")) }

// ruleFor returns the rule for a path. An exact rule wins over one with a star.
func ruleFor(path []string) FieldRule {
	found := FieldRule{Field: strings.Join(path, "."), Class: ClassReplace, Reason: "its class is not known"}
	stars := len(path) + 1
	for _, rule := range FieldRules() {
		if n, ok := matchPath(strings.Split(rule.Field, "."), path); ok && n < stars {
			found = rule
			stars = n
		}
	}

	return found
}

// matchPath returns the number of stars of a pattern, and whether it matches the path. A star at the end matches the
// rest of the path, because keys of labels and eviction signals contain dots.
func matchPath(pattern, path []string) (int, bool) {
	stars := 0
	for i, p := range pattern {
		if i >= len(path) {
			return 0, false
		}

		last := i == len(pattern)-1
		switch {
		case p == "*" && last:
			return stars + 1, true
		case p == "*":
			stars++
		case p != path[i]:
			return 0, false
		}
	}

	return stars, len(pattern) == len(path)
}
