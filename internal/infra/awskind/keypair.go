// SPDX-License-Identifier: Apache-2.0

package awskind

import "github.com/slipway-k8s/slipway/internal/infra/graph"

// KeyPair is the public half of an SSH key. The private half never comes near AWS or us.
type KeyPair struct {
	Name      string `aws:"KeyName,immutable"`
	PublicKey string `aws:"PublicKeyMaterial,immutable" tf:"public_key"` // type and key, without a comment
	Tags      Tags   `aws:"Tags,tags,immutable"`                         // as CloudFormation has it; EC2 could change them
}

// Kind implements [graph.Resource].
func (KeyPair) Kind() graph.Kind {
	return graph.Kind{
		Name:            "key-pair",
		Terraform:       "aws_key_pair",
		CloudFormation:  "AWS::EC2::KeyPair",
		IDParameterType: "AWS::EC2::KeyPair::KeyName",
	}
}
