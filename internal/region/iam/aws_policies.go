// SPDX-License-Identifier: Apache-2.0

package iam

// awsManagedPolicies are the managed policies of AWS's own that the region has, by ARN: those that clusters are given most.
func awsManagedPolicies() map[string]*managedPolicy {
	out := map[string]*managedPolicy{}
	add := func(name, id, document string) {
		arn := "arn:aws:iam::aws:policy/" + name
		out[arn] = &managedPolicy{
			Name:     name,
			ID:       id,
			Path:     "/",
			ARN:      arn,
			Default:  "v1",
			Versions: []policyVersion{{ID: "v1", Document: document}},
		}
	}

	allow := func(actions string) string {
		return `{"Version":"2012-10-17","Statement":[{"Effect":"Allow","Action":` + actions + `,"Resource":"*"}]}`
	}
	add("AdministratorAccess", "ANPAIWMBCKSKIEE64ZLYK", allow(`"*"`))
	add(
		"AmazonEC2ContainerRegistryReadOnly",
		"ANPAIFYZPA37OOHVIH7KQ",
		allow(`["ecr:GetAuthorizationToken","ecr:BatchCheckLayerAvailability",`+
			`"ecr:GetDownloadUrlForLayer","ecr:GetRepositoryPolicy","ecr:DescribeRepositories","ecr:ListImages","ecr:DescribeImages",`+
			`"ecr:BatchGetImage","ecr:GetLifecyclePolicy","ecr:GetLifecyclePolicyPreview","ecr:ListTagsForResource","ecr:DescribeImageScanFindings"]`),
	)

	add(
		"AmazonSSMManagedInstanceCore",
		"ANPAIXSHM2BNB2D3AXXRU",
		allow(`["ssm:DescribeAssociation","ssm:GetDeployablePatchSnapshotForInstance",`+
			`"ssm:GetDocument","ssm:DescribeDocument","ssm:GetManifest","ssm:GetParameter","ssm:GetParameters","ssm:ListAssociations",`+
			`"ssm:ListInstanceAssociations","ssm:PutInventory","ssm:PutComplianceItems","ssm:PutConfigurePackageResult",`+
			`"ssm:UpdateAssociationStatus","ssm:UpdateInstanceAssociationStatus","ssm:UpdateInstanceInformation",`+
			`"ssmmessages:CreateControlChannel","ssmmessages:CreateDataChannel","ssmmessages:OpenControlChannel","ssmmessages:OpenDataChannel",`+
			`"ec2messages:AcknowledgeMessage","ec2messages:DeleteMessage","ec2messages:FailMessage","ec2messages:GetEndpoint",`+
			`"ec2messages:GetMessages","ec2messages:SendReply"]`),
	)

	return out
}
