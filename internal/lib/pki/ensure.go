// SPDX-License-Identifier: Apache-2.0

package pki

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/slipway-k8s/slipway/internal/lib/store"
)

// EnsureBundle creates the missing parts of a cluster's PKI in the state store s, and returns the
// bundle. It writes the keys first and the certificates last. So it can continue after an
// interrupted run, and concurrent calls return the same bundle.
func EnsureBundle(
	ctx context.Context,
	s store.Store,
	sealer store.Sealer,
	cluster string,
	now time.Time,
) (Bundle, error) {
	stored, err := EnsureStoredBundle(ctx, s, sealer, cluster, now)

	return stored.Bundle, err
}

// StoredBundle is a bundle in the state store.
type StoredBundle struct {
	Bundle
	// Certs is the object with the public part.
	Certs store.Object
}

// EnsureStoredBundle is EnsureBundle for callers that need the object with the public part.
func EnsureStoredBundle(
	ctx context.Context,
	s store.Store,
	sealer store.Sealer,
	cluster string,
	now time.Time,
) (StoredBundle, error) {
	keys, err := ensureKeys(ctx, s, sealer, cluster)
	if err != nil {
		return StoredBundle{}, err
	}

	b := Bundle{
		Cluster:        cluster,
		CAs:            map[string]CA{},
		ServiceAccount: keys[ServiceAccountKey],
		Encryption:     keys[EncryptionKey],
	}

	for _, name := range CANames() {
		ca, err := NewCA(name, cluster, keys[name], now)
		if err != nil {
			return StoredBundle{}, err
		}

		b.CAs[name] = ca
	}

	public, err := b.PublicPart()
	if err != nil {
		return StoredBundle{}, err
	}

	body, err := json.MarshalIndent(public, "", "  ")
	if err != nil {
		return StoredBundle{}, fmt.Errorf("encode %s: %w", CertsObjectKey(cluster), err)
	}

	certs := store.Object{Key: CertsObjectKey(cluster), Body: append(body, '\n')}
	certs.ETag, err = s.Create(ctx, certs.Key, certs.Body)
	if errors.Is(err, store.ErrConflict) {
		return loadStoredBundle(ctx, s, sealer, cluster)
	}

	return StoredBundle{Bundle: b, Certs: certs}, err
}

// loadStoredBundle loads a bundle whose certificates exist.
func loadStoredBundle(
	ctx context.Context,
	s store.Store,
	sealer store.Sealer,
	cluster string,
) (StoredBundle, error) {
	certs, err := s.Get(ctx, CertsObjectKey(cluster))
	if err != nil {
		return StoredBundle{}, err
	}

	b, err := LoadBundle(ctx, s, sealer, cluster)

	return StoredBundle{Bundle: b, Certs: certs}, err
}

// ensureKeys returns the private keys of a cluster from the state store, and creates those that do
// not exist. Concurrent calls return the same keys.
func ensureKeys(
	ctx context.Context,
	s store.Store,
	sealer store.Sealer,
	cluster string,
) (map[string]Key, error) {
	listed, err := s.List(ctx, PrivateKeyObjectKey(cluster, ""))
	if err != nil {
		return nil, err
	}

	names := KeyNames()
	keys := make([]Key, len(names))
	objects := make([]store.Object, len(names))
	errs := make([]error, len(names))
	var wg sync.WaitGroup

	for i, name := range names {
		wg.Go(func() {
			if slices.Contains(listed, PrivateKeyObjectKey(cluster, name)) {
				keys[i], errs[i] = loadKey(ctx, s, sealer, cluster, name)
				return
			}

			keys[i], objects[i], errs[i] = newSealedKey(ctx, sealer, cluster, name)
		})
	}

	wg.Wait()
	for _, err := range errs { // one is enough: the others have the same cause
		if err != nil {
			return nil, err
		}
	}

	created := slices.DeleteFunc(objects, func(o store.Object) bool { return o.Key == "" })
	if len(created) > 0 {
		_, err = store.CreateAll(ctx, s, created)
	}

	if errors.Is(err, store.ErrConflict) { // another call created some of them: all of them exist now
		return loadKeys(ctx, s, sealer, cluster)
	}

	out := map[string]Key{}
	for i, name := range names {
		out[name] = keys[i]
	}

	return out, err
}

// newSealedKey returns a new private key and the object to store it in.
func newSealedKey(
	ctx context.Context,
	sealer store.Sealer,
	cluster, name string,
) (Key, store.Object, error) {
	key, err := NewKey(name)
	if err != nil {
		return Key{}, store.Object{}, err
	}

	text, err := key.PEM()
	if err != nil {
		return Key{}, store.Object{}, err
	}

	if name == KubernetesCA {
		marked := append([]byte(signedStateMark), text...)
		clear(text)
		text = marked
	}

	defer clear(text)
	sealed, err := sealer.Seal(ctx, text, PrivateKeyContext(cluster, name))
	if err != nil {
		return Key{}, store.Object{}, fmt.Errorf("seal key %s: %w", name, err)
	}

	return key, store.Object{Key: PrivateKeyObjectKey(cluster, name), Body: sealed}, nil
}

// loadKeys returns all private keys of a cluster from the state store.
func loadKeys(
	ctx context.Context,
	s store.Store,
	sealer store.Sealer,
	cluster string,
) (map[string]Key, error) {
	out := map[string]Key{}
	for _, name := range KeyNames() {
		key, err := loadKey(ctx, s, sealer, cluster, name)
		if err != nil {
			return nil, err
		}

		out[name] = key
	}

	return out, nil
}
