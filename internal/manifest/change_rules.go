// SPDX-License-Identifier: Apache-2.0

package manifest

import (
	"slices"

	"github.com/slipway-k8s/slipway/api/v1alpha1"
)

// ChangeRule says how a field may change after the cluster was applied.
type ChangeRule string

// The rules.
const (
	// ChangesFreely allows every change.
	ChangesFreely ChangeRule = "mutable"
	// StaysFixed allows no change.
	StaysFixed ChangeRule = "fixed"
	// OnlyGrows allows a larger number.
	OnlyGrows ChangeRule = "only grows"
	// KeepsOrigin allows another value, but neither setting nor unsetting the field: a resource is either
	// Slipway's own or an existing one.
	KeepsOrigin ChangeRule = "keeps its origin"
	// KeepsElasticIP forbids changes from and to the value ElasticIP.
	KeepsElasticIP ChangeRule = "keeps ElasticIP"
	// KeepsZoneType forbids changes between the values Private and Public.
	KeepsZoneType ChangeRule = "keeps its type"
	// KeepsRole forbids another role.
	KeepsRole ChangeRule = "keeps its role"
	// KeepsManager forbids changes from and to the value Karpenter.
	KeepsManager ChangeRule = "keeps its manager"
	// OneMinorAtATime allows a later patch and the next minor version.
	OneMinorAtATime ChangeRule = "one minor version at a time"
)

// FieldRule is the rule of one field of a manifest.
type FieldRule struct {
	// Kind and Path of the field, such as Cluster and spec.networking.subnets[].zone.
	Kind, Path string
	// Rule of the field.
	Rule ChangeRule
	// Instead is what to do instead of a change that the rule forbids.
	Instead string
}

// The hints that several fields share.
const (
	createAnother = "keep it; to use another value, create another cluster and move the workloads to it"
	keepIssuer    = "keep it: running pods and programs outside of the cluster trust tokens of this issuer; create " +
		"another cluster to use another one"
	keepOwn = "keep it; running machines use it until they end, so create another cluster to change it"
)

// FieldRules returns the rule of every field. A test fails for a field without one.
func FieldRules() []FieldRule {
	return slices.Concat(
		identityRules(),
		clusterFieldRules(),
		networkFieldRules(),
		groupFieldRules(),
		rollingUpdateRules(),
	)
}

// rollingUpdateRules allow every change: the next update uses the new values.
func rollingUpdateRules() []FieldRule {
	var out []FieldRule
	for _, kind := range []string{v1alpha1.KindCluster, v1alpha1.KindInstanceGroup} {
		out = append(out, freeFields(
			kind,
			"spec.rollingUpdate.maxUnavailable", "spec.rollingUpdate.maxSurge", "spec.rollingUpdate.canary",
			"spec.rollingUpdate.drainTimeout", "spec.rollingUpdate.pauseBetween",
			"spec.rollingUpdate.maxFailures", "spec.rollingUpdate.automaticRollback",
			"spec.rollingUpdate.gates[].name", "spec.rollingUpdate.gates[].deployment",
			"spec.rollingUpdate.gates[].url", "spec.rollingUpdate.gates[].command",
			"spec.rollingUpdate.gates[].timeout",
		)...)
	}

	return out
}

// freeFields returns rules that allow every change.
func freeFields(kind string, paths ...string) []FieldRule {
	out := make([]FieldRule, 0, len(paths))
	for _, p := range paths {
		out = append(out, FieldRule{Kind: kind, Path: p, Rule: ChangesFreely})
	}

	return out
}

// identityRules are the rules of the fields that every document has. A document of another name is another
// document, so its name cannot differ.
func identityRules() []FieldRule {
	var out []FieldRule
	for _, kind := range []string{v1alpha1.KindCluster, v1alpha1.KindInstanceGroup} {
		out = append(out, freeFields(kind, "apiVersion", "kind", "metadata.labels")...)
		out = append(out, FieldRule{
			Kind:    kind,
			Path:    "metadata.name",
			Rule:    StaysFixed,
			Instead: "keep the name: it is part of the names of AWS resources",
		})
	}

	return out
}

