// SPDX-License-Identifier: Apache-2.0

package iam

import (
	"crypto/sha256"
	"encoding/base32"
	"strings"
)

// awsManagedPolicies returns the policies managed by AWS that the region has, by ARN: those that are attached
// most often to the roles of clusters.
func awsManagedPolicies() map[string]*managedPolicy {
	out := map[string]*managedPolicy{}
	for _, p := range []struct {
		name    string
		id      string
		actions []string
	}{
		{
			name:    "AdministratorAccess",
			id:      "ANPAIWMBCKSKIEE64ZLYK",
			actions: []string{"*"},
		},
		{
			name:    "AmazonEC2ContainerRegistryReadOnly",
			id:      "ANPAIFYZPA37OOHVIH7KQ",
			actions: registryReadActions(),
		},
		{
			name:    "AmazonSSMManagedInstanceCore",
			id:      "ANPAIXSHM2BNB2D3AXXRU",
			actions: systemsManagerAgentActions(),
		},
	} {
		arn := "arn:aws:iam::aws:policy/" + p.name
		out[arn] = &managedPolicy{
			Name:     p.name,
			ID:       p.id,
			Path:     "/",
			ARN:      arn,
			Default:  "v1",
			Versions: []policyVersion{{ID: "v1", Document: allowDocument(p.actions)}},
		}
	}

	for _, l := range linkedServices() {
		arn := l.policyARN()
		out[arn] = &managedPolicy{
			Name:     l.policy,
			ID:       linkedPolicyID(l.policy),
			Path:     serviceLinkedPath,
			ARN:      arn,
			Default:  "v1",
			Versions: []policyVersion{{ID: "v1"}}, // the region does not have its document
		}
	}

	return out
}

// linkedPolicyID returns a unique ID for the policy of a service-linked role.
func linkedPolicyID(name string) string {
	sum := sha256.Sum256([]byte(name))

	return "ANPA" + base32.StdEncoding.EncodeToString(sum[:])[:17]
}

// allowDocument returns a policy document that allows actions on all resources.
func allowDocument(actions []string) string {
	list := `"` + strings.Join(actions, `","`) + `"`
	if len(actions) > 1 {
		list = "[" + list + "]"
	}

	return `{"Version":"2012-10-17","Statement":[{"Effect":"Allow","Action":` + list + `,"Resource":"*"}]}`
}

// registryReadActions returns the actions of AmazonEC2ContainerRegistryReadOnly.
func registryReadActions() []string {
	return []string{
		"ecr:GetAuthorizationToken",
		"ecr:BatchCheckLayerAvailability",
		"ecr:GetDownloadUrlForLayer",
		"ecr:GetRepositoryPolicy",
		"ecr:DescribeRepositories",
		"ecr:ListImages",
		"ecr:DescribeImages",
		"ecr:BatchGetImage",
		"ecr:GetLifecyclePolicy",
		"ecr:GetLifecyclePolicyPreview",
		"ecr:ListTagsForResource",
		"ecr:DescribeImageScanFindings",
	}
}

// systemsManagerAgentActions returns the actions of AmazonSSMManagedInstanceCore.
func systemsManagerAgentActions() []string {
	return []string{
		"ssm:DescribeAssociation",
		"ssm:GetDeployablePatchSnapshotForInstance",
		"ssm:GetDocument",
		"ssm:DescribeDocument",
		"ssm:GetManifest",
		"ssm:GetParameter",
		"ssm:GetParameters",
		"ssm:ListAssociations",
		"ssm:ListInstanceAssociations",
		"ssm:PutInventory",
		"ssm:PutComplianceItems",
		"ssm:PutConfigurePackageResult",
		"ssm:UpdateAssociationStatus",
		"ssm:UpdateInstanceAssociationStatus",
		"ssm:UpdateInstanceInformation",
		"ssmmessages:CreateControlChannel",
		"ssmmessages:CreateDataChannel",
		"ssmmessages:OpenControlChannel",
		"ssmmessages:OpenDataChannel",
		"ec2messages:AcknowledgeMessage",
		"ec2messages:DeleteMessage",
		"ec2messages:FailMessage",
		"ec2messages:GetEndpoint",
		"ec2messages:GetMessages",
		"ec2messages:SendReply",
	}
}
