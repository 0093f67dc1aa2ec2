// SPDX-License-Identifier: Apache-2.0

package model

import (
	"github.com/slipway-k8s/slipway/internal/infra/awskind"
	"github.com/slipway-k8s/slipway/internal/infra/graph"
)

// keyWindow is how many days KMS waits before a key ends: the shortest it allows, since its volumes go at once.
const keyWindow = 7

// kms adds the key that the cluster's volumes are encrypted under. Who may use EBS in this account may use it, through
// EBS only: the statement of AWS's own aws/ebs key, which auto scaling's service-linked role is covered by too.
func (b *builder) kms() {
	if arn := b.Cluster.Spec.CloudProvider.AWS.KMSKeyARN; arn != "" {
		b.key = graph.Lit(arn)
		return
	}
	policy := document(
		statement{
			ID: "Account", Principal: principal{"AWS": "arn:" + b.Partition + ":iam::" + b.Account + ":root"},
			Actions: []string{"kms:*"}, Resources: []string{"*"},
		},
		statement{
			ID: "EBS", Principal: principal{"AWS": "*"},
			Actions: []string{
				"kms:Encrypt", "kms:Decrypt", "kms:ReEncrypt*", "kms:GenerateDataKey*", "kms:CreateGrant", "kms:DescribeKey",
			},
			Resources: []string{"*"},
			Condition: condition{"StringEquals": {
				"kms:CallerAccount": b.Account, "kms:ViaService": "ec2." + b.Region + "." + b.dnsSuffix(),
			}},
		},
	)
	key := graph.Add(b.g, "main", awskind.Key{
		Description: "Volumes of the Kubernetes cluster " + b.name(), Rotation: true, Enabled: true, Policy: policy, PendingWindow: keyWindow,
		Tags: b.tags(awskind.Key{}.Kind(), "main", nil),
	})
	graph.Add(b.g, "main", awskind.Alias{Name: AliasName(b.name()), Target: key})
	b.key = key.Attr("Arn")
}

// dnsSuffix is what the names of the partition's services end in.
func (b *builder) dnsSuffix() string {
	if b.Partition == "aws-cn" {
		return "amazonaws.com.cn"
	}
	return "amazonaws.com"
}
