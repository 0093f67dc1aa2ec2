// SPDX-License-Identifier: Apache-2.0

package store

import (
	"bytes"
	"cmp"
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
	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/kms"
	"github.com/aws/aws-sdk-go-v2/service/kms/types"
)

// ErrDecryption means that a secret could not be decrypted: the key or the context is wrong, or the
// sealed bytes are damaged.
var ErrDecryption = errors.New("cannot be decrypted: wrong key, wrong context, or damaged")

// KMSAPI are the calls of KMS that the KMS sealer makes.
type KMSAPI interface {
	GenerateDataKey(
		context.Context,
		*kms.GenerateDataKeyInput,
		...func(*kms.Options),
	) (*kms.GenerateDataKeyOutput, error)
	Decrypt(context.Context, *kms.DecryptInput, ...func(*kms.Options)) (*kms.DecryptOutput, error)
	DescribeKey(context.Context, *kms.DescribeKeyInput, ...func(*kms.Options)) (*kms.DescribeKeyOutput, error)
}

// NewKMSSealer returns a Sealer that encrypts each secret with AES-256-GCM and a new data key. KMS
// encrypts the data key with the key keyARN, and with the context as its encryption context. So
// CloudTrail shows who decrypted which secret, and a key policy can restrict it. If keyARN is
// empty, Open uses the key that is named in the sealed secret.
func NewKMSSealer(api KMSAPI, keyARN string) Sealer { return kmsSealer{api: api, keyARN: keyARN} }

// newStoreSealer returns the sealer of a store in S3. It seals and opens with the key behind alias, and does not seal if
// that is not keyARN: whoever can write the settings of a store must not choose the key.
func newStoreSealer(api KMSAPI, keyARN, alias string) Sealer {
	return kmsSealer{api: api, keyARN: keyARN, alias: alias}
}

type kmsSealer struct {
	api    KMSAPI
	keyARN string
	alias  string // of the key that seals; empty: keyARN
}

// envelope is a sealed secret as stored.
type envelope struct {
	Version    int    `json:"version"`
	KMSKeyARN  string `json:"kmsKeyArn"`
	DataKey    []byte `json:"dataKey"` // encrypted by KMS
	Nonce      []byte `json:"nonce"`
	Ciphertext []byte `json:"ciphertext"`
}

const envelopeVersion = 1

func (k kmsSealer) Seal(ctx context.Context, plaintext []byte, bound map[string]string) ([]byte, error) {
	sealed, err := k.SealAll(ctx, [][]byte{plaintext}, bound)
	if err != nil {
		return nil, err
	}

	return sealed[0], nil
}

// SealAll encrypts secrets that have the same context with one data key and a nonce each.
func (k kmsSealer) SealAll(
	ctx context.Context,
	plaintexts [][]byte,
	bound map[string]string,
) ([][]byte, error) {
	name := cmp.Or(k.alias, k.keyARN)
	key, err := k.api.GenerateDataKey(ctx, &kms.GenerateDataKeyInput{
		KeyId: &name, KeySpec: types.DataKeySpecAes256, EncryptionContext: bound,
	})
	if err != nil {
		return nil, k.explainMissingAlias(fmt.Errorf("encrypt a secret with %s: %w", name, err))
	}

	defer clear(key.Plaintext)
	if err := k.compareKey(aws.ToString(key.KeyId)); err != nil {
		return nil, fmt.Errorf("encrypt a secret: %w", err)
	}

	aead, err := newGCM(key.Plaintext)
	if err != nil {
		return nil, fmt.Errorf("encrypt a secret with %s: %w", k.keyARN, err)
	}

	out := make([][]byte, len(plaintexts))

	for i, plaintext := range plaintexts {
		e := envelope{
			Version:   envelopeVersion,
			KMSKeyARN: k.keyARN,
			DataKey:   key.CiphertextBlob,
			Nonce:     make([]byte, aead.NonceSize()),
		}
		if _, err := rand.Read(e.Nonce); err != nil {
			return nil, fmt.Errorf("encrypt a secret with %s: %w", k.keyARN, err)
		}

		e.Ciphertext = aead.Seal(nil, e.Nonce, plaintext, canonicalJSON(bound))
		if out[i], err = json.Marshal(e); err != nil {
			return nil, fmt.Errorf("encode a secret: %w", err)
		}
	}

	return out, nil
}

// BatchSealer is a Sealer that seals many secrets with few requests.
type BatchSealer interface {
	// SealAll encrypts secrets that are bound to the same context, in their order.
	SealAll(ctx context.Context, plaintexts [][]byte, bound map[string]string) ([][]byte, error)
}

