// SPDX-License-Identifier: Apache-2.0

package cloudformation

import (
	"encoding/base64"

	"github.com/slipway-k8s/slipway/internal/region/cloudformation/template"
)

// keyPairType is the public half of an SSH key, by its name. The region makes no private keys, so a template must bring it.
func keyPairType() resourceType {
	return resourceType{
		nameProperty:  "KeyName",
		maxNameLength: 255,
		create: func(j *handlerRequest) error {
			err := j.runOperation("ec2", "ImportKeyPair", template.Object{
				"KeyName": j.stringProperty(
					"KeyName",
				), "PublicKeyMaterial": base64.StdEncoding.EncodeToString([]byte(j.stringProperty("PublicKeyMaterial"))),
				"TagSpecifications": j.tagSpecifications("key-pair"),
			})
			if err != nil && (!j.resumed || errorCode(err) != "InvalidKeyPair.Duplicate") {
				return err
			}

			return j.setPhysicalID(j.stringProperty("KeyName"))
		},
		stabilize: func(j *handlerRequest) error {
			out, err := j.callOperation("ec2", "DescribeKeyPairs", template.Object{"KeyNames": []any{j.physicalID}})
			for _, name := range []string{"KeyPairId", "KeyFingerprint"} {
				j.attributes[name] = template.ValueAt(out, "KeyPairs", 0, name)
			}

			return err
		},
		delete: deleteEC2("DeleteKeyPair", "KeyName"),
	}
}
