// SPDX-License-Identifier: Apache-2.0

package attack_test

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"sigs.k8s.io/yaml"
)

// channelRights are the rights of the accounts of the channels of examples, each of which somebody has read as an attacker who has the
// account's token. Where a right would give more than its reason, the policy or the test that limits it is named.
func channelRights() []string {
	return []string{
		// Reads no secret; writes host names of load balancers: TestControllerOfLoadBalancersWritesOnlyHostNames.
		"slipway:aws-cloud-controller-manager: get,list,watch nodes ",
		"slipway:aws-cloud-controller-manager: get,list,watch services ",
		"slipway:aws-cloud-controller-manager: patch services/status ",
		"slipway:aws-cloud-controller-manager: create,patch,update events ",
		"aws-cloud-controller-manager: create leases ",
		"aws-cloud-controller-manager: get,update leases cloud-controller-manager",
		"aws-cloud-controller-manager is slipway:aws-cloud-controller-manager",
		"aws-cloud-controller-manager is aws-cloud-controller-manager",
		"aws-cloud-controller-manager is extension-apiserver-authentication-reader",

		// Certificates of its own kinds, and Secrets: TestCertManagerWritesOnlyCertificates.
		"slipway:cert-manager: get,list,watch,create,update,patch,delete certificates,certificaterequests ",
		"slipway:cert-manager: get,list,watch,update,patch issuers,clusterissuers ",
		"slipway:cert-manager: update,patch certificates/status,certificaterequests/status,issuers/status,clusterissuers/status ",
		"slipway:cert-manager: update certificates/finalizers,certificaterequests/finalizers,issuers/finalizers,clusterissuers/finalizers ",
		"slipway:cert-manager: approve signers issuers.cert-manager.io/*,clusterissuers.cert-manager.io/*",
		"slipway:cert-manager: get,list,watch,create,update,patch,delete orders,challenges ",
		"slipway:cert-manager: update,patch orders/status,challenges/status ",
		"slipway:cert-manager: update orders/finalizers,challenges/finalizers ",
		"slipway:cert-manager: get,list,watch,create,patch,delete secrets ",
		"slipway:cert-manager: create,patch events ",
		"slipway:cert-manager: get,list,watch ingresses ",
		"slipway:cert-manager: update ingresses/finalizers ",
		"slipway:cert-manager: get,list,watch pods,services ",
		"cert-manager: create leases ",
		"cert-manager: get,update,patch leases cert-manager-controller",
		"cert-manager is slipway:cert-manager",
		"cert-manager is cert-manager",

		// Its own authority alone: TestCertManagerWritesOnlyCertificates.
		"slipway:cert-manager-webhook: create subjectaccessreviews ",
		"cert-manager-webhook: create secrets ",
		"cert-manager-webhook: get,list,watch,update secrets cert-manager-webhook-ca",
		"cert-manager-webhook is slipway:cert-manager-webhook",
		"cert-manager-webhook is cert-manager-webhook",

		// The configurations of cert-manager's webhook, an accepted risk: TestCertManagersRightsEndHere.
		"slipway:cert-manager-cainjector: get,list,watch validatingwebhookconfigurations,mutatingwebhookconfigurations ",
		"slipway:cert-manager-cainjector: patch validatingwebhookconfigurations,mutatingwebhookconfigurations cert-manager-webhook",
		"cert-manager-cainjector: get,list,watch secrets ",
		"cert-manager-cainjector: create,patch events ",
		"cert-manager-cainjector: create leases ",
		"cert-manager-cainjector: get,update,patch leases cert-manager-cainjector-leader-election",
		"cert-manager-cainjector is slipway:cert-manager-cainjector",
		"cert-manager-cainjector is cert-manager-cainjector",

		// Of users: Certificates of their namespaces.
		"cert-manager-view: get,list,watch certificates,certificaterequests,issuers ",
		"cert-manager-view: get,list,watch orders,challenges ",
		"cert-manager-edit: create,delete,deletecollection,patch,update certificates,certificaterequests,issuers ",

		// The names and addresses of Services.
		"slipway:external-dns: get,list,watch services ",
		"external-dns is slipway:external-dns",

		// TestProvisionerOfLocalVolumesIsLimited, TestProvisionersVolumesAreLimited.
		"local-path-provisioner: get,create,delete pods ",
		"local-path-provisioner: get pods/log ",
		"local-path-provisioner: get,list,watch configmaps ",
		"local-path-provisioner: get,list,watch nodes,persistentvolumeclaims ",
		"local-path-provisioner: get,list,watch,create,delete persistentvolumes ",
		"local-path-provisioner: create,patch events ",
		"local-path-provisioner: get,list,watch storageclasses ",
		"local-path-provisioner is local-path-provisioner",

		// Volumes of EBS and claims, within admission policies: TestTokenOfEBSDriverIsLimited. Its role in AWS: TestEBSDriverIsLimited.
		"slipway:ebs-csi-controller: get,list,watch,create,patch,delete persistentvolumes ",
		"slipway:ebs-csi-controller: get,list,watch,update persistentvolumeclaims ",
		"slipway:ebs-csi-controller: patch persistentvolumeclaims/status ",
		"slipway:ebs-csi-controller: get,list,watch nodes ",
		"slipway:ebs-csi-controller: create,update,patch events ",
		"slipway:ebs-csi-controller: get,list,watch storageclasses,csinodes,volumeattributesclasses ",
		"slipway:ebs-csi-controller: get,list,watch,patch volumeattachments ",
		"slipway:ebs-csi-controller: patch volumeattachments/status ",
		"slipway:ebs-csi-controller: get,list,watch volumesnapshotclasses ",
		"slipway:ebs-csi-controller: get,list,watch,update volumesnapshots ",
		"slipway:ebs-csi-controller: get,list,watch,update,patch volumesnapshotcontents ",
		"slipway:ebs-csi-controller: update,patch volumesnapshotcontents/status ",
		"ebs-csi-controller: create leases ",
		"ebs-csi-controller: get,update leases ebs-csi-aws-com,external-attacher-leader-ebs-csi-aws-com,external-resizer-ebs-csi-aws-com," +
			"external-snapshotter-leader-ebs-csi-aws-com",
		"ebs-csi-controller is slipway:ebs-csi-controller",
		"ebs-csi-controller is ebs-csi-controller",

		// Reads only.
		"slipway:ebs-csi-node: get nodes ",
		"slipway:ebs-csi-node: get,list,watch volumeattachments ",
		"ebs-csi-node is slipway:ebs-csi-node",

		// Snapshots of all namespaces, which have no content of their own; of claims only what is not their specification.
		"slipway:snapshot-controller: get,list,watch persistentvolumes ",
		"slipway:snapshot-controller: get,list,watch,update persistentvolumeclaims ",
		"slipway:snapshot-controller: create,update,patch events ",
		"slipway:snapshot-controller: get,list,watch volumesnapshotclasses ",
		"slipway:snapshot-controller: get,list,watch,create,update,patch,delete volumesnapshotcontents ",
		"slipway:snapshot-controller: patch volumesnapshotcontents/status ",
		"slipway:snapshot-controller: get,list,watch,update,patch,delete volumesnapshots ",
		"slipway:snapshot-controller: update,patch volumesnapshots/status ",
		"snapshot-controller: create leases ",
		"snapshot-controller: get,update leases snapshot-controller-leader",
		"snapshot-controller is slipway:snapshot-controller",
		"snapshot-controller is snapshot-controller",

		// Finalizers of Ingresses and the names of load balancers in those of class alb: TestTokenOfIngressControllerIsLimited.
		"slipway:aws-load-balancer-controller: get,list,watch namespaces,nodes,pods,services ",
		"slipway:aws-load-balancer-controller: get,list,watch endpointslices ",
		"slipway:aws-load-balancer-controller: create,patch events ",
		"slipway:aws-load-balancer-controller: get,list,watch ingressclasses ",
		"slipway:aws-load-balancer-controller: get,list,watch,update,patch ingresses ",
		"slipway:aws-load-balancer-controller: update,patch ingresses/status ",
		"slipway:aws-load-balancer-controller: get,list,watch ingressclassparams ",
		"slipway:aws-load-balancer-controller: get,list,watch,create,update,patch,delete targetgroupbindings ",
		"slipway:aws-load-balancer-controller: update,patch targetgroupbindings/status ",
		"aws-load-balancer-controller: create leases ",
		"aws-load-balancer-controller: get,update,patch leases aws-load-balancer-controller-leader",
		"aws-load-balancer-controller is slipway:aws-load-balancer-controller",
		"aws-load-balancer-controller is aws-load-balancer-controller",

		// Its own taints of workers: TestTokenOfGroupScalerIsLimited. It evicts pods, as disruption budgets allow, and reads no Secret. Its
		// role in AWS: TestGroupScalerIsLimited.
		"slipway:cluster-autoscaler: get,list,watch namespaces,pods,services,replicationcontrollers,persistentvolumeclaims,persistentvolumes ",
		"slipway:cluster-autoscaler: get,list,watch,update nodes ",
		"slipway:cluster-autoscaler: create pods/eviction ",
		"slipway:cluster-autoscaler: create,patch events ",
		"slipway:cluster-autoscaler: get,list,watch daemonsets,replicasets,statefulsets ",
		"slipway:cluster-autoscaler: get,list,watch jobs ",
		"slipway:cluster-autoscaler: list,watch poddisruptionbudgets ",
		"slipway:cluster-autoscaler: get,list,watch deviceclasses,resourceslices,resourceclaims ",
		"slipway:cluster-autoscaler: get,list,watch storageclasses,csinodes,csidrivers,csistoragecapacities,volumeattachments ",
		"cluster-autoscaler: create leases ",
		"cluster-autoscaler: get,update leases cluster-autoscaler",
		"cluster-autoscaler is slipway:cluster-autoscaler",
		"cluster-autoscaler is cluster-autoscaler",

		// What kubelets measure, and who a token is of; the second writes reviews, which change nothing.
		"system:aggregated-metrics-reader: get,list,watch pods,nodes ",
		"system:metrics-server: get nodes/metrics ",
		"system:metrics-server: get,list,watch pods,nodes ",
		"metrics-server is system:metrics-server",
		"metrics-server is system:auth-delegator",
		"metrics-server is extension-apiserver-authentication-reader",

		// Secrets of the namespaces that it was given: TestRealTraefik.
		"slipway:traefik: get,list,watch ingressclasses ",
		"slipway:traefik: get,list,watch nodes ",
		"traefik-ingresses: get,list,watch ingresses ",
		"traefik-ingresses: update ingresses/status ",
		"traefik-ingresses: get,list,watch services,secrets ",
		"traefik-ingresses: get,list,watch endpointslices ",
		"traefik is slipway:traefik",
		"traefik is traefik-ingresses",

		// TestMetricsGate.
		"machine-metrics is system:auth-delegator",
		"control-plane-metrics is system:auth-delegator",
		"slipway:control-plane-metrics: get /metrics ",
		"control-plane-metrics is slipway:control-plane-metrics",
		"slipway:prometheus: get,list,watch nodes ",
		"slipway:prometheus: get /metrics,/metrics/etcd,/metrics/slipway-agent,/metrics/kube-scheduler,/metrics/kube-controller-manager," +
			"/metrics/kube-proxy,/metrics/machine ",
		"slipway:prometheus: get,list,watch pods ",
		"prometheus is slipway:prometheus",

		// Nodes, within an admission policy: TestTokenOfTheNodeController, TestRealNodeController.
		"slipway:aws-cloud-nodes: get,list,watch,patch,update,delete nodes ",
		"slipway:aws-cloud-nodes: patch nodes/status ",
		"aws-cloud-controller-manager is slipway:aws-cloud-nodes",

		// For tests only, design 0028: TestRealKarpenter. What its role in AWS may not do: TestKarpenterIsLimited.
		"slipway:karpenter: get,list,watch nodepools,nodeclaims ",
		"slipway:karpenter: create,delete,update,patch nodeclaims,nodeclaims/status ",
		"slipway:karpenter: update,patch nodepools,nodepools/status ",
		"slipway:karpenter: get,list,watch,patch,update ec2nodeclasses ",
		"slipway:karpenter: patch,update ec2nodeclasses/status ",
		"slipway:karpenter: get,list,watch pods,nodes,persistentvolumes,persistentvolumeclaims,namespaces ",
		"slipway:karpenter: get,list,watch storageclasses,csinodes,volumeattachments ",
		"slipway:karpenter: get,list,watch daemonsets ",
		"slipway:karpenter: get,list,watch poddisruptionbudgets ",
		"slipway:karpenter: patch,delete,update nodes ",
		"slipway:karpenter: create pods/eviction ",
		"slipway:karpenter: delete pods ",
		"slipway:karpenter: create,patch events ",
		"karpenter is slipway:karpenter",
		"karpenter: create leases ",
		"karpenter: get,patch,update leases karpenter-leader-election",
		"karpenter: get services kube-dns",
		"karpenter is karpenter",
	}
}