// SealAll encrypts secrets that are bound to the same context, with few requests if sealer is a
// BatchSealer. Each result can be opened alone.
func SealAll(
	ctx context.Context,
	sealer Sealer,
	plaintexts [][]byte,
	bound map[string]string,
) ([][]byte, error) {
	if batch, ok := sealer.(BatchSealer); ok {
		return batch.SealAll(ctx, plaintexts, bound)
	}

	out := make([][]byte, len(plaintexts))
	for i, plaintext := range plaintexts {
		var err error
		if out[i], err = sealer.Seal(ctx, plaintext, bound); err != nil {
			return nil, err
		}
	}

	return out, nil
}

func (k kmsSealer) Open(ctx context.Context, sealed []byte, bound map[string]string) ([]byte, error) {
	var e envelope
	if err := json.Unmarshal(sealed, &e); err != nil || e.Version != envelopeVersion {
		return nil, fmt.Errorf("decrypt a secret that is not sealed with KMS: %w", ErrDecryption)
	}

	// Naming the key prevents the use of another key with an object that somebody else wrote. The alias of the store's
	// bucket, which KMS accepts as well, is out of reach of those who can write the settings.
	keyARN := cmp.Or(k.alias, k.keyARN, e.KMSKeyARN)
	key, err := k.api.Decrypt(
		ctx,
		&kms.DecryptInput{CiphertextBlob: e.DataKey, KeyId: &keyARN, EncryptionContext: bound},
	)

	switch errorCode(err) {
	case "InvalidCiphertextException", "IncorrectKeyException":
		return nil, fmt.Errorf("decrypt a secret with %s: %w", keyARN, ErrDecryption)
	}

	if err != nil {
		return nil, k.explainMissingAlias(fmt.Errorf("decrypt a secret with %s: %w", keyARN, err))
	}

	defer clear(key.Plaintext)
	aead, err := newGCM(key.Plaintext)
	if err != nil || len(e.Nonce) != aead.NonceSize() {
		return nil, fmt.Errorf("decrypt a secret with %s: %w", keyARN, ErrDecryption)
	}

	plaintext, err := aead.Open(nil, e.Nonce, e.Ciphertext, canonicalJSON(bound))
	if err != nil {
		return nil, fmt.Errorf("decrypt a secret with %s: %w", keyARN, ErrDecryption)
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

// canonicalJSON returns the JSON of a context with sorted keys.
func canonicalJSON(bound map[string]string) []byte {
	b, err := json.Marshal(bound)
	if err != nil {
		panic("encode a map of strings as JSON: " + err.Error())
	}

	return b
}

// NewAgeSealer returns a Sealer that encrypts with age for the recipient of identity. age has no
// associated data. Therefore the context is part of the encrypted bytes, which age authenticates,
// and Open compares it.
func NewAgeSealer(identity *age.X25519Identity) Sealer { return ageSealer{identity} }

type ageSealer struct{ identity *age.X25519Identity }

// agePayload is what age encrypts.
type agePayload struct {
	Context map[string]string `json:"context"`
	Secret  []byte            `json:"secret"`
}

func (a ageSealer) Seal(_ context.Context, plaintext []byte, bound map[string]string) ([]byte, error) {
	payload := agePayload{Context: bound, Secret: plaintext}
	inner, err := json.Marshal(payload) //nolint:gosec // it is encrypted before it is stored
	if err != nil {
		return nil, fmt.Errorf("encode a secret: %w", err)
	}

	defer clear(inner)

	return ageEncrypt(inner, a.identity.Recipient())
}

func (a ageSealer) Open(_ context.Context, sealed []byte, bound map[string]string) ([]byte, error) {
	inner, err := ageDecrypt(sealed, a.identity)
	if err != nil {
		return nil, fmt.Errorf("decrypt a secret with age: %w", ErrDecryption)
	}

	defer clear(inner)
	var b agePayload
	if err := json.Unmarshal(inner, &b); err != nil || !maps.Equal(b.Context, bound) {
		return nil, fmt.Errorf("decrypt a secret with age: %w", ErrDecryption)
	}

	return b.Secret, nil
}

func ageEncrypt(plaintext []byte, to age.Recipient) ([]byte, error) {
	var out bytes.Buffer
	w, err := age.Encrypt(&out, to)
	if err != nil {
		return nil, fmt.Errorf("encrypt with age: %w", err)
	}

	if _, err := w.Write(plaintext); err != nil {
		return nil, fmt.Errorf("encrypt with age: %w", err)
	}

	if err := w.Close(); err != nil {
		return nil, fmt.Errorf("encrypt with age: %w", err)
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
