// SPDX-License-Identifier: Apache-2.0

// Package kms is the region's KMS: symmetric keys with tags, aliases, grants and scheduled deletion. It
// encrypts with AES-GCM and authenticates the encryption context. Access to a key is decided by its key
// policy, its grants and the caller's own policies. The package does not know the other services: those that
// encrypt for a caller, such as S3, call [Service.UseKey].
package kms

import (
	"context"
	"crypto/aes"
	"crypto/cipher"
	"crypto/rand"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/aws/aws-sdk-go/service/kms"

	"github.com/slipway-k8s/slipway/internal/region/authz"
	"github.com/slipway-k8s/slipway/internal/region/state"
	"github.com/slipway-k8s/slipway/internal/region/visibility"
	"github.com/slipway-k8s/slipway/internal/region/wire"
)

// Config has the settings and dependencies of a [Service]. All fields but Identities and MissingPrincipal are required.
type Config struct {
	Region  string           // such as us-east-1
	Account string           // 12 digits
	State   state.Backend    // keeps the keys over a restart
	Now     func() time.Time // the region's clock
	// Identities evaluates the caller's own policies. If it is nil, key policies and grants are not
	// evaluated: only the authorizer of the request decides, as if every key had the default key policy.
	Identities IdentityEvaluator
	// MissingPrincipal returns a user or role that a key policy names and that does not exist; ok is false if there is
	// none. If it is nil, all exist. It is called under the store's lock, so it must not call this service.
	MissingPrincipal func(p authz.Policy) (arn string, ok bool)
}

// Service is KMS of one region. Its methods may be called concurrently.
type Service struct {
	cfg Config

	st     serviceState // guarded by the store's lock
	store  *state.Store
	unseen visibility.Tracker
	stale  staleMarks // guarded by the store's lock
}

// serviceState is the saved state.
type serviceState struct {
	Keys    map[string]*key   `json:"keys"`    // by id
	Aliases map[string]*alias `json:"aliases"` // by name, such as alias/x
}

// key is a KMS key. ID and Material never change.
type key struct {
	ID          string    `json:"id"` // a UUID
	Description string    `json:"description,omitempty"`
	Created     time.Time `json:"created"`
	State       string    `json:"state"`              // Enabled, Disabled or PendingDeletion
	Deletion    time.Time `json:"deletion"`           // when a key that is pending deletion is deleted
	Rotation    bool      `json:"rotation,omitempty"` // as set; the region does not rotate keys
	// RotationDays is the period of the rotation, and RotationSince the time at which it was enabled.
	RotationDays  int64             `json:"rotationDays,omitempty"`
	RotationSince time.Time         `json:"rotationSince,omitzero"`
	Policy        string            `json:"policy"` // document of the key policy
	Tags          map[string]string `json:"tags,omitempty"`
	Material      []byte            `json:"material"` // 32 bytes; only the owner can read the file
	Grants        []grant           `json:"grants,omitempty"`
}

type alias struct {
	Key     string    `json:"key"` // id of the key
	Created time.Time `json:"created"`
}

type grant struct {
	ID         string    `json:"id"` // also the grant token
	Name       string    `json:"name,omitempty"`
	Principal  string    `json:"principal"`  // ARN of the grantee
	Operations []string  `json:"operations"` // such as Decrypt
	Created    time.Time `json:"created"`
	// Equals and Subset are constraints on the encryption context: equal to Equals, and containing Subset.
	Equals map[string]string `json:"equals,omitempty"`
	Subset map[string]string `json:"subset,omitempty"`
}

// New returns a service with its saved state.
func New(cfg Config) (*Service, error) {
	s := &Service{cfg: cfg, st: serviceState{Keys: map[string]*key{}, Aliases: map[string]*alias{}}}
	s.store = &state.Store{Name: "kms", Backend: cfg.State, State: &s.st}

	return s, s.store.Load()
}

