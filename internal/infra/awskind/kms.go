// SPDX-License-Identifier: Apache-2.0

package awskind

import "github.com/slipway-k8s/slipway/internal/infra/graph"

// KMSKey is a KMS key. Deleting it schedules its end; until then its data can still be rescued.
type KMSKey struct {
	Description   string     `aws:"Description"`
	Rotation      bool       `aws:"EnableKeyRotation,always"`
	Enabled       bool       `aws:"Enabled,always" tf:"-" cfn:"-"`
	Policy        graph.JSON `aws:"KeyPolicy" tf:"policy"`
	PendingWindow int        `aws:"PendingWindowInDays,write" tf:"deletion_window_in_days"`
	Tags          Tags       `aws:"Tags,tags"`
}

// Kind implements [graph.Resource].
func (KMSKey) Kind() graph.Kind {
	return graph.Kind{
		Name:           "kms-key",
		Terraform:      "aws_kms_key",
		CloudFormation: "AWS::KMS::Key",
		Attributes:     map[string]string{"Arn": "arn"},
	}
}

// KMSAlias names a key.
type KMSAlias struct {
	Name   string            `aws:"AliasName,immutable" tf:"name"`
	Target graph.Ref[KMSKey] `aws:"TargetKeyId"`
}

// Kind implements [graph.Resource].
func (KMSAlias) Kind() graph.Kind {
	return graph.Kind{
		Name:           "kms-alias",
		Terraform:      "aws_kms_alias",
		CloudFormation: "AWS::KMS::Alias",
		KeyProperties:  []string{"AliasName"},
	}
}
