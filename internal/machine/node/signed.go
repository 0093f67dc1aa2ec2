// SPDX-License-Identifier: Apache-2.0

package node

import (
	"encoding/json"
	"fmt"

	"github.com/slipway-k8s/slipway/internal/lib/pki"
)

// signedForm is how an object of the machine store is stored that is signed with the key of the Kubernetes CA: as a JSON object with the
// signed bytes and their signature.
type signedForm struct {
	// name of the member with the signed bytes, and of what they are in errors.
	name string
	// purpose separates these signatures from others of the same key.
	purpose string
}

// signatureMember is the name of the member with the signature.
const signatureMember = "signature"

// sign encodes and signs an object of a cluster.
func (f signedForm) sign(object any, cluster string, key pki.Key) ([]byte, error) {
	body, err := json.Marshal(object)
	if err != nil {
		return nil, fmt.Errorf("encode the %s of cluster %s: %w", f.name, cluster, err)
	}

	signature, err := key.SignMessage(f.purpose, body)
	if err != nil {
		return nil, err
	}

	out, err := json.Marshal(map[string][]byte{f.name: body, signatureMember: signature})
	if err != nil {
		return nil, fmt.Errorf("encode the %s of cluster %s: %w", f.name, cluster, err)
	}

	return append(out, '\n'), nil
}

// verify decodes the output of sign into object. It fails unless a certificate of the Kubernetes CA (PEM) has the key that signed.
func (f signedForm) verify(body []byte, caPEM, cluster string, object any) error {
	var signed map[string]json.RawMessage
	if err := json.Unmarshal(body, &signed); err != nil {
		return fmt.Errorf("parse the %s of cluster %s: %w", f.name, cluster, err)
	}

	message, err := decodeBytes(signed[f.name])
	if err != nil {
		return fmt.Errorf("parse the %s of cluster %s: %w", f.name, cluster, err)
	}

	signature, err := decodeBytes(signed[signatureMember])
	if err != nil {
		return fmt.Errorf("parse the %s of cluster %s: %w", f.name, cluster, err)
	}

	if err := pki.VerifyMessage([]byte(caPEM), f.purpose, message, signature); err != nil {
		return fmt.Errorf("verify the %s of cluster %s: %w", f.name, cluster, err)
	}

	if err := json.Unmarshal(message, object); err != nil {
		return fmt.Errorf("parse the %s of cluster %s: %w", f.name, cluster, err)
	}

	return nil
}

// decodeBytes decodes bytes in JSON; a member that is not there has none.
func decodeBytes(member json.RawMessage) (out []byte, err error) {
	if member != nil {
		err = json.Unmarshal(member, &out)
	}

	return out, err
}
