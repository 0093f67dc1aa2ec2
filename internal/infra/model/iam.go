// SPDX-License-Identifier: Apache-2.0

package model

import (
	"cmp"
	"slices"
	"strings"

	"github.com/slipway-k8s/slipway/api/v1alpha1"
	"github.com/slipway-k8s/slipway/internal/infra/awskind"
	"github.com/slipway-k8s/slipway/internal/infra/graph"
	"github.com/slipway-k8s/slipway/internal/lib/store"
)

// addIAMRoles adds an IAM role and an instance profile for each machine role, and for each slot of the control plane
// (see slotrole.go). A policy allows only the actions that the agent calls.
func (b *builder) addIAMRoles() {
	if b.KeepsSharedRole || existingControlPlaneProfile(b) != "" {
		b.addMachineRole(&b.controlPlane, v1alpha1.RoleControlPlane, b.controlPlanePolicy(""))
	}

	b.addMachineRole(&b.worker, v1alpha1.RoleWorker, b.workerPolicy())
	// A bastion calls no AWS API, so without Session Manager it has no IAM role.
	if b.hasBastion() && b.Cluster.Spec.MachineAccess.SessionManager {
		b.addMachineRole(&b.bastion, v1alpha1.RoleBastion, "")
	}
}

func (b *builder) addMachineRole(m *machineRole, role v1alpha1.Role, policy graph.JSON) {
	b.addRole(m, roleSpec{
		graphName:       roleTag(role),
		name:            RoleName(b.clusterName(), b.Region, role),
		policy:          policy,
		existingProfile: b.existingProfile(b.Cluster.Spec.CloudProvider.AWS.InstanceProfiles, role),
	})
}

// roleSpec describes an IAM role.
type roleSpec struct {
	graphName       string     // name in the graph
	name            string     // name in IAM
	existingProfile string     // an unmanaged instance profile to use instead
	policy          graph.JSON // what the agent needs
	additional      graph.JSON // from the manifest
	managed         []string   // ARNs of managed policies
	tags            awskind.Tags
}

func (b *builder) addRole(m *machineRole, s roleSpec) {
	m.policies = nil
	if s.existingProfile != "" {
		m.profile = graph.UnmanagedRef[awskind.InstanceProfile](s.existingProfile)
		return
	}

	path := RolePath(b.clusterName(), b.Region)
	r := graph.Add(b.graph, s.graphName, awskind.IAMRole{
		Name:        s.name,
		Path:        path,
		Description: "Machines (" + s.graphName + ") of the Kubernetes cluster " + b.clusterName(),
		TrustPolicy: policyDocument(
			policyStatement{
				ID:        "Instances",
				Principal: policyPrincipal{"Service": "ec2." + b.dnsSuffix()},
				Actions:   []string{"sts:AssumeRole"},
			},
		),
		Tags:                b.resourceTags(awskind.IAMRole{}.Kind(), s.graphName, s.tags),
		PermissionsBoundary: b.MachineStore.Boundary,
		ManagedPolicies:     s.managed,
	})

	add := func(graphName, name string, doc graph.JSON) {
		if doc != "" {
			m.policies = append(
				m.policies,
				graph.Add(b.graph, graphName, awskind.IAMRolePolicy{Role: r, Name: name, Document: doc}),
			)
		}
	}

	add(s.graphName, "machine", s.policy)
	add(s.graphName+"-additional", "additional", s.additional)
	if b.Cluster.Spec.MachineAccess.SessionManager {
		add(s.graphName+"-session-manager", "session-manager", sessionManagerPolicy())
	}

	m.profile = graph.Add(
		b.graph,
		s.graphName,
		awskind.InstanceProfile{Name: s.name, Path: path, Roles: []graph.Ref[awskind.IAMRole]{r}},
	)
}

// addGroupRole returns the machine role of a worker group with its own permissions. Everything else is as for
// other workers.
func (b *builder) addGroupRole(ig v1alpha1.InstanceGroup) *machineRole {
	m := b.worker
	b.addRole(&m, roleSpec{
		graphName:  "worker-" + ig.Metadata.Name,
		name:       GroupRoleName(b.clusterName(), b.Region, ig.Metadata.Name),
		policy:     b.workerPolicy(),
		additional: graph.CanonicalJSON(ig.Spec.IAM.InlinePolicy),
		managed:    ig.Spec.IAM.Policies,
	})

	return &m
}

