// SPDX-License-Identifier: Apache-2.0

package awskind

import "github.com/slipway-k8s/slipway/internal/infra/graph"

// KeyPair is the public half of an SSH key. Neither AWS nor Slipway ever has the private half.
type KeyPair struct {
	Name      string `aws:"KeyName,immutable"`
	PublicKey string `aws:"PublicKeyMaterial,immutable" tf:"public_key"` // type and key, without a comment
	// immutable in CloudFormation; EC2 could change them
	Tags Tags `aws:"Tags,tags,immutable"`
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