func clusterFieldRules() []FieldRule {
	const kind = v1alpha1.KindCluster

	return append(
		freeFields(
			kind,
			"spec.api.access", "spec.api.publicName", "spec.api.additionalSANs", "spec.api.users[].arn",
			"spec.api.users[].groups", "spec.etcd.volume.type", "spec.etcd.volume.iops",
			"spec.etcd.volume.throughput", "spec.etcd.heartbeatIntervalMS", "spec.etcd.electionTimeoutMS",
			"spec.kubeAPIServer.maxRequestsInflight", "spec.kubeAPIServer.maxMutatingRequestsInflight",
			"spec.kubeAPIServer.eventTTL", "spec.kubeAPIServer.defaultNotReadyTolerationSeconds",
			"spec.kubeAPIServer.defaultUnreachableTolerationSeconds", "spec.kubeAPIServer.auditLogMaxAge",
			"spec.kubeAPIServer.auditLogMaxBackup", "spec.kubeAPIServer.auditLogMaxSize",
			"spec.kubeAPIServer.auditLogUpload",
			"spec.kubeControllerManager.terminatedPodGCThreshold",
			"spec.kubeControllerManager.nodeMonitorGracePeriod",
			"spec.kubeControllerManager.horizontalPodAutoscalerSyncPeriod",
			"spec.kubeControllerManager.serviceAccountTokenSecrets", "spec.etcd.backup.disabled",
			"spec.etcd.backup.interval", "spec.etcd.backup.keepAll", "spec.etcd.backup.keepDaily",
			"spec.etcd.backup.verifyEvery", "spec.etcd.quorumLoss.recovery", "spec.etcd.quorumLoss.after",
			"spec.etcd.discovery", "spec.etcd.discoveryEvents", "spec.etcd.recreateVolumesAfter",
			"spec.cloudProvider.nodeController", "spec.assets.fileRepository", "spec.assets.containerRegistry",
			"spec.iam.serviceAccountExternalPermissions[].name", "spec.iam.serviceAccountExternalPermissions[].namespace",
			"spec.iam.serviceAccountExternalPermissions[].aws.policyARNs",
			"spec.iam.serviceAccountExternalPermissions[].aws.inlinePolicy",
			"spec.deletionProtection", "spec.sshAccess", "spec.sshKeyName", "spec.sshKey",
			"spec.topology.bastion.loadBalancer.type", "spec.dnsZone",
			"spec.machineAccess.sessionManager", "spec.machineAccess.instanceConnectSecurityGroup",
			"spec.tags", "spec.upgrade.automaticPatches", "spec.upgrade.maintenanceWindow.days",
			"spec.upgrade.maintenanceWindow.start", "spec.upgrade.maintenanceWindow.duration",
		),
		FieldRule{
			kind, "spec.kubernetesVersion", OneMinorAtATime,
			"upgrade to each minor version in turn; to go back, restore etcd from a backup in a new cluster",
		},
		FieldRule{kind, "spec.cloudProvider.aws.region", StaysFixed, createAnother},
		FieldRule{
			kind, "spec.cloudProvider.aws.kmsKeyARN", StaysFixed,
			"keep it: EBS cannot encrypt a volume again; create another cluster with the other key",
		},
		FieldRule{kind, "spec.cloudProvider.aws.instanceProfiles.controlPlane", KeepsOrigin, keepOwn},
		FieldRule{kind, "spec.cloudProvider.aws.instanceProfiles.worker", KeepsOrigin, keepOwn},
		FieldRule{kind, "spec.cloudProvider.aws.securityGroups.controlPlane", KeepsOrigin, keepOwn},
		FieldRule{kind, "spec.cloudProvider.aws.securityGroups.worker", KeepsOrigin, keepOwn},
		FieldRule{
			kind, "spec.api.loadBalancer.type", KeepsElasticIP,
			"keep it: running machines reach the API at its present address; create another cluster",
		},
		FieldRule{
			kind, "spec.etcd.volume.size", OnlyGrows,
			"set it to the old size or more: EBS volumes cannot shrink",
		},
		FieldRule{
			kind, "spec.configStore.base", StaysFixed,
			"keep it: machines read their keys and the marker of etcd there; create another cluster",
		},
		FieldRule{
			kind, "spec.topology.dns.type", KeepsZoneType,
			"set it to None and apply, then to the other type: Route 53 cannot convert a zone",
		},
	)
}

