// SPDX-License-Identifier: Apache-2.0

package store

import (
	"bytes"
	"context"
	"crypto/aes"
	"crypto/cipher"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"

	"filippo.io/age"
	"github.com/aws/aws-sdk-go-v2/service/kms"
	"github.com/aws/aws-sdk-go-v2/service/kms/types"
)

// ErrDecryption says that a secret could not be opened: wrong key, wrong context, or changed bytes. It never says which
// bytes.
var ErrDecryption = errors.New("cannot be opened: wrong key, other purpose, or damaged")

// KMSAPI is what the KMS sealer calls.
type KMSAPI interface {
	GenerateDataKey(
		context.Context,
		*kms.GenerateDataKeyInput,
		...func(*kms.Options),
	) (*kms.GenerateDataKeyOutput, error)
	Decrypt(context.Context, *kms.DecryptInput, ...func(*kms.Options)) (*kms.DecryptOutput, error)
}

// NewKMSSealer seals with AES-256-GCM under a fresh data key for each secret, which KMS wraps under keyARN with the
// context as its encryption context. So CloudTrail shows who opened which secret, and a key policy can restrict it.
func NewKMSSealer(api KMSAPI, keyARN string) Sealer { return kmsSealer{api: api, keyARN: keyARN} }

type kmsSealer struct {
	api    KMSAPI
	keyARN string
}

// envelope is a sealed secret as stored.
type envelope struct {
	Version    int    `json:"version"`
	KMSKeyARN  string `json:"kmsKeyArn"`
	DataKey    []byte `json:"dataKey"` // wrapped by KMS
	Nonce      []byte `json:"nonce"`
	Ciphertext []byte `json:"ciphertext"`
}

const envelopeVersion = 1

func (k kmsSealer) Seal(ctx context.Context, plaintext []byte, bound map[string]string) ([]byte, error) {
	key, err := k.api.GenerateDataKey(ctx, &kms.GenerateDataKeyInput{
		KeyId: &k.keyARN, KeySpec: types.DataKeySpecAes256, EncryptionContext: bound,
	})
	if err != nil {
		return nil, fmt.Errorf("seal under %s: %w", k.keyARN, err)
	}

	defer clear(key.Plaintext)
	aead, err := newGCM(key.Plaintext)
	if err != nil {
		return nil, fmt.Errorf("seal under %s: %w", k.keyARN, err)
	}

	e := envelope{
		Version:   envelopeVersion,
		KMSKeyARN: k.keyARN,
		DataKey:   key.CiphertextBlob,
		Nonce:     make([]byte, aead.NonceSize()),
	}
	if _, err := rand.Read(e.Nonce); err != nil {
		return nil, fmt.Errorf("seal under %s: %w", k.keyARN, err)
	}

	e.Ciphertext = aead.Seal(nil, e.Nonce, plaintext, canonicalJSON(bound))

	return json.Marshal(e)
}

func (k kmsSealer) Open(ctx context.Context, sealed []byte, bound map[string]string) ([]byte, error) {
	var e envelope
	if err := json.Unmarshal(sealed, &e); err != nil || e.Version != envelopeVersion {
		return nil, fmt.Errorf("not a secret sealed by KMS: %w", ErrDecryption)
	}

	keyARN := k.keyARN
	if keyARN == "" {
		keyARN = e.KMSKeyARN
	}

	// Naming the key keeps a planted object from being opened under another account's key.
	key, err := k.api.Decrypt(
		ctx,
		&kms.DecryptInput{CiphertextBlob: e.DataKey, KeyId: &keyARN, EncryptionContext: bound},
	)

	switch errorCode(err) {
	case "InvalidCiphertextException", "IncorrectKeyException":
		return nil, fmt.Errorf("open a secret under %s: %w", keyARN, ErrDecryption)
	}

	if err != nil {
		return nil, fmt.Errorf("open a secret under %s: %w", keyARN, err)
	}

	defer clear(key.Plaintext)
	aead, err := newGCM(key.Plaintext)
	if err != nil || len(e.Nonce) != aead.NonceSize() {
		return nil, fmt.Errorf("open a secret under %s: %w", keyARN, ErrDecryption)
	}

	plaintext, err := aead.Open(nil, e.Nonce, e.Ciphertext, canonicalJSON(bound))
	if err != nil {
		return nil, fmt.Errorf("open a secret under %s: %w", keyARN, ErrDecryption)
	}

	return plaintext, nil
}

func newGCM(key []byte) (cipher.AEAD, error) {
	block, err := aes.NewCipher(key)
	if err != nil {
		return nil, err
	}

	return cipher.NewGCM(block)
}

// canonicalJSON renders a context as the same bytes whatever the map's order.
func canonicalJSON(bound map[string]string) []byte {
	b, err := json.Marshal(bound) // sorts keys
	if err != nil {
		panic("a map of strings is always JSON: " + err.Error())
	}

	return b
}

// NewAgeSealer seals with age for the recipient of identity. age has no associated data, so the context goes into
// the sealed bytes, which age authenticates, and is compared when opened.
func NewAgeSealer(identity *age.X25519Identity) Sealer { return ageSealer{identity} }

type ageSealer struct{ identity *age.X25519Identity }

// agePayload is what age encrypts.
type agePayload struct {
	Context map[string]string `json:"context"`
	Secret  []byte            `json:"secret"`
}

func (a ageSealer) Seal(_ context.Context, plaintext []byte, bound map[string]string) ([]byte, error) {
	inner, err := json.Marshal( //nolint:gosec // the result is encrypted before it is stored
		agePayload{Context: bound, Secret: plaintext},
	)
	if err != nil {
		return nil, fmt.Errorf("seal: %w", err)
	}

	defer clear(inner)

	return ageEncrypt(inner, a.identity.Recipient())
}

func (a ageSealer) Open(_ context.Context, sealed []byte, bound map[string]string) ([]byte, error) {
	inner, err := ageDecrypt(sealed, a.identity)
	if err != nil {
		return nil, fmt.Errorf("open a secret: %w", ErrDecryption)
	}

	defer clear(inner)
	var b agePayload
	if err := json.Unmarshal(inner, &b); err != nil || !maps.Equal(b.Context, bound) {
		return nil, fmt.Errorf("open a secret: %w", ErrDecryption)
	}

	return b.Secret, nil
}

func ageEncrypt(plaintext []byte, to age.Recipient) ([]byte, error) {
	var out bytes.Buffer
	w, err := age.Encrypt(&out, to)
	if err != nil {
		return nil, fmt.Errorf("seal with age: %w", err)
	}

	if _, err := w.Write(plaintext); err != nil {
		return nil, fmt.Errorf("seal with age: %w", err)
	}

	if err := w.Close(); err != nil {
		return nil, fmt.Errorf("seal with age: %w", err)
	}

	return out.Bytes(), nil
}

func ageDecrypt(sealed []byte, with age.Identity) ([]byte, error) {
	r, err := age.Decrypt(bytes.NewReader(sealed), with)
	if err != nil {
		return nil, err
	}

	return io.ReadAll(r)
}
