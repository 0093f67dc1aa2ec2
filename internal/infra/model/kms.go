// SPDX-License-Identifier: Apache-2.0

package model

import (
	"github.com/slipway-k8s/slipway/internal/infra/awskind"
	"github.com/slipway-k8s/slipway/internal/infra/graph"
)

// keyDeletionDays is how many days KMS waits before a key ends: the shortest it allows, since its volumes go at once.
const keyDeletionDays = 7

// addKMSKey adds the key that the cluster's volumes are encrypted under. Who may use EBS in this account may use it, through
// EBS only: the statement of AWS's own aws/ebs key, which auto scaling's service-linked role is covered by too.
func (b *builder) addKMSKey() {
	if arn := b.Cluster.Spec.CloudProvider.AWS.KMSKeyARN; arn != "" {
		b.volumeKeyARN = graph.LiteralText(arn)
		return
	}

	policy := policyDocument(
		policyStatement{
			ID:        "Account",
			Principal: policyPrincipal{"AWS": "arn:" + b.Partition + ":iam::" + b.Account + ":root"},
			Actions:   []string{"kms:*"},
			Resources: []string{"*"},
		},
		policyStatement{
			ID:        "EBS",
			Principal: policyPrincipal{"AWS": "*"},
			Actions: []string{
				"kms:Encrypt", "kms:Decrypt", "kms:ReEncrypt*", "kms:GenerateDataKey*", "kms:CreateGrant", "kms:DescribeKey",
			},
			Resources: []string{"*"},
			Condition: policyCondition{"StringEquals": {
				"kms:CallerAccount": b.Account, "kms:ViaService": "ec2." + b.Region + "." + b.dnsSuffix(),
			}},
		},
	)

	key := graph.Add(b.graph, "main", awskind.KMSKey{
		Description:   "Volumes of the Kubernetes cluster " + b.clusterName(),
		Rotation:      true,
		Enabled:       true,
		Policy:        policy,
		PendingWindow: keyDeletionDays,
		Tags:          b.resourceTags(awskind.KMSKey{}.Kind(), "main", nil),
	})

	graph.Add(b.graph, "main", awskind.KMSAlias{Name: KeyAliasName(b.clusterName()), Target: key})
	b.volumeKeyARN = key.Attr("Arn")
}

// dnsSuffix is what the names of the partition's services end in.
func (b *builder) dnsSuffix() string {
	if b.Partition == "aws-cn" {
		return "amazonaws.com.cn"
	}

	return "amazonaws.com"
}
