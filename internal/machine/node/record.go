// SPDX-License-Identifier: Apache-2.0

package node

import (
	"encoding/json"
	"errors"
	"fmt"

	"github.com/slipway-k8s/slipway/internal/lib/pki"
)

// ErrUnsigned is wrapped by errors of ReadRecord for a record without a signature, as agents of earlier versions write them, and as
// everybody does who may write to the machine store.
var ErrUnsigned = errors.New("not signed with the key of the Kubernetes CA")

// recordPurpose begins the purpose of a record's signature. The key of the record follows, so that a record is valid in its own place
// only.
const recordPurpose = "etcd record v1 "

// Members of the JSON object of a record that are not the record's own.
const (
	recordSignedMember    = "signed"
	recordSignatureMember = "recordSignature"
)

// SignRecord encodes a record about etcd, which must be a JSON object, for a key of the machine store. It signs it with the key of the
// Kubernetes CA, which operators and control-plane machines have. The members of the record are in the output once more, for people
// and for agents of earlier versions. ReadRecord ignores these.
func SignRecord(key string, record any, signer pki.Key) ([]byte, error) {
	body, err := json.Marshal(record)
	if err != nil {
		return nil, fmt.Errorf("encode %s: %w", key, err)
	}

	members := map[string]json.RawMessage{}
	if err := json.Unmarshal(body, &members); err != nil {
		return nil, fmt.Errorf("encode %s: %w", key, err)
	}

	signature, err := signer.SignMessage(recordPurpose+key, body)
	if err != nil {
		return nil, err
	}

	for name, value := range map[string][]byte{recordSignedMember: body, recordSignatureMember: signature} {
		if members[name], err = json.Marshal(value); err != nil {
			return nil, fmt.Errorf("encode %s: %w", key, err)
		}
	}

	out, err := json.MarshalIndent(members, "", "  ")
	if err != nil {
		return nil, fmt.Errorf("encode %s: %w", key, err)
	}

	return append(out, '\n'), nil
}

// ReadRecord decodes the output of SignRecord into record. It fails unless a certificate of the Kubernetes CA (PEM) has the key that
// signed, and unless the record was signed for this key of the machine store. The error wraps ErrUnsigned if there is no signature,
// and pki.ErrSignature if it is not valid.
func ReadRecord(body []byte, key, caPEM string, record any) error {
	var members struct {
		Signed    []byte `json:"signed"`
		Signature []byte `json:"recordSignature"`
	}
	if err := json.Unmarshal(body, &members); err != nil {
		return fmt.Errorf("read %s: %w", key, err)
	}

	if len(members.Signature) == 0 {
		return fmt.Errorf("read %s: %w", key, ErrUnsigned)
	}

	if err := pki.VerifyMessage([]byte(caPEM), recordPurpose+key, members.Signed, members.Signature); err != nil {
		return fmt.Errorf("verify %s: %w", key, err)
	}

	if err := json.Unmarshal(members.Signed, record); err != nil {
		return fmt.Errorf("read %s: %w", key, err)
	}

	return nil
}

// IsUntrusted reports whether an error of ReadRecord says that nobody with the key has signed the record for its place.
func IsUntrusted(err error) bool {
	return errors.Is(err, ErrUnsigned) || errors.Is(err, pki.ErrSignature)
}
