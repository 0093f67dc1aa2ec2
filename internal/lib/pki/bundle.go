// SPDX-License-Identifier: Apache-2.0

package pki

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/slipway-k8s/slipway/internal/lib/diag"
	"github.com/slipway-k8s/slipway/internal/lib/store"
)

// PublicBundle is the part of a bundle that contains no secrets.
type PublicBundle struct {
	// CAs are the trust bundles as PEM, by CA name.
	CAs map[string]string `json:"cas"`
	// ServiceAccountKeys are the public keys that verify ServiceAccount tokens, as PEM.
	ServiceAccountKeys string `json:"serviceAccountKeys"`
}

// Bundle contains all CAs and keys of a cluster.
type Bundle struct {
	// Cluster is the name of the cluster.
	Cluster string
	// CAs by name.
	CAs map[string]CA
	// ServiceAccount signs ServiceAccount tokens.
	ServiceAccount Key
	// Encryption is the key from which the encryption key of Secrets in etcd is derived.
	Encryption Key
}

// PublicPart returns the part of the bundle that contains no secrets.
func (b Bundle) PublicPart() (PublicBundle, error) {
	sa, err := b.ServiceAccount.PublicPEM()
	if err != nil {
		return PublicBundle{}, err
	}

	p := PublicBundle{CAs: map[string]string{}, ServiceAccountKeys: string(sa)}
	for name, ca := range b.CAs {
		p.CAs[name] = string(ca.CertsPEM())
	}

	return p, nil
}

// CertsObjectKey returns the key of a cluster's PublicBundle in the state store.
func CertsObjectKey(cluster string) string { return cluster + "/pki/certs.json" }

// PrivateKeyObjectKey returns the key of a sealed private key in the state store.
func PrivateKeyObjectKey(cluster, name string) string { return cluster + "/pki/private/" + name }

// MachineKeyObjectKey returns the key of a sealed private key in the machine store. Control-plane
// machines read it.
func MachineKeyObjectKey(cluster, name string) string { return cluster + "/machine/secrets/" + name }

// PrivateKeyContext returns the context to which a private key in the state store is sealed: its
// cluster and name.
func PrivateKeyContext(cluster, name string) map[string]string {
	return map[string]string{"slipway.dev/cluster": cluster, "slipway.dev/key": name}
}