// Wire returns the service's operations for the wire layer.
func (s *Service) Wire() wire.Service {
	return wire.Service{
		Name:         "kms",
		Protocol:     wire.JSONProtocol,
		Version:      "2014-11-01",
		TargetPrefix: "TrentService",
		Authorize:    wire.AuthorizedInHandlers,
		Operations: s.unseen.Wrap(s.unseenRules(), []wire.Operation{
			state.WriteOperationContext(s.store, "CreateKey", s.createKey),
			state.ReadOperationContext(s.store, "DescribeKey", s.describeKey),
			state.ReadOperationContext(s.store, "ListKeys", s.listKeys),
			state.ReadOperationContext(s.store, "ListAliases", s.listAliases),
			state.WriteOperationContext(s.store, "CreateAlias", s.createAlias),
			state.WriteOperationContext(s.store, "UpdateAlias", s.updateAlias),
			state.WriteOperationContext(s.store, "DeleteAlias", s.deleteAlias),
			state.WriteOperationContext(s.store, "TagResource", s.tagResource),
			state.WriteOperationContext(s.store, "UntagResource", s.untagResource),
			state.ReadOperationContext(s.store, "ListResourceTags", s.listResourceTags),
			state.WriteOperationContext(s.store, "EnableKeyRotation", s.enableKeyRotation),
			state.WriteOperationContext(s.store, "DisableKeyRotation", s.disableKeyRotation),
			state.ReadOperationContext(s.store, "GetKeyRotationStatus", s.getKeyRotationStatus),
			state.ReadOperationContext(s.store, "GetKeyPolicy", s.getKeyPolicy),
			state.WriteOperationContext(s.store, "PutKeyPolicy", s.putKeyPolicy),
			state.WriteOperationContext(s.store, "ScheduleKeyDeletion", s.scheduleKeyDeletion),
			state.WriteOperationContext(s.store, "CancelKeyDeletion", s.cancelKeyDeletion),
			state.WriteOperationContext(s.store, "EnableKey", s.enableKey),
			state.WriteOperationContext(s.store, "DisableKey", s.disableKey),
			wire.NewOperation("Encrypt", s.encrypt),
			wire.NewOperation("Decrypt", s.decrypt),
			wire.NewOperation("GenerateDataKey", s.generateDataKey),
			wire.NewOperation("GenerateDataKeyWithoutPlaintext", s.generateDataKeyWithoutPlaintext),
			wire.NewOperation("ReEncrypt", s.reEncrypt),
			wire.NewOperation("GenerateRandom", s.generateRandom),
			state.WriteOperationContext(s.store, "UpdateKeyDescription", s.updateKeyDescription),
			state.WriteOperationContext(s.store, "CreateGrant", s.createGrant),
			state.ReadOperationContext(s.store, "ListGrants", s.listGrants),
			state.WriteOperationContext(s.store, "RevokeGrant", s.revokeGrant),
		}),
	}
}

// SaveTo saves the service's state to another backend, for a snapshot.
func (s *Service) SaveTo(to state.Backend) error { return s.store.SaveTo(to) }

func (s *Service) keyARN(id string) string {
	return "arn:aws:kms:" + s.cfg.Region + ":" + s.cfg.Account + ":key/" + id
}

const aliasPrefix = "alias/"

// aliasARN returns the ARN of an alias, whose name begins with alias/.
func (s *Service) aliasARN(name string) string {
	return "arn:aws:kms:" + s.cfg.Region + ":" + s.cfg.Account + ":" + name
}

func stringValue(p *string) string {
	if p == nil {
		return ""
	}

	return *p
}

func stringValues(m map[string]*string) map[string]string {
	out := make(map[string]string, len(m))
	for k, v := range m {
		out[k] = stringValue(v)
	}

	return out
}

// findKey returns the key that a client names by id, ARN, alias or alias's ARN. The caller holds the store's
// lock.
func (s *Service) findKey(name *string) (*key, error) {
	id := stringValue(name)
	if strings.HasPrefix(id, "arn:") {
		rest, ok := strings.CutPrefix(id, s.aliasARN(""))
		if !ok {
			parts := strings.SplitN(id+":::", ":", 5)
			return nil, newErrorf(notFound, "Invalid arn %s", parts[3])
		}

		id = strings.TrimPrefix(rest, "key/")
	}

	if strings.HasPrefix(id, aliasPrefix) {
		a, ok := s.st.Aliases[id]
		if !ok {
			return nil, s.newNotFoundError(id)
		}

		id = a.Key
	}

	if !isKeyID(id) {
		return nil, newErrorf(notFound, "Invalid keyId '%s'", id)
	}

	k, ok := s.st.Keys[id]
	if !ok || k.State == kms.KeyStatePendingDeletion && !s.cfg.Now().Before(k.Deletion) {
		return nil, s.newNotFoundError(id)
	}

	return k, nil
}