// TestAccountsOfChannelsMayLittle: each right of an account of the channels of examples was read by somebody as an attacker who has
// its token. The right of the cloud controller manager to update every Service was found by that. Seen to fail for that right.
func TestAccountsOfChannelsMayLittle(t *testing.T) {
	var have []string
	for _, pattern := range []string{"../../examples/addons/*.yaml", "../../examples/monitoring/*.yaml"} {
		files, err := filepath.Glob(pattern)
		check(t, err)
		for _, file := range files {
			have = append(have, rightsIn(t, file)...)
		}
	}
	compareRights(t, have, channelRights())
}

// rightsIn returns the rules of the roles in a file, and who has which role.
func rightsIn(t *testing.T, file string) []string {
	t.Helper()
	text, err := os.ReadFile(file)
	check(t, err)
	var rights []string
	for document := range strings.SplitSeq(string(text), "\n---\n") {
		if !strings.Contains(document, "kind: Role") && !strings.Contains(document, "kind: ClusterRole") {
			continue
		}
		var r accountRules
		if err := yaml.Unmarshal([]byte(document), &r); err != nil {
			t.Fatalf("%s: %v", file, err)
		}
		for _, rule := range r.Rules {
			rights = append(rights, fmt.Sprintf("%s: %s %s %s", r.Metadata.Name, strings.Join(rule.Verbs, ","),
				strings.Join(append(rule.Resources, rule.NonResourceURLs...), ","), strings.Join(rule.ResourceNames, ",")))
		}
		for _, s := range r.Subjects {
			rights = append(rights, s.Name+" is "+r.RoleRef.Name)
		}
	}

	return rights
}
