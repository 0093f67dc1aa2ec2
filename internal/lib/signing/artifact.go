// SPDX-License-Identifier: Apache-2.0

// Package signing verifies signatures of what operators follow: those of artifacts in container
// registries, as cosign makes them, and those of commits, as git makes them with SSH keys. It makes
// none, reads no files and makes no requests.
package signing

import (
	"crypto"
	"crypto/ecdsa"
	"crypto/ed25519"
	"crypto/rsa"
	"crypto/sha256"
	"crypto/x509"
	"encoding/base64"
	"encoding/json"
	"encoding/pem"
	"errors"
	"fmt"
	"strings"
)

// minRSABits is the size of the smallest RSA key that is accepted.
const minRSABits = 2048

// ErrSignature is the cause of errors about signatures that no key has made.
var ErrSignature = errors.New("no given key has made the signature")

// ArtifactKey verifies signatures of artifacts.
type ArtifactKey struct{ key crypto.PublicKey }

// ParseArtifactKey returns the public key of a text in PEM, as cosign writes it into cosign.pub: an
// ECDSA, Ed25519 or RSA key.
func ParseArtifactKey(text string) (ArtifactKey, error) {
	block, rest := pem.Decode([]byte(text))

	switch {
	case block == nil:
		return ArtifactKey{}, errors.New("is not in PEM")
	case block.Type != "PUBLIC KEY":
		return ArtifactKey{}, fmt.Errorf("has a %s, not a PUBLIC KEY", block.Type)
	case strings.TrimSpace(string(rest)) != "":
		return ArtifactKey{}, errors.New("has something after its key")
	}

	key, err := x509.ParsePKIXPublicKey(block.Bytes)
	if err != nil {
		return ArtifactKey{}, errors.New("has no valid public key")
	}

	switch key := key.(type) {
	case *ecdsa.PublicKey, ed25519.PublicKey:
		return ArtifactKey{key: key}, nil
	case *rsa.PublicKey:
		if key.N.BitLen() < minRSABits {
			return ArtifactKey{}, fmt.Errorf("has an RSA key of %d bits, fewer than %d", key.N.BitLen(), minRSABits)
		}

		return ArtifactKey{key: key}, nil
	}

	return ArtifactKey{}, fmt.Errorf("has a key of type %T, not ECDSA, Ed25519 or RSA", key)
}

// verifies reports whether the key has signed a text.
func (a ArtifactKey) verifies(text, signature []byte) bool {
	sum := sha256.Sum256(text)

	switch key := a.key.(type) {
	case *ecdsa.PublicKey:
		return ecdsa.VerifyASN1(key, sum[:], signature)
	case ed25519.PublicKey:
		return ed25519.Verify(key, text, signature)
	case *rsa.PublicKey:
		return rsa.VerifyPKCS1v15(key, crypto.SHA256, sum[:], signature) == nil
	}

	return false
}

// artifactPayload is what cosign signs:
// https://github.com/sigstore/cosign/blob/main/specs/SIGNATURE_SPEC.md#payload.
type artifactPayload struct {
	Critical struct {
		Image struct {
			Digest string `json:"docker-manifest-digest"` //nolint:tagliatelle // cosign's name
		} `json:"image"`
		Type string `json:"type"`
	} `json:"critical"`
}

// payloadType is the type of every payload of cosign.
const payloadType = "cosign container image signature"

// VerifyArtifact checks that one of the keys has signed a payload, and that the payload is about an
// artifact with this digest. signature is in base64.
func VerifyArtifact(keys []ArtifactKey, digest string, payload []byte, signature string) error {
	raw, err := base64.StdEncoding.DecodeString(signature)
	if err != nil {
		return errors.New("the signature is not in base64")
	}

	isSigned := false
	for _, key := range keys {
		isSigned = isSigned || key.verifies(payload, raw)
	}

	if !isSigned {
		return ErrSignature
	}

	var signed artifactPayload
	if err := json.Unmarshal(payload, &signed); err != nil {
		return errors.New("what is signed is no payload of cosign")
	}

	if signed.Critical.Type != payloadType {
		return fmt.Errorf("what is signed has type %q, not %q", signed.Critical.Type, payloadType)
	}

	if signed.Critical.Image.Digest != digest {
		return fmt.Errorf("what is signed is %s, not %s", signed.Critical.Image.Digest, digest)
	}

	return nil
}
