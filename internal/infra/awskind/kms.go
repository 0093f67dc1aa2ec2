// SPDX-License-Identifier: Apache-2.0

package awskind

import "github.com/slipway-k8s/slipway/internal/infra/graph"

// KMSKey is a KMS key. Deleting it schedules the deletion; until then it can be cancelled.
type KMSKey struct {
	Description string `aws:"Description"`
	// once a year, by AWS
	Rotation bool `aws:"EnableKeyRotation,always"`
	// AWS enables a new key
	Enabled bool `aws:"Enabled,always" tf:"-" cfn:"-"`
	// who can use the key
	Policy        graph.JSON `aws:"KeyPolicy" tf:"policy"`
	PendingWindow int        `aws:"PendingWindowInDays,write" tf:"deletion_window_in_days"` // days, 7 to 30
	Tags          Tags       `aws:"Tags,tags"`
	// KMS then does not ask for the creator's permission to change the policy later, which an operator does not have
	BypassLockoutCheck bool `aws:"BypassPolicyLockoutSafetyCheck,write"`
}

// KeyDescription returns the description of the key of a cluster's volumes, by which a key is found that could not be
// tagged.
func KeyDescription(cluster string) string { return "Volumes of the Kubernetes cluster " + cluster }

// Kind implements [graph.Resource].
func (KMSKey) Kind() graph.Kind {
	return graph.Kind{
		Name:           "kms-key",
		Terraform:      "aws_kms_key",
		CloudFormation: "AWS::KMS::Key",
		Attributes:     map[string]string{"Arn": "arn"},
		Lifecycle: graph.Lifecycle{
			Replacement:   graph.ForbidReplacement,
			ForbiddenHint: renameHint,
			HoldsData:     true,
			DeleteNote:    "scheduled: everything that it encrypted is lost once it is deleted",
		},
	}
}

// KMSAlias is a name of a KMS key.
type KMSAlias struct {
	Name   string            `aws:"AliasName,immutable" tf:"name"` // begins with alias/
	Target graph.Ref[KMSKey] `aws:"TargetKeyId"`                   // the key that it names
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
