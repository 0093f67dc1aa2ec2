// SPDX-License-Identifier: Apache-2.0

package model

import (
	"strings"

	"github.com/slipway-k8s/slipway/api/v1alpha1"
	"github.com/slipway-k8s/slipway/internal/infra/awskind"
	"github.com/slipway-k8s/slipway/internal/infra/graph"
)

// addIAMRoles adds a role and a profile for each role of machine, with the actions that its agent calls and no other.
func (b *builder) addIAMRoles() {
	b.addMachineRole(&b.controlPlane, v1alpha1.RoleControlPlane, b.controlPlanePolicy())
	b.addMachineRole(&b.worker, v1alpha1.RoleWorker, b.workerPolicy())
	// A bastion calls nothing: without Session Manager it has no role at all.
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

// roleSpec is an IAM role: its name in the graph and in IAM, and what it may do.
type roleSpec struct {
	graphName, name    string
	existingProfile    string // a profile that is there already
	policy, additional graph.JSON
	managed            []string
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
		Tags:            b.resourceTags(awskind.IAMRole{}.Kind(), s.graphName, nil),
		ManagedPolicies: s.managed,
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

// addGroupRole is the machines of a group of workers that has rights of its own: they share everything else.
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

// sessionManagerPolicy is what an SSM agent needs for sessions, and no more: AWS's managed policy would let it read
// every parameter of the account.
func sessionManagerPolicy() graph.JSON {
	return policyDocument(policyStatement{ID: "SessionManager", Resources: []string{"*"}, Actions: []string{
		"ssm:UpdateInstanceInformation", "ssmmessages:CreateControlChannel", "ssmmessages:CreateDataChannel",
		"ssmmessages:OpenControlChannel", "ssmmessages:OpenDataChannel",
	}})
}

// existingProfile is what the manifest names for a role of machine.
func (*builder) existingProfile(e v1alpha1.Existing, role v1alpha1.Role) string {
	switch role {
	case v1alpha1.RoleControlPlane:
		return e.ControlPlane
	case v1alpha1.RoleWorker:
		return e.Worker
	case v1alpha1.RoleBastion: // the manifest names none
	}

	return ""
}

// controlPlanePolicy: find the cluster's machines and volumes, attach one's own, read what the control plane needs,
// and keep etcd's marker.
func (b *builder) controlPlanePolicy() graph.JSON {
	own := policyCondition{"StringEquals": {"aws:ResourceTag/" + awskind.TagCluster: b.clusterName()}}
	ec2 := "arn:" + b.Partition + ":ec2:" + b.Region + ":" + b.Account + ":"
	list := []policyStatement{
		{
			ID:        "Find",
			Actions:   []string{"ec2:DescribeInstances", "ec2:DescribeVolumes"},
			Resources: []string{"*"},
		}, // EC2 has no narrower right
		{
			ID:        "Attach",
			Actions:   []string{"ec2:AttachVolume"},
			Resources: []string{ec2 + "instance/*", ec2 + "volume/*"},
			Condition: own,
		},
		{
			ID:        "Read",
			Actions:   []string{"s3:GetObject"},
			Resources: b.objectARNs("agent", "controlplane", "secrets", "etcd"),
		},
		{ID: "Write", Actions: []string{"s3:PutObject"}, Resources: b.objectARNs("etcd")},
		// Without it S3 answers 403 for a missing marker, which looks like a missing right. A GetObject has no prefix.
		{
			ID:        "List",
			Actions:   []string{"s3:ListBucket"},
			Resources: []string{b.bucketARN()},
			Condition: policyCondition{"StringLikeIfExists": {"s3:prefix": b.machineStoreKey("etcd/*")}},
		},
	}

	list = append(list, b.addressStatements(own)...)
	if key := b.MachineStore.KMSKeyARN; key != "" {
		list = append(list,
			policyStatement{
				ID:        "Store",
				Actions:   []string{"kms:Decrypt", "kms:GenerateDataKey"},
				Resources: []string{key},
				Condition: b.viaS3(),
			},
			policyStatement{
				ID:        "Secrets",
				Actions:   []string{"kms:Decrypt"},
				Resources: []string{key},
				Condition: policyCondition{
					"StringEquals": {"kms:EncryptionContext:" + awskind.TagCluster: b.clusterName()},
				},
			})
	}

	return policyDocument(append(list, b.signalStatements()...)...)
}

// signalStatements lets machines tell their own stack that they are well, or why they will not be.
func (b *builder) signalStatements() []policyStatement {
	if !b.SignalStack {
		return nil
	}

	stack := "arn:" + b.Partition + ":cloudformation:" + b.Region + ":" + b.Account + ":stack/" + graph.StackNamePlaceholder + "/*"
	return []policyStatement{
		{ID: "Signal", Actions: []string{"cloudformation:SignalResource"}, Resources: []string{stack}},
	}
}

// workerPolicy: read the agent and the workers' documents, which hold no secret. Nothing may be written (S5.1).
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

	return policyDocument(append(list, b.signalStatements()...)...)
}

// viaS3 lets a role use the store's key only as S3 does for an object that it may read.
func (b *builder) viaS3() policyCondition {
	return policyCondition{"StringEquals": {"kms:ViaService": "s3." + b.Region + "." + b.dnsSuffix()}}
}

func (b *builder) bucketARN() string { return "arn:" + b.Partition + ":s3:::" + b.MachineStore.Bucket }

// machineStoreKey is a key in the machine store, as S3 has it.
func (b *builder) machineStoreKey(below string) string {
	return strings.TrimPrefix(b.MachineStore.Prefix+"/", "/") + b.clusterName() + "/machine/" + below
}

// objectARNs are all objects below folders of the machine store.
func (b *builder) objectARNs(folders ...string) []string {
	out := make([]string, 0, len(folders))
	for _, f := range folders {
		out = append(out, b.bucketARN()+"/"+b.machineStoreKey(f+"/*"))
	}

	return out
}
