// SPDX-License-Identifier: Apache-2.0

package kms

import (
	"crypto/sha256"
	"encoding/hex"

	"github.com/aws/aws-sdk-go/service/kms"
)

// materialID returns the id of a key's material: 64 hexadecimal digits that are the same for the life of the key, since
// the region does not rotate keys.
func (k *key) materialID() *string {
	sum := sha256.Sum256(append([]byte(k.ID), k.Material...))
	return new(hex.EncodeToString(sum[:]))
}

// The outputs of KMS with the ids of key material, which the shapes of aws-sdk-go v1 do not have.
type (
	keyMetadata struct {
		kms.KeyMetadata

		CurrentKeyMaterialId *string `type:"string"`
	}

	createKeyOutput struct {
		KeyMetadata *keyMetadata `type:"structure"`
	}

	describeKeyOutput struct {
		KeyMetadata *keyMetadata `type:"structure"`
	}

	decryptOutput struct {
		kms.DecryptOutput

		KeyMaterialId *string `type:"string"`
	}

	generateDataKeyOutput struct {
		kms.GenerateDataKeyOutput

		KeyMaterialId *string `type:"string"`
	}

	generateDataKeyWithoutPlaintextOutput struct {
		kms.GenerateDataKeyWithoutPlaintextOutput

		KeyMaterialId *string `type:"string"`
	}

	reEncryptOutput struct {
		kms.ReEncryptOutput

		DestinationKeyMaterialId *string `type:"string"`
		SourceKeyMaterialId      *string `type:"string"`
	}
)
