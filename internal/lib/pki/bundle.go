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

// PublicBundle is the part of a bundle that anybody may read.
type PublicBundle struct {
	// CAs maps the name of a CA to its trust bundle as PEM.
	CAs map[string]string `json:"cas"`
	// ServiceAccountKeys are the public keys that service-account tokens may be signed with, as PEM.
	ServiceAccountKeys string `json:"serviceAccountKeys"`
}

// Bundle is all of a cluster's CAs and keys.
type Bundle struct {
	// Cluster that it belongs to.
	Cluster string
	// CAs by name.
	CAs map[string]CA
	// ServiceAccountKey signs service-account tokens.
	ServiceAccount Key
	// Encryption is what the key for Secrets in etcd is derived from.
	Encryption Key
}

// PublicPart part of the bundle.
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

// CertsObjectKey is where the public part lies.
func CertsObjectKey(cluster string) string { return cluster + "/pki/certs.json" }

// PrivateKeyObjectKey is where a sealed private key lies for the operator.
func PrivateKeyObjectKey(cluster, name string) string { return cluster + "/pki/private/" + name }

// MachineKeyObjectKey is where a sealed private key lies for control-plane machines.
func MachineKeyObjectKey(cluster, name string) string { return cluster + "/machine/secrets/" + name }

// PrivateKeyContext is what a private key is sealed to in the state: it opens as nothing else.
func PrivateKeyContext(cluster, name string) map[string]string {
	return map[string]string{"slipway.dev/cluster": cluster, "slipway.dev/key": name}
}

// MachineKeyContext is what a machine's secrets are sealed to: the cluster, so that an IAM policy can grant just these.
func MachineKeyContext(cluster string) map[string]string {
	return map[string]string{"slipway.dev/cluster": cluster}
}

// EnsureBundle makes what is missing of a cluster's PKI and returns the whole. The keys come first and the certificates
// last: what a killed run left behind is taken up, and of two runs at once both get the same.
func EnsureBundle(
	ctx context.Context,
	s store.Store,
	sealer store.Sealer,
	cluster string,
	now time.Time,
) (Bundle, error) {
	keys := map[string]Key{}
	for _, name := range KeyNames() {
		key, err := ensureKey(ctx, s, sealer, cluster, name)
		if err != nil {
			return Bundle{}, err
		}

		keys[name] = key
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
			return Bundle{}, err
		}

		b.CAs[name] = ca
	}

	public, err := b.PublicPart()
	if err != nil {
		return Bundle{}, err
	}

	body, err := json.MarshalIndent(public, "", "  ")
	if err != nil {
		return Bundle{}, fmt.Errorf("encode %s: %w", CertsObjectKey(cluster), err)
	}

	_, err = s.Create(ctx, CertsObjectKey(cluster), append(body, '\n'))
	if errors.Is(err, store.ErrConflict) {
		return LoadBundle(ctx, s, sealer, cluster)
	}

	return b, err
}

func ensureKey(ctx context.Context, s store.Store, sealer store.Sealer, cluster, name string) (Key, error) {
	key, err := loadKey(ctx, s, sealer, cluster, name)
	if !errors.Is(err, store.ErrNotFound) {
		return key, err
	}

	if key, err = NewKey(name); err != nil {
		return Key{}, err
	}

	text, err := key.PEM()
	if err != nil {
		return Key{}, err
	}

	defer clear(text)
	sealed, err := sealer.Seal(ctx, text, PrivateKeyContext(cluster, name))
	if err != nil {
		return Key{}, fmt.Errorf("seal key %s: %w", name, err)
	}

	_, err = s.Create(ctx, PrivateKeyObjectKey(cluster, name), sealed)
	if errors.Is(err, store.ErrConflict) {
		return loadKey(ctx, s, sealer, cluster, name)
	}

	return key, err
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

// sealedKey says where a key lies and what it is sealed to.
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
		return Key{}, fmt.Errorf("open %s: %w", k.objectKey, err)
	}

	defer clear(text)

	return ParseKey(k.name, text)
}

