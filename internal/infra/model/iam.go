// SPDX-License-Identifier: Apache-2.0

package model

import (
	"strings"

	"github.com/slipway-k8s/slipway/api/v1alpha1"
	"github.com/slipway-k8s/slipway/internal/infra/awskind"
	"github.com/slipway-k8s/slipway/internal/infra/graph"
)

// iam adds a role and a profile for each role of machine, with the actions that its agent calls and no other.
func (b *builder) iam() {
	b.roleOf(&b.cp, v1alpha1.RoleControlPlane, b.controlPlanePolicy())
	b.roleOf(&b.worker, v1alpha1.RoleWorker, b.workerPolicy())
	// A bastion calls nothing: without Session Manager it has no role at all.
	if b.hasBastion() && b.Cluster.Spec.MachineAccess.SessionManager {
		b.roleOf(&b.bastion, v1alpha1.RoleBastion, "")
	}
}

func (b *builder) roleOf(m *machines, role v1alpha1.Role, policy graph.JSON) {
	b.role(m, roleSpec{
		graph: roleTag(role), name: RoleName(b.name(), b.Region, role), policy: policy,
		existing: b.provided(b.Cluster.Spec.CloudProvider.AWS.InstanceProfiles, role),
	})
}

// roleSpec is an IAM role: its name in the graph and in IAM, and what it may do.
type roleSpec struct {
	graph, name        string
	existing           string // a profile that is there already
	policy, additional graph.JSON
	managed            []string
}

func (b *builder) role(m *machines, s roleSpec) {
	m.policies = nil
	if s.existing != "" {
		m.profile = graph.Existing[awskind.InstanceProfile](s.existing)
		return
	}
	path := RolePath(b.name(), b.Region)
	r := graph.Add(b.g, s.graph, awskind.Role{
		Name: s.name, Path: path, Description: "Machines (" + s.graph + ") of the Kubernetes cluster " + b.name(),
		Trust: document(statement{ID: "Instances", Principal: principal{"Service": "ec2." + b.dnsSuffix()}, Actions: []string{"sts:AssumeRole"}}),
		Tags:  b.tags(awskind.Role{}.Kind(), s.graph, nil), ManagedPolicies: s.managed,
	})
	add := func(graphName, name string, doc graph.JSON) {
		if doc != "" {
			m.policies = append(m.policies, graph.Add(b.g, graphName, awskind.RolePolicy{Role: r, Name: name, Document: doc}))
		}
	}
	add(s.graph, "machine", s.policy)
	add(s.graph+"-additional", "additional", s.additional)
	if b.Cluster.Spec.MachineAccess.SessionManager {
		add(s.graph+"-session-manager", "session-manager", sessionManagerPolicy())
	}
	m.profile = graph.Add(b.g, s.graph, awskind.InstanceProfile{Name: s.name, Path: path, Roles: []graph.Ref[awskind.Role]{r}})
}

// groupRole is the machines of a group of workers that has rights of its own: they share everything else.
func (b *builder) groupRole(ig v1alpha1.InstanceGroup) *machines {
	m := b.worker
	b.role(&m, roleSpec{
		graph: "worker-" + ig.Metadata.Name, name: GroupRoleName(b.name(), b.Region, ig.Metadata.Name), policy: b.workerPolicy(),
		additional: graph.Canonical(ig.Spec.IAM.InlinePolicy), managed: ig.Spec.IAM.Policies,
	})
	return &m
}

// sessionManagerPolicy is what an SSM agent needs for sessions, and no more: AWS's managed policy would let it read
// every parameter of the account.
func sessionManagerPolicy() graph.JSON {
	return document(statement{ID: "SessionManager", Resources: []string{"*"}, Actions: []string{
		"ssm:UpdateInstanceInformation", "ssmmessages:CreateControlChannel", "ssmmessages:CreateDataChannel",
		"ssmmessages:OpenControlChannel", "ssmmessages:OpenDataChannel",
	}})
}

// provided is what the manifest names for a role of machine.
func (*builder) provided(e v1alpha1.Existing, role v1alpha1.Role) string {
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
	own := condition{"StringEquals": {"aws:ResourceTag/" + awskind.TagCluster: b.name()}}
	ec2 := "arn:" + b.Partition + ":ec2:" + b.Region + ":" + b.Account + ":"
	list := []statement{
		{ID: "Find", Actions: []string{"ec2:DescribeInstances", "ec2:DescribeVolumes"}, Resources: []string{"*"}}, // EC2 has no narrower right
		{ID: "Attach", Actions: []string{"ec2:AttachVolume"}, Resources: []string{ec2 + "instance/*", ec2 + "volume/*"}, Condition: own},
		{ID: "Read", Actions: []string{"s3:GetObject"}, Resources: b.objects("agent", "controlplane", "secrets", "etcd")},
		{ID: "Write", Actions: []string{"s3:PutObject"}, Resources: b.objects("etcd")},
		// Without it S3 answers 403 for a missing marker, which looks like a missing right. A GetObject has no prefix.
		{
			ID: "List", Actions: []string{"s3:ListBucket"}, Resources: []string{b.bucket()},
			Condition: condition{"StringLikeIfExists": {"s3:prefix": b.key3("etcd/*")}},
		},
	}
	list = append(list, b.addressStatements(own)...)
	if key := b.MachineStore.KMSKeyARN; key != "" {
		list = append(list,
			statement{ID: "Store", Actions: []string{"kms:Decrypt", "kms:GenerateDataKey"}, Resources: []string{key}, Condition: b.viaS3()},
			statement{
				ID: "Secrets", Actions: []string{"kms:Decrypt"}, Resources: []string{key},
				Condition: condition{"StringEquals": {"kms:EncryptionContext:" + awskind.TagCluster: b.name()}},
			})
	}
	return document(append(list, b.signal()...)...)
}

// signal lets machines tell their own stack that they are well, or why they will not be.
func (b *builder) signal() []statement {
	if !b.Signals {
		return nil
	}
	stack := "arn:" + b.Partition + ":cloudformation:" + b.Region + ":" + b.Account + ":stack/" + graph.StackName + "/*"
	return []statement{{ID: "Signal", Actions: []string{"cloudformation:SignalResource"}, Resources: []string{stack}}}
}

// workerPolicy: read the agent and the workers' documents, which hold no secret. Nothing may be written (S5.1).
func (b *builder) workerPolicy() graph.JSON {
	list := []statement{{ID: "Read", Actions: []string{"s3:GetObject"}, Resources: b.objects("agent", "worker")}}
	if key := b.MachineStore.KMSKeyARN; key != "" {
		list = append(list, statement{ID: "Store", Actions: []string{"kms:Decrypt"}, Resources: []string{key}, Condition: b.viaS3()})
	}
	return document(append(list, b.signal()...)...)
}

// viaS3 lets a role use the store's key only as S3 does for an object that it may read.
func (b *builder) viaS3() condition {
	return condition{"StringEquals": {"kms:ViaService": "s3." + b.Region + "." + b.dnsSuffix()}}
}

func (b *builder) bucket() string { return "arn:" + b.Partition + ":s3:::" + b.MachineStore.Bucket }

// key3 is a key in the machine store, as S3 has it.
func (b *builder) key3(below string) string {
	return strings.TrimPrefix(b.MachineStore.Prefix+"/", "/") + b.name() + "/machine/" + below
}

// objects are all objects below folders of the machine store.
func (b *builder) objects(folders ...string) []string {
	out := make([]string, 0, len(folders))
	for _, f := range folders {
		out = append(out, b.bucket()+"/"+b.key3(f+"/*"))
	}
	return out
}
