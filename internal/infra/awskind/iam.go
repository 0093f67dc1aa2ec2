// SPDX-License-Identifier: Apache-2.0

package awskind

import "github.com/slipway-k8s/slipway/internal/infra/graph"

// IAMRole is an IAM role. Its path contains region and cluster, so that one call finds a cluster's roles.
type IAMRole struct {
	Name        string `aws:"RoleName,immutable" tf:"name"`
	Path        string `aws:"Path,immutable"` // /slipway/REGION/CLUSTER/
	Description string `aws:"Description"`
	// who can assume the role: EC2
	TrustPolicy graph.JSON `aws:"AssumeRolePolicyDocument" tf:"assume_role_policy"`
	// PermissionsBoundary is the ARN of the policy that limits what the role may be allowed. Empty: any, or none.
	PermissionsBoundary string `aws:"PermissionsBoundary" tf:"permissions_boundary"`
	// ManagedPolicies lists the ARNs of the attached managed policies. Any other attached policy is detached.
	ManagedPolicies []string `aws:"ManagedPolicyArns,always,set"`
	Tags            Tags     `aws:"Tags,tags"`
}

// Kind implements [graph.Resource].
func (IAMRole) Kind() graph.Kind {
	return graph.Kind{
		Name:           "iam-role",
		Terraform:      "aws_iam_role",
		CloudFormation: "AWS::IAM::Role",
		Attributes:     map[string]string{"Arn": "arn"},
		Outputs:        []string{"Arn"},
		Lifecycle:      graph.Lifecycle{Replacement: graph.ForbidReplacement, ForbiddenHint: renameHint},
	}
}

// IAMRolePolicy is an inline policy of a role.
type IAMRolePolicy struct {
	Role     graph.Ref[IAMRole] `aws:"RoleName,immutable" tf:"role"`
	Name     string             `aws:"PolicyName,immutable" tf:"name"`
	Document graph.JSON         `aws:"PolicyDocument" tf:"policy"` // the permissions
}

// Kind implements [graph.Resource].
func (IAMRolePolicy) Kind() graph.Kind {
	return graph.Kind{
		Name:           "iam-role-policy",
		Terraform:      "aws_iam_role_policy",
		CloudFormation: "AWS::IAM::RolePolicy",
		KeyProperties:  []string{"RoleName", "PolicyName"},
	}
}

// InstanceProfile gives instances a role. It is found by its path: CloudFormation cannot set its tags.
type InstanceProfile struct {
	Name  string               `aws:"InstanceProfileName,immutable" tf:"name"`
	Path  string               `aws:"Path,immutable"`      // /slipway/REGION/CLUSTER/
	Roles []graph.Ref[IAMRole] `aws:"Roles" tf:"role,one"` // exactly one
}

// Kind implements [graph.Resource].
func (InstanceProfile) Kind() graph.Kind {
	return graph.Kind{
		Name:           "iam-instance-profile",
		Terraform:      "aws_iam_instance_profile",
		CloudFormation: "AWS::IAM::InstanceProfile",
		KeyProperties:  []string{"InstanceProfileName"},
		Attributes:     map[string]string{"Arn": "arn"},
		Lifecycle:      graph.Lifecycle{Replacement: graph.ForbidReplacement, ForbiddenHint: renameHint},
	}
}
