// SPDX-License-Identifier: Apache-2.0

package cloudformation

import "encoding/base64"

// keyPairType is the public half of an SSH key, by its name. The region makes no private keys, so a template must bring it.
func keyPairType() resourceType {
	return resourceType{
		name: "KeyName", max: 255,
		make: func(j *job) error {
			err := j.do("ec2", "ImportKeyPair", tree{
				"KeyName": j.text("KeyName"), "PublicKeyMaterial": base64.StdEncoding.EncodeToString([]byte(j.text("PublicKeyMaterial"))),
				"TagSpecifications": j.specs("key-pair"),
			})
			if err != nil && (!j.again || code(err) != "InvalidKeyPair.Duplicate") {
				return err
			}
			return j.made(j.text("KeyName"))
		},
		settle: func(j *job) error {
			out, err := j.call("ec2", "DescribeKeyPairs", tree{"KeyNames": []any{j.id}})
			for _, name := range []string{"KeyPairId", "KeyFingerprint"} {
				j.attributes[name] = at(out, "KeyPairs", 0, name)
			}
			return err
		},
		remove: removeEC2("DeleteKeyPair", "KeyName"),
	}
}