// sessionManagerPolicy allows only what an SSM agent needs for sessions. AWS's managed policy would also
// allow reading every parameter of the account.
func sessionManagerPolicy() graph.JSON {
	return policyDocument(policyStatement{ID: "SessionManager", Resources: []string{"*"}, Actions: []string{
		"ssm:UpdateInstanceInformation", "ssmmessages:CreateControlChannel", "ssmmessages:CreateDataChannel",
		"ssmmessages:OpenControlChannel", "ssmmessages:OpenDataChannel",
	}})
}

// existingProfile returns the instance profile that the manifest names for a machine role; empty for none.
func (*builder) existingProfile(e v1alpha1.Existing, role v1alpha1.Role) string {
	switch role {
	case v1alpha1.RoleControlPlane:
		return e.ControlPlane
	case v1alpha1.RoleWorker:
		return e.Worker
	case v1alpha1.RoleBastion: // the manifest has no such field
	}

	return ""
}

// controlPlanePolicy allows control-plane machines to find the cluster's machines and volumes, to attach
// their own volume and detach it when they hand over their slot, to read their part of the machine store, and to write the etcd markers.
// The slot is that of a role of its own; empty for the role that all slots share.
func (b *builder) controlPlanePolicy(slot string, more ...policyStatement) graph.JSON {
	ec2 := "arn:" + b.Partition + ":ec2:" + b.Region + ":" + b.Account + ":"
	list := []policyStatement{
		{
			ID:        "Find",
			Actions:   []string{"autoscaling:DescribeAutoScalingGroups", "ec2:DescribeInstances", "ec2:DescribeVolumes"},
			Resources: []string{"*"},
		}, // AWS does not restrict Describe calls to resources
		{
			ID:        "Attach",
			Actions:   []string{"ec2:AttachVolume", "ec2:DetachVolume"},
			Resources: []string{ec2 + "instance/*", ec2 + "volume/*"},
			Condition: ownSlotCondition(b, slot),
		},
		{
			ID:        "Read",
			Actions:   []string{"s3:GetObject"},
			Resources: b.objectARNs("agent", "controlplane", "secrets", "etcd"),
		},
		{ID: "Write", Actions: []string{"s3:PutObject"}, Resources: etcdRecords(b, replaced(slot))},
		{ // what decides which data counts: without If-None-Match a request could replace it
			ID:        "WriteOnce",
			Actions:   []string{"s3:PutObject"},
			Resources: etcdRecords(b, onceWritten(slot)),
			Condition: policyCondition{"Null": {"s3:if-none-match": "false"}},
		},
		// Retention of etcd's backups. The bucket is versioned: a machine cannot delete earlier versions.
		{ID: "Expire", Actions: []string{"s3:DeleteObject"}, Resources: b.objectARNs("etcd/backups")},
		// For a missing object S3 answers 404 only to who may list it: the prefix is then the object's key. Machines
		// miss objects in this folder only (docs/aws-facts.md).
		{
			ID:        "List",
			Actions:   []string{"s3:ListBucket"},
			Resources: []string{b.bucketARN()},
			Condition: policyCondition{"StringLike": {"s3:prefix": b.machineStoreKey("etcd/*")}},
		},
	}

	list = append(list, b.repairStatement(), b.peerStatement())
	list = append(list, launchCheckStatements(b)...)
	list = append(list, b.addressStatements(ownSlotCondition(b, ""))...)

	return policyDocument(slices.Concat(
		list,
		keyStatements(b),
		more,
		imageStatements(b.Cluster.Spec.Assets),
		b.auditStatements(),
		b.signalStatements(),
	)...)
}

// replaced returns the objects below etcd that machines replace: the reports and records of their own slot, and those of the leader
// about all slots.
func replaced(slot string) []string {
	own := cmp.Or(slot, "*")

	return []string{
		"absent/*", "answer.json", "backups/*/part-*", "created/" + own, "joined/" + own, "quorum/" + own, "resize",
	}
}

// onceWritten returns the objects below etcd that machines write once: what decides which data counts.
func onceWritten(slot string) []string {
	return []string{
		"initialized", "generations/*", "restored/*/" + cmp.Or(slot, "*"), "backups/*.json",
	}
}

