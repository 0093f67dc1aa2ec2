// SPDX-License-Identifier: Apache-2.0

package resourcetype

import (
	"context"
	"encoding/base64"
	"errors"
	"fmt"

	"github.com/slipway-k8s/slipway/internal/region/cloudformation/template"
)

// checkKeyPair refuses a key pair whose private key CloudFormation would create, and store in a parameter of Systems Manager.
func checkKeyPair(req *Request) error {
	if !req.hasProperty("PublicKeyMaterial") {
		return errors.New("this region creates no private keys: a key pair without PublicKeyMaterial is not implemented")
	}

	for _, name := range []string{"KeyFormat", "KeyType"} {
		if req.hasProperty(name) {
			return fmt.Errorf("%s is not implemented: it is the property of private keys, and this region creates none", name)
		}
	}

	return nil
}

// keyPairType is AWS::EC2::KeyPair. The region creates no private keys, so the template must contain the
// public key.
func keyPairType() Type {
	return Type{
		NameProperty:  "KeyName",
		MaxNameLength: 255,
		Create: func(ctx context.Context, req *Request) error {
			if err := checkKeyPair(req); err != nil {
				return err
			}

			err := req.runOperation(ctx, "ec2", "ImportKeyPair", template.Object{
				"KeyName": req.stringProperty(
					"KeyName",
				), "PublicKeyMaterial": base64.StdEncoding.EncodeToString(
					[]byte(req.stringProperty("PublicKeyMaterial")),
				),
				"TagSpecifications": req.tagSpecifications("key-pair"),
			})
			if err != nil && (!req.Resumed || ErrorCode(err) != "InvalidKeyPair.Duplicate") {
				return err
			}

			return req.setPhysicalID(ctx, req.stringProperty("KeyName"))
		},
		Stabilize: func(ctx context.Context, req *Request) error {
			out, err := req.callOperation(ctx, "ec2", "DescribeKeyPairs", template.Object{
				"KeyNames": []any{req.PhysicalID},
			})
			for _, name := range []string{"KeyPairId", "KeyFingerprint"} {
				req.Attributes[name] = template.ValueAt(out, "KeyPairs", 0, name)
			}

			return err
		},
		Delete: deleteEC2("DeleteKeyPair", "KeyName"),
	}
}