func networkFieldRules() []FieldRule {
	const kind = v1alpha1.KindCluster
	const newSubnet = "keep it; add a subnet with another name, move the groups to it, then remove this one"

	return append(
		freeFields(
			kind,
			"spec.networking.internetGatewayID", "spec.networking.natGateways",
			"spec.networking.vpcEndpoints", "spec.networking.subnets[].egress", "spec.networking.hostnames",
			"spec.networking.vpcPeerings[].name", "spec.networking.vpcPeerings[].networkID",
			"spec.networking.vpcPeerings[].cidrs", "spec.networking.vpcPeerings[].routeTables",
		),
		FieldRule{kind, "spec.networking.networkID", StaysFixed, createAnother},
		FieldRule{
			kind, "spec.networking.networkCIDR", StaysFixed,
			"keep it: AWS cannot change the range of a VPC; create another cluster and move the workloads",
		},
		FieldRule{
			kind, "spec.networking.podCIDR", StaysFixed,
			"keep it: each node has a part of it; create another cluster and move the workloads",
		},
		FieldRule{
			kind, "spec.networking.serviceClusterIPRange", StaysFixed,
			"keep it: existing Services have addresses of it; create another cluster and move the workloads",
		},
		FieldRule{kind, "spec.networking.cni", StaysFixed, createAnother},
		FieldRule{
			kind, "spec.networking.flannel.backend", StaysFixed,
			"keep it: machines with the other backend do not exchange packets of pods with those that run, so the change " +
				"would cut the pod network in two; create another cluster and move the workloads",
		},
		FieldRule{kind, "spec.kubeAPIServer.serviceAccountIssuer", StaysFixed, keepIssuer},
		FieldRule{kind, "spec.kubeAPIServer.acceptedServiceAccountIssuers", StaysFixed, keepIssuer},
		FieldRule{kind, "spec.serviceAccountIssuerDiscovery.discoveryStore", StaysFixed, keepIssuer},
		FieldRule{
			kind, "spec.networking.dnsDomain", StaysFixed,
			"keep it: running pods and certificates use it; create another cluster and move the workloads",
		},
		FieldRule{
			kind, "spec.networking.subnets[].name", StaysFixed,
			"keep the name: AWS does not allow two subnets with one range, so it cannot be renamed",
		},
		FieldRule{kind, "spec.networking.subnets[].zone", StaysFixed, newSubnet},
		FieldRule{kind, "spec.networking.subnets[].type", StaysFixed, newSubnet},
		FieldRule{kind, "spec.networking.subnets[].cidr", StaysFixed, newSubnet},
		FieldRule{kind, "spec.networking.subnets[].id", StaysFixed, newSubnet},
	)
}

// groupFieldRules are the rules of groups. Those of the slots of a control plane, which depend on several
// fields, are in checkSlotChanges.
func groupFieldRules() []FieldRule {
	const kind = v1alpha1.KindInstanceGroup

	return append(
		freeFields(
			kind,
			"spec.machineType", "spec.image", "spec.kubernetesVersion", "spec.userDataFormat",
			"spec.mixedInstancesPolicy.instances", "spec.mixedInstancesPolicy.onDemandBase",
			"spec.mixedInstancesPolicy.onDemandAboveBase",
			"spec.mixedInstancesPolicy.onDemandAllocationStrategy",
			"spec.mixedInstancesPolicy.spotAllocationStrategy",
			"spec.maxPrice", "spec.capacityRebalance",
			"spec.repair.disabled", "spec.repair.notReadyFor", "spec.repair.maxUnhealthyPercent",
			"spec.repair.minMachineAge",
			"spec.warmPool.minSize", "spec.warmPool.maxGroupPreparedCapacity",
			"spec.warmPool.poolState", "spec.warmPool.reuseOnScaleIn",
			"spec.minSize", "spec.maxSize", "spec.autoscale", "spec.subnets",
			"spec.rootVolume.type", "spec.rootVolume.size", "spec.rootVolume.iops",
			"spec.rootVolume.throughput", "spec.rootVolume.encryptionKey",
			"spec.nodeLabels", "spec.taints", "spec.cloudLabels", "spec.additionalSecurityGroups",
			"spec.iam.policies", "spec.iam.inlinePolicy",
			"spec.kubelet.kubeReserved", "spec.kubelet.systemReserved", "spec.kubelet.evictionHard",
			"spec.kubelet.evictionSoft", "spec.kubelet.evictionSoftGracePeriod", "spec.kubelet.maxPods",
			"spec.kubelet.podPidsLimit", "spec.kubelet.imageGCHighThresholdPercent",
			"spec.kubelet.imageGCLowThresholdPercent", "spec.kubelet.containerLogMaxSize",
			"spec.kubelet.containerLogMaxFiles", "spec.kubelet.maxParallelImagePulls",
			"spec.kubelet.allowedUnsafeSysctls", "spec.sysctls",
			"spec.additionalUserData[].name", "spec.additionalUserData[].type",
			"spec.additionalUserData[].content",
			"spec.instanceMetadata.httpPutResponseHopLimit", "spec.instanceMetadata.allowedCgroups",
		),
		FieldRule{
			kind, "spec.role", KeepsRole,
			"keep it; create a group of the other role, move the workloads, then delete this one",
		},
		FieldRule{
			kind, "spec.manager", KeepsManager,
			"keep it; create a group with the other manager, move the workloads, then delete this one",
		},
	)
}