// LoadPublicBundle reads the public part; it needs no sealer.
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

// LoadBundle opens the whole bundle from the operator's place.
func LoadBundle(ctx context.Context, s store.Store, sealer store.Sealer, cluster string) (Bundle, error) {
	public, err := LoadPublicBundle(ctx, s, cluster)
	if err != nil {
		return Bundle{}, err
	}

	return assembleBundle(
		cluster,
		public,
		func(name string) (Key, error) { return loadKey(ctx, s, sealer, cluster, name) },
	)
}

// LoadMachineBundle opens the bundle from the machines' place, as a control-plane machine does. The certificates come from
// its node document.
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

// OpenCA opens one CA from the operator's place, for instance to issue an administrator's certificate.
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

// PublishMachineKeys copies the private keys to where control-plane machines read them, sealed to the cluster. What is there and
// opens to the same is left alone, so that a second apply writes nothing; what opens to another key is refused, as it is
// what a living cluster of the same name, from another state, boots with. It returns the keys it wrote.
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

	did := make([]bool, len(keys))
	errs := make([]error, len(keys))
	var wg sync.WaitGroup

	for i, key := range keys {
		wg.Go(func() {
			text, err := key.PEM()
			if err == nil {
				there := slices.Contains(have, MachineKeyObjectKey(b.Cluster, key.name))
				did[i], err = publishMachineKey(
					ctx,
					machine,
					sealer,
					machineKey{b.Cluster, key.name, text, there},
				)

				clear(text)
			}

			errs[i] = err
		})
	}

	wg.Wait()
	var wrote []string

	for i, key := range keys {
		if did[i] {
			wrote = append(wrote, MachineKeyObjectKey(b.Cluster, key.name))
		}
	}

	return wrote, errors.Join(errs...)
}

// ListUnpublishedKeys lists the machine-store keys that Publish would write because they are not there. It opens nothing.
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

type machineKey struct {
	cluster, name string
	keyPEM        []byte
	exists        bool // something is there already
}

func publishMachineKey(
	ctx context.Context,
	machine store.Store,
	sealer store.Sealer,
	sec machineKey,
) (bool, error) {
	at := MachineKeyObjectKey(sec.cluster, sec.name)
	bound := MachineKeyContext(sec.cluster)
	if sec.exists {
		same, err := isMachineKeyPublished(ctx, machine, sealer, sec)
		if err != nil || same {
			return false, err
		}
	}

	sealed, err := sealer.Seal(ctx, sec.keyPEM, bound)
	if err != nil {
		return false, fmt.Errorf("seal %s: %w", at, err)
	}

	if !sec.exists {
		_, err = machine.Create(ctx, at, sealed) // that it came up meanwhile is for the next run to judge
	} else {
		_, err = machine.Put(ctx, at, sealed)
	}

	return err == nil, err
}

// isMachineKeyPublished says whether what is there is the secret already. What cannot be opened any more may be replaced; what
// opens to another one may not.
func isMachineKeyPublished(
	ctx context.Context,
	machine store.Store,
	sealer store.Sealer,
	sec machineKey,
) (bool, error) {
	at := MachineKeyObjectKey(sec.cluster, sec.name)
	o, err := machine.Get(ctx, at)
	if err != nil {
		return false, err
	}

	old, err := sealer.Open(ctx, o.Body, MachineKeyContext(sec.cluster))
	same := bytes.Equal(old, sec.keyPEM)
	clear(old)

	switch {
	case err == nil && !same:
		return false, diag.WithHint(
			fmt.Errorf("%s/%s holds the key of another cluster %s", machine.URL(), at, sec.cluster),
			"use another store for machines (spec.configStore.base); if that cluster is gone, delete what lies below "+sec.cluster+"/machine/",
		)

	case err != nil && !errors.Is(err, store.ErrDecryption):
		return false, fmt.Errorf("open %s: %w", at, err)
	}

	return err == nil && same, nil
}
