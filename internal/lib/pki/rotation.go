// SPDX-License-Identifier: Apache-2.0

package pki

import (
	"context"
	"encoding/json"
	"encoding/pem"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/slipway-k8s/slipway/internal/lib/diag"
	"github.com/slipway-k8s/slipway/internal/lib/store"
)

// nextServiceAccountKey is the name of the key that will sign ServiceAccount tokens. It exists
// while keys are rotated.
const nextServiceAccountKey = "service-account-next"

// RotationStep is a step of the rotation of the key that signs ServiceAccount tokens. After each,
// all machines of the control plane must get the keys before the next one: tokens that one API
// server signs are verified by all.
type RotationStep string

// The steps, in their order.
const (
	// RotationAdd creates a key, with which tokens are verified too.
	RotationAdd RotationStep = "Add"
	// RotationPromote has the new key sign. Tokens of the old one are still good.
	RotationPromote RotationStep = "Promote"
	// RotationRemove ends the old key: its tokens are refused from then on.
	RotationRemove RotationStep = "Remove"
)

// TokenKeyRotation is the next step of the rotation of the key that signs ServiceAccount tokens.
type TokenKeyRotation struct {
	// Step that is next.
	Step RotationStep
	// Certs is the object with the public part as it is.
	Certs store.Object
	// Body is the public part after the step. Whoever keeps documents signed signs it.
	Body []byte

	cluster string
	private store.Object // a sealed key that must be written first; zero: none
	exists  bool         // an object of that key is replaced
}

// PlanTokenKeyRotation reads where the rotation is and returns the next step, without writing
// anything. After a step was interrupted, it returns the same step again. The error wraps
// store.ErrNotFound if the cluster has no keys.
func PlanTokenKeyRotation(
	ctx context.Context,
	s store.Store,
	sealer store.Sealer,
	cluster string,
) (TokenKeyRotation, error) {
	certs, err := s.Get(ctx, CertsObjectKey(cluster))
	if err != nil {
		return TokenKeyRotation{}, err
	}

	public, err := ParsePublicBundle(certs)
	if err != nil {
		return TokenKeyRotation{}, err
	}

	state := tokenKeys{cluster: cluster, sealer: sealer, accepted: splitPublicKeys(public.ServiceAccountKeys)}
	if err := state.load(ctx, s); err != nil {
		return TokenKeyRotation{}, err
	}

	r, keys, err := state.decide(ctx)
	if err != nil {
		return TokenKeyRotation{}, err
	}

	public.ServiceAccountKeys = strings.Join(keys, "")
	body, err := json.MarshalIndent(public, "", "  ")
	if err != nil {
		return TokenKeyRotation{}, fmt.Errorf("encode %s: %w", certs.Key, err)
	}

	r.Certs = certs
	r.Body = slices.Concat(body, []byte("\n"))
	r.cluster = cluster

	return r, nil
}

// Write writes what the step changes: a sealed key, then the public part. It fails with
// store.ErrConflict if somebody has changed the public part since the plan.
func (r TokenKeyRotation) Write(ctx context.Context, s store.Store) error {
	var err error
	switch {
	case r.private.Key == "":
	case r.exists:
		_, err = s.Put(ctx, r.private.Key, r.private.Body)
	default:
		_, err = s.Create(ctx, r.private.Key, r.private.Body)
	}

	if err != nil {
		return err
	}

	if _, err := s.Update(ctx, r.Certs.Key, r.Body, r.Certs.ETag); err != nil {
		return err
	}

	if r.Step == RotationAdd {
		return nil
	}

	return s.Delete(ctx, PrivateKeyObjectKey(r.cluster, nextServiceAccountKey))
}

// tokenKeys are the keys of a cluster that sign and verify tokens.
type tokenKeys struct {
	cluster   string
	sealer    store.Sealer
	accepted  []string // the public keys that verify tokens, as PEM
	signer    string   // the public key of the one that signs
	successor string   // the public key of the one that will sign; empty: there is none
	// successorPEM is the private key, a secret.
	successorPEM []byte
}