// MachineKeyContext returns the context to which the keys in the machine store are sealed. It
// contains only the cluster, so that an IAM policy can grant the decryption of these keys.
func MachineKeyContext(cluster string) map[string]string {
	return map[string]string{"slipway.dev/cluster": cluster}
}

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
	if err := errors.Join(errs...); err != nil {
		return nil, err
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

func loadKey(ctx context.Context, s store.Store, sealer store.Sealer, cluster, name string) (Key, error) {
	return openKey(
		ctx,
		s,
		sealer,
		sealedKey{
			name:      name,
			objectKey: PrivateKeyObjectKey(cluster, name),
			context:   PrivateKeyContext(cluster, name),
		},
	)
}

// sealedKey locates a sealed private key: its name, its object and the context to which it is
// sealed.
type sealedKey struct {
	name, objectKey string
	context         map[string]string
}

func openKey(ctx context.Context, s store.Store, sealer store.Sealer, k sealedKey) (Key, error) {
	o, err := s.Get(ctx, k.objectKey)
	if err != nil {
		return Key{}, err
	}

	text, err := sealer.Open(ctx, o.Body, k.context)
	if err != nil {
		return Key{}, fmt.Errorf("decrypt %s: %w", k.objectKey, err)
	}

	defer clear(text)

	return ParseKey(k.name, text)
}

// LoadPublicBundle reads the public part of a bundle from the state store. The error wraps
// store.ErrNotFound if the cluster has no bundle.
func LoadPublicBundle(ctx context.Context, s store.Store, cluster string) (PublicBundle, error) {
	o, err := s.Get(ctx, CertsObjectKey(cluster))
	if err != nil {
		return PublicBundle{}, err
	}

	var p PublicBundle
	if err := json.Unmarshal(o.Body, &p); err != nil {
		return PublicBundle{}, fmt.Errorf("read %s: %w", o.Key, err)
	}

	return p, nil
}

// LoadBundle reads and decrypts the bundle from the state store. The error wraps store.ErrNotFound
// if the cluster has none.
func LoadBundle(ctx context.Context, s store.Store, sealer store.Sealer, cluster string) (Bundle, error) {
	public, err := LoadPublicBundle(ctx, s, cluster)
	if err != nil {
		return Bundle{}, err
	}

	return LoadPrivateBundle(ctx, s, sealer, cluster, public)
}

// LoadPrivateBundle is LoadBundle for a caller that has the public part.
func LoadPrivateBundle(
	ctx context.Context,
	s store.Store,
	sealer store.Sealer,
	cluster string,
	public PublicBundle,
) (Bundle, error) {
	return assembleBundle(
		cluster,
		public,
		func(name string) (Key, error) { return loadKey(ctx, s, sealer, cluster, name) },
	)
}

// LoadMachineBundle reads and decrypts the bundle from the machine store s. Control-plane machines
// call it with the certificates of their node document.
func LoadMachineBundle(
	ctx context.Context,
	s store.Store,
	sealer store.Sealer,
	cluster string,
	public PublicBundle,
) (Bundle, error) {
	return assembleBundle(cluster, public, func(name string) (Key, error) {
		return openKey(
			ctx,
			s,
			sealer,
			sealedKey{
				name:      name,
				objectKey: MachineKeyObjectKey(cluster, name),
				context:   MachineKeyContext(cluster),
			},
		)
	})
}

// assembleBundle loads all keys concurrently and returns the bundle with the certificates of
// public.
func assembleBundle(cluster string, public PublicBundle, key func(name string) (Key, error)) (Bundle, error) {
	names := KeyNames()
	keys := make([]Key, len(names))
	errs := make([]error, len(names))
	var wg sync.WaitGroup
	for i, name := range names {
		wg.Go(func() { keys[i], errs[i] = key(name) })
	}

	wg.Wait()
	if err := errors.Join(errs...); err != nil {
		return Bundle{}, err
	}

	b := Bundle{Cluster: cluster, CAs: map[string]CA{}}

	for i, name := range names {
		var err error
		switch name {
		case ServiceAccountKey:
			b.ServiceAccount = keys[i]
		case EncryptionKey:
			b.Encryption = keys[i]
		default:
			b.CAs[name], err = ParseCA(name, []byte(public.CAs[name]), keys[i])
		}

		if err != nil {
			return Bundle{}, err
		}
	}

	return b, nil
}

// OpenCA reads one CA from the state store and decrypts its key, for example to issue an
// administrator certificate.
func OpenCA(ctx context.Context, s store.Store, sealer store.Sealer, cluster, name string) (CA, error) {
	public, err := LoadPublicBundle(ctx, s, cluster)
	if err != nil {
		return CA{}, err
	}

	key, err := loadKey(ctx, s, sealer, cluster, name)
	if err != nil {
		return CA{}, err
	}

	return ParseCA(name, []byte(public.CAs[name]), key)
}

// PublishMachineKeys copies the private keys of the bundle to the machine store, sealed to the
// cluster, and returns the object keys that it wrote. It skips keys that are already published, so
// that a second apply writes nothing. It returns an error with a hint if the store contains another
// key, since a running cluster of the same name from another state may boot with it.
func PublishMachineKeys(
	ctx context.Context,
	b Bundle,
	machine store.Store,
	sealer store.Sealer,
) ([]string, error) {
	keys := []Key{b.ServiceAccount, b.Encryption}
	for _, name := range CANames() {
		keys = append(keys, b.CAs[name].key)
	}

	have, err := machine.List(ctx, MachineKeyObjectKey(b.Cluster, ""))
	if err != nil {
		return nil, err
	}

	missing, err := findUnpublished(keys, have, b.Cluster, func(sec machineKey) (bool, error) {
		return isMachineKeyPublished(ctx, machine, sealer, sec)
	})
	if err != nil || len(missing) == 0 {
		return nil, err
	}

	return writeMachineKeys(ctx, machine, sealer, b.Cluster, missing)
}

// findUnpublished returns those of keys that the machine store lacks, or that it has in a form that cannot be
// decrypted. have are the objects of the machine store; isPublished compares a key with its object.
func findUnpublished(
	keys []Key,
	have []string,
	cluster string,
	isPublished func(machineKey) (bool, error),
) ([]machineKey, error) {
	missing := make([]machineKey, len(keys))
	errs := make([]error, len(keys))
	var wg sync.WaitGroup

	for i, key := range keys {
		wg.Go(func() {
			text, err := key.PEM()
			sec := machineKey{cluster: cluster, name: key.name, keyPEM: text}
			sec.exists = slices.Contains(have, MachineKeyObjectKey(cluster, key.name))
			same := false
			if err == nil && sec.exists {
				same, err = isPublished(sec)
			}

			errs[i] = err
			if !same {
				missing[i] = sec
			}
		})
	}

	wg.Wait()
	missing = slices.DeleteFunc(missing, func(sec machineKey) bool { return sec.name == "" })

	return missing, errors.Join(errs...)
}

// writeMachineKeys seals and writes keys, and returns the object keys that it wrote.
func writeMachineKeys(
	ctx context.Context,
	machine store.Store,
	sealer store.Sealer,
	cluster string,
	keys []machineKey,
) ([]string, error) {
	texts := make([][]byte, len(keys))
	for i, sec := range keys {
		texts[i] = sec.keyPEM
	}

	sealed, err := store.SealAll(ctx, sealer, texts, MachineKeyContext(cluster))
	for _, text := range texts {
		clear(text)
	}

	if err != nil {
		return nil, fmt.Errorf("seal the keys of machines: %w", err)
	}

	wrote := make([]string, len(keys))
	errs := make([]error, len(keys))
	var wg sync.WaitGroup

	for i, sec := range keys {
		wg.Go(func() {
			objectKey := MachineKeyObjectKey(cluster, sec.name)
			if sec.exists {
				_, errs[i] = machine.Put(ctx, objectKey, sealed[i])
			} else { // on a conflict, the next run compares the keys
				_, errs[i] = machine.Create(ctx, objectKey, sealed[i])
			}

			if errs[i] == nil {
				wrote[i] = objectKey
			}
		})
	}

	wg.Wait()
	wrote = slices.DeleteFunc(wrote, func(key string) bool { return key == "" })

	return wrote, errors.Join(errs...)
}

// ListUnpublishedKeys returns the object keys that PublishMachineKeys would create in the machine
// store. It decrypts nothing.
func ListUnpublishedKeys(ctx context.Context, machine store.Store, cluster string) ([]string, error) {
	have, err := machine.List(ctx, MachineKeyObjectKey(cluster, ""))
	if err != nil {
		return nil, err
	}

	seen := map[string]bool{}
	for _, key := range have {
		seen[key] = true
	}

	var out []string

	for _, name := range KeyNames() {
		if key := MachineKeyObjectKey(cluster, name); !seen[key] {
			out = append(out, key)
		}
	}

	return out, nil
}

// machineKey is a private key to publish to the machine store.
type machineKey struct {
	cluster, name string
	keyPEM        []byte
	exists        bool // the machine store already contains an object for it
}

// isMachineKeyPublished reports whether the machine store contains the key. It returns false for an
// object that can no longer be decrypted, which may be replaced, and an error for an object with
// another key.
func isMachineKeyPublished(
	ctx context.Context,
	machine store.Store,
	sealer store.Sealer,
	sec machineKey,
) (bool, error) {
	objectKey := MachineKeyObjectKey(sec.cluster, sec.name)
	o, err := machine.Get(ctx, objectKey)
	if err != nil {
		return false, err
	}

	old, err := sealer.Open(ctx, o.Body, MachineKeyContext(sec.cluster))
	same := bytes.Equal(old, sec.keyPEM)
	clear(old)

	switch {
	case err == nil && !same:
		return false, diag.WithHint(
			fmt.Errorf("%s/%s contains the key of another cluster %s", machine.URL(), objectKey, sec.cluster),
			"use another store for machines (spec.configStore.base); if that cluster no longer exists, "+
				"delete all objects below "+sec.cluster+"/machine/",
		)

	case err != nil && !errors.Is(err, store.ErrDecryption):
		return false, fmt.Errorf("decrypt %s: %w", objectKey, err)
	}

	return err == nil, nil
}
