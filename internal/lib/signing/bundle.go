// SPDX-License-Identifier: Apache-2.0

package signing

import (
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
)

// The types of a bundle with the signature of an artifact:
// https://docs.sigstore.dev/about/bundle/ and https://github.com/in-toto/attestation.
const (
	statementType     = "application/vnd.in-toto+json"
	signaturePurpose  = "https://sigstore.dev/cosign/sign/v1"
	maxBundleEnvelope = 20 // signatures of one bundle
)

// artifactBundle is what cosign 3 stores: a statement about an artifact, and its signatures.
type artifactBundle struct {
	Envelope struct {
		Payload     string `json:"payload"`
		PayloadType string `json:"payloadType"`
		Signatures  []struct {
			Signature string `json:"sig"`
		} `json:"signatures"`
	} `json:"dsseEnvelope"`
}

// bundleStatement is what is signed.
type bundleStatement struct {
	PredicateType string `json:"predicateType"`
	Subject       []struct {
		Digest map[string]string `json:"digest"`
	} `json:"subject"`
}

// VerifyBundle checks that one of the keys has signed the statement in a bundle, and that it is a
// signature of the artifact with this digest: not a statement of another purpose, such as the
// result of a scan.
func VerifyBundle(keys []ArtifactKey, digest string, text []byte) error {
	var bundle artifactBundle
	if err := json.Unmarshal(text, &bundle); err != nil {
		return errors.New("the bundle is not JSON")
	}

	payload, err := base64.StdEncoding.DecodeString(bundle.Envelope.Payload)
	if err != nil || bundle.Envelope.PayloadType != statementType {
		return errors.New("the bundle has no statement about an artifact")
	}

	// https://github.com/secure-systems-lab/dsse/blob/master/protocol.md
	signed := fmt.Appendf(nil, "DSSEv1 %d %s %d ", len(statementType), statementType, len(payload))
	signed = append(signed, payload...)
	isSigned := false

	for n, s := range bundle.Envelope.Signatures {
		raw, err := base64.StdEncoding.DecodeString(s.Signature)
		if err != nil || n == maxBundleEnvelope {
			return errors.New("the bundle has signatures that are not valid")
		}

		verifies := func(k ArtifactKey) bool { return k.verifies(signed, raw) }
		isSigned = isSigned || slices.ContainsFunc(keys, verifies)
	}

	if !isSigned {
		return ErrSignature
	}

	return checkStatement(digest, payload)
}

// checkStatement checks what a statement is about.
func checkStatement(digest string, text []byte) error {
	var statement bundleStatement
	if err := json.Unmarshal(text, &statement); err != nil {
		return errors.New("what is signed is no statement about an artifact")
	}

	if statement.PredicateType != signaturePurpose {
		return fmt.Errorf("what is signed has type %q, not %q", statement.PredicateType, signaturePurpose)
	}

	for _, subject := range statement.Subject {
		if sum := subject.Digest["sha256"]; sum != "" && sum == strings.TrimPrefix(digest, "sha256:") {
			return nil
		}
	}

	return fmt.Errorf("what is signed is not about %s", digest)
}