// newNotFoundError returns the error about a key or an alias that does not exist.
func (s *Service) newNotFoundError(id string) error {
	if strings.HasPrefix(id, aliasPrefix) {
		return newErrorf(notFound, "Alias %s is not found.", s.aliasARN(id))
	}

	return newErrorf(notFound, "Key '%s' does not exist", s.keyARN(id))
}

// isKeyID reports whether a text has the form of a key's id: a UUID.
func isKeyID(id string) bool {
	return regexp.MustCompile(`^[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}$`).MatchString(id)
}

// withKey finds a key, checks whether the caller may do an action on it, and calls f. Only DescribeKey and
// DeleteAlias accept an alias, as in AWS. The caller holds the store's lock.
func (s *Service) withKey(ctx context.Context, name *string, action string, f func(*key) error) error {
	return s.withCheckedKey(ctx, name, keyCheck{action: action}, f)
}

// keyCheck is an action on a key with the condition keys that its request adds to those of the key.
type keyCheck struct {
	action  string
	context map[string][]string
}

// withCheckedKey is withKey with the condition keys of a request.
func (s *Service) withCheckedKey(
	ctx context.Context,
	name *string,
	check keyCheck,
	f func(*key) error,
) error {
	action := check.action
	if strings.Contains(stringValue(name), aliasPrefix) && action != "DescribeKey" && action != "DeleteAlias" {
		return newErrorf(
			notFound,
			"Invalid keyId %s: the operation takes no alias",
			stringValue(name),
		)
	}

	k, err := s.findKey(name)
	if err != nil {
		return err
	}

	keys := s.conditionKeys(k, nil)
	maps.Copy(keys, check.context)
	if err := s.evaluateAccess(ctx, k, wire.AccessCheck{Action: "kms:" + action, Context: keys}); err != nil {
		return err
	}

	return f(k)
}

// checkUsable returns an error for a key that is disabled or pending deletion.
func (s *Service) checkUsable(k *key) error {
	switch k.State {
	case kms.KeyStateDisabled:
		return newErrorf(keyDisabled, "%s is disabled.", s.keyARN(k.ID))
	case kms.KeyStatePendingDeletion:
		return newErrorf(invalidKeyState, "%s is pending deletion.", s.keyARN(k.ID))
	}

	return nil
}

// encryptBlob encrypts with a key. The ciphertext begins with the key's id, so Decrypt does not need the
// key's name.
func encryptBlob(k *key, plaintext []byte, encryption map[string]string) ([]byte, error) {
	aead, aad, err := newAEAD(k, encryption)
	if err != nil {
		return nil, err
	}

	nonce := make([]byte, aead.NonceSize())
	if _, err := io.ReadFull(rand.Reader, nonce); err != nil {
		return nil, fmt.Errorf("read random bytes: %w", err)
	}

	return aead.Seal(append([]byte(k.ID), nonce...), nonce, plaintext, aad), nil
}

// decryptBlob decrypts a result of encryptBlob with the same key and encryption context.
func decryptBlob(k *key, blob []byte, encryption map[string]string) ([]byte, error) {
	aead, aad, err := newAEAD(k, encryption)
	if err != nil {
		return nil, err
	}

	rest := blob[len(k.ID):]
	if len(rest) < aead.NonceSize() {
		return nil, newInvalidCiphertextError()
	}

	plaintext, err := aead.Open(nil, rest[:aead.NonceSize()], rest[aead.NonceSize():], aad)
	if err != nil {
		return nil, newInvalidCiphertextError()
	}

	return plaintext, nil
}

func newInvalidCiphertextError() error { return newError(invalidCiphertext) }

// newAEAD returns the cipher of a key, and the encryption context as additional authenticated data.
func newAEAD(k *key, encryption map[string]string) (cipher.AEAD, []byte, error) {
	block, err := aes.NewCipher(k.Material)
	if err != nil {
		return nil, nil, fmt.Errorf("create the cipher of key %s: %w", k.ID, err)
	}

	aead, err := cipher.NewGCM(block)
	if err != nil {
		return nil, nil, fmt.Errorf("create the cipher of key %s: %w", k.ID, err)
	}

	aad, err := json.Marshal(encryption) // json.Marshal sorts the keys

	return aead, aad, err
}

// sortedTags returns tags, sorted by key.
func sortedTags(tags map[string]string) []*kms.Tag {
	out := []*kms.Tag{}
	for _, name := range slices.Sorted(maps.Keys(tags)) {
		out = append(out, &kms.Tag{TagKey: &name, TagValue: new(tags[name])})
	}

	return out
}