// load reads the private keys.
func (t *tokenKeys) load(ctx context.Context, s store.Store) error {
	signer, err := loadKey(ctx, s, t.sealer, t.cluster, ServiceAccountKey)
	if err != nil {
		return err
	}

	public, err := signer.PublicPEM()
	if err != nil {
		return err
	}

	t.signer = string(public)

	successor, err := loadKey(ctx, s, t.sealer, t.cluster, nextServiceAccountKey)
	if errors.Is(err, store.ErrNotFound) {
		return nil
	}

	if err != nil {
		return err
	}

	if public, err = successor.PublicPEM(); err != nil {
		return err
	}

	t.successor = string(public)
	t.successorPEM, err = successor.PEM()

	return err
}

// decide returns the next step with the key that it writes, and the public keys after it, first the
// one that signs then.
func (t *tokenKeys) decide(ctx context.Context) (TokenKeyRotation, []string, error) {
	defer clear(t.successorPEM)

	position := slices.Index(t.accepted, t.signer)
	isNew := t.successor != "" && t.successor != t.signer
	isPair := len(t.accepted) == 2

	switch {
	case position < 0:
		return TokenKeyRotation{}, nil, fmt.Errorf(
			"the stored key %s is none of those that verify tokens: it was replaced",
			ServiceAccountKey,
		)
	case len(t.accepted) == 1:
		return t.add(ctx, isNew)
	case isPair && position == 0:
		return t.replaceFirst(ctx, isNew)
	case isPair && t.successor == t.signer: // interrupted after the private key was written
		return TokenKeyRotation{Step: RotationPromote}, []string{t.signer, t.accepted[0]}, nil
	}

	return t.refuse()
}

// replaceFirst returns the second or third step: the first key of two signs.
func (t *tokenKeys) replaceFirst(ctx context.Context, isNew bool) (TokenKeyRotation, []string, error) {
	switch {
	case !isNew:
		return TokenKeyRotation{Step: RotationRemove}, []string{t.signer}, nil
	case t.successor == t.accepted[1]:
		return t.promote(ctx)
	}

	return t.refuse()
}

// refuse is the error about keys that no rotation leaves.
func (t *tokenKeys) refuse() (TokenKeyRotation, []string, error) {
	return TokenKeyRotation{}, nil, diag.WithHint(
		fmt.Errorf("%s has %d keys that verify tokens, which are not those of a rotation",
			CertsObjectKey(t.cluster), len(t.accepted)),
		"restore the version of the object that Slipway has written",
	)
}

// add returns the first step. A key that an interrupted one has created is used.
func (t *tokenKeys) add(ctx context.Context, isCreated bool) (TokenKeyRotation, []string, error) {
	r := TokenKeyRotation{Step: RotationAdd}
	if isCreated {
		return r, []string{t.signer, t.successor}, nil
	}

	key, sealed, err := newSealedKey(ctx, t.sealer, t.cluster, nextServiceAccountKey)
	if err != nil {
		return r, nil, err
	}

	public, err := key.PublicPEM()
	r.private = sealed
	r.exists = t.successor != "" // one that was promoted

	return r, []string{t.signer, string(public)}, err
}

// promote returns the second step.
func (t *tokenKeys) promote(ctx context.Context) (TokenKeyRotation, []string, error) {
	r := TokenKeyRotation{Step: RotationPromote, exists: true}
	sealed, err := t.sealer.Seal(ctx, t.successorPEM, PrivateKeyContext(t.cluster, ServiceAccountKey))
	if err != nil {
		return r, nil, fmt.Errorf("seal key %s: %w", ServiceAccountKey, err)
	}

	r.private = store.Object{Key: PrivateKeyObjectKey(t.cluster, ServiceAccountKey), Body: sealed}

	return r, []string{t.successor, t.signer}, nil
}

// splitPublicKeys returns the public keys in a text, as PEM.
func splitPublicKeys(text string) []string {
	var out []string
	rest := []byte(text)
	for {
		var block *pem.Block
		if block, rest = pem.Decode(rest); block == nil {
			return out
		}

		out = append(out, string(pem.EncodeToMemory(block)))
	}
}