// etcdRecords returns the ARN patterns of objects below etcd.
func etcdRecords(b *builder, keys []string) []string {
	var out []string
	for _, key := range keys {
		out = append(out, b.bucketARN()+"/"+b.machineStoreKey("etcd/"+key))
	}

	return out
}

// keyStatements allows control-plane machines to use the key of the machine store, if it has one of its own.
func keyStatements(b *builder) []policyStatement {
	key := b.MachineStore.KMSKeyARN
	if key == "" {
		return nil
	}

	return []policyStatement{
		{
			ID:        "Store",
			Actions:   []string{"kms:Decrypt", "kms:GenerateDataKey"},
			Resources: []string{key},
			Condition: b.viaS3(),
		},
		{
			ID:        "Secrets",
			Actions:   []string{"kms:Decrypt"},
			Resources: []string{key},
			Condition: policyCondition{
				"StringEquals": {"kms:EncryptionContext:" + awskind.TagCluster: b.clusterName()},
			},
		},
		{ // seals the keys of etcd's backups, and of nothing else
			ID:        "Backups",
			Actions:   []string{"kms:GenerateDataKey"},
			Resources: []string{key},
			Condition: policyCondition{
				"StringEquals": {"kms:EncryptionContext:" + awskind.TagCluster: b.clusterName()},
				"StringLike":   {"kms:EncryptionContext:slipway.dev/backup": "*"},
			},
		},
	}
}

// auditStatements allows control-plane machines to add to their cluster's audit log, if it is uploaded. Without
// If-None-Match a request could replace an object.
func (b *builder) auditStatements() []policyStatement {
	if !b.Cluster.Spec.KubeAPIServer.AuditLogUpload {
		return nil
	}

	return []policyStatement{{
		ID:        "Audit",
		Actions:   []string{"s3:PutObject"},
		Resources: []string{b.bucketARN() + "/" + b.storeKey(store.AuditLogPrefix(b.clusterName())+"*")},
		Condition: policyCondition{"Null": {"s3:if-none-match": "false"}},
	}}
}

// signalStatements allows control-plane machines to signal success or failure to their own stack, also for workers.
func (b *builder) signalStatements() []policyStatement {
	if !b.SignalStack {
		return nil
	}

	stack := "arn:" + b.Partition + ":cloudformation:" + b.Region + ":" + b.Account +
		":stack/" + graph.StackNamePlaceholder + "/*"

	return []policyStatement{
		{ID: "Signal", Actions: []string{"cloudformation:SignalResource"}, Resources: []string{stack}},
	}
}

// workerPolicy allows workers to read the agent and the workers' documents, which contain no secrets. It allows no writes
// (requirement S5.1).
func (b *builder) workerPolicy() graph.JSON {
	list := []policyStatement{
		{ID: "Read", Actions: []string{"s3:GetObject"}, Resources: b.objectARNs("agent", "worker")},
	}
	if key := b.MachineStore.KMSKeyARN; key != "" {
		list = append(list, policyStatement{
			ID:        "Store",
			Actions:   []string{"kms:Decrypt"},
			Resources: []string{key},
			Condition: b.viaS3(),
		})
	}

	return policyDocument(append(list, imageStatements(b.Cluster.Spec.Assets)...)...)
}

// viaS3 restricts the use of the store's key to requests of S3 on behalf of the role.
func (b *builder) viaS3() policyCondition {
	return policyCondition{"StringEquals": {"kms:ViaService": "s3." + b.Region + "." + b.dnsSuffix()}}
}

func (b *builder) bucketARN() string { return "arn:" + b.Partition + ":s3:::" + b.MachineStore.Bucket }

// machineStoreKey returns the S3 key of an object of the machine store.
func (b *builder) machineStoreKey(below string) string {
	return b.storeKey(b.clusterName() + "/machine/" + below)
}

// storeKey returns the S3 key of an object of the store.
func (b *builder) storeKey(key string) string {
	return strings.TrimPrefix(b.MachineStore.Prefix+"/", "/") + key
}

// objectARNs returns ARN patterns for all objects under folders of the machine store.
func (b *builder) objectARNs(folders ...string) []string {
	out := make([]string, 0, len(folders))
	for _, f := range folders {
		out = append(out, b.bucketARN()+"/"+b.machineStoreKey(f+"/*"))
	}

	return out
}
