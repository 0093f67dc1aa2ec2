// SPDX-License-Identifier: Apache-2.0

package pki

import (
	"crypto/ecdsa"
	"crypto/rand"
	"crypto/sha256"
	"errors"
	"fmt"
)

// ErrSignature is wrapped by errors of VerifyMessage for a signature that no certificate of the CA explains.
var ErrSignature = errors.New("not signed by this CA")

// SignMessage signs a message of the given purpose. A signature is valid for this purpose only. The purpose begins
// the signed bytes, so that they can never be those of a certificate, which begin with 0x30.
func (k Key) SignMessage(purpose string, message []byte) ([]byte, error) {
	if k.private == nil {
		return nil, fmt.Errorf("sign with key %s: it is not loaded", k.name)
	}

	digest := messageDigest(purpose, message)
	signature, err := ecdsa.SignASN1(rand.Reader, k.private, digest[:])
	if err != nil {
		return nil, fmt.Errorf("sign with key %s: %w", k.name, err)
	}

	return signature, nil
}

// VerifyMessage checks a signature of SignMessage against the certificates of a CA (PEM, several during a rotation).
// The error wraps ErrSignature if none of them has the key that signed.
func VerifyMessage(certsPEM []byte, purpose string, message, signature []byte) error {
	certs, err := ParseCerts(certsPEM)
	if err != nil {
		return err
	}

	digest := messageDigest(purpose, message)
	for _, c := range certs {
		public, ok := c.PublicKey.(*ecdsa.PublicKey)
		if ok && c.IsCA && ecdsa.VerifyASN1(public, digest[:], signature) {
			return nil
		}
	}

	return ErrSignature
}

func messageDigest(purpose string, message []byte) [sha256.Size]byte {
	return sha256.Sum256(append([]byte("slipway: "+purpose+"\n"), message...))
}
