// SPDX-License-Identifier: Apache-2.0

package model

import (
	"github.com/slipway-k8s/slipway/internal/infra/awskind"
	"github.com/slipway-k8s/slipway/internal/infra/graph"
	"github.com/slipway-k8s/slipway/internal/lib/partition"
)

// keyDeletionDays is the number of days that KMS waits before it deletes a key: the minimum, since the
// volumes are deleted at once.
const keyDeletionDays = 7

// addKMSKey adds the key that encrypts the cluster's volumes. Every principal of the account that may use EBS
// can use it through EBS: the statement is that of AWS's aws/ebs key and also covers the service-linked role
// of Auto Scaling.
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
				"kms:Encrypt", "kms:Decrypt", "kms:ReEncrypt*", "kms:GenerateDataKey*", "kms:CreateGrant",
				"kms:DescribeKey",
			},
			Resources: []string{"*"},
			Condition: policyCondition{"StringEquals": {
				"kms:CallerAccount": b.Account, "kms:ViaService": "ec2." + b.Region + "." + b.dnsSuffix(),
			}},
		},
	)

	key := graph.Add(b.graph, "main", awskind.KMSKey{
		Description:   awskind.KeyDescription(b.clusterName()),
		Rotation:      true,
		Enabled:       true,
		Policy:        policy,
		PendingWindow: keyDeletionDays,
		Tags:          b.resourceTags(awskind.KMSKey{}.Kind(), "main", nil),

		BypassLockoutCheck: true, // the policy leaves all to IAM, so that administrators can change it
	})

	graph.Add(b.graph, "main", awskind.KMSAlias{Name: KeyAliasName(b.clusterName()), Target: key})
	b.volumeKeyARN = key.Attr("Arn")
}

// dnsSuffix returns the domain of the partition's services.
func (b *builder) dnsSuffix() string { return partition.Named(b.Partition).DNSSuffix }
