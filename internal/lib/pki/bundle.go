// SPDX-License-Identifier: Apache-2.0

package pki

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"

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

	accepted string // the public keys that verify ServiceAccount tokens, as PEM; empty: that of ServiceAccount alone
}

// verifiesTokens reports whether a private key (PEM) is a ServiceAccount key whose tokens the cluster accepts.
func (b Bundle) verifiesTokens(name string, keyPEM []byte) bool {
	if name != ServiceAccountKey {
		return false
	}

	key, err := ParseKey(name, keyPEM)
	if err != nil {
		return false
	}

	public, err := key.PublicPEM()

	return err == nil && slices.Contains(splitPublicKeys(b.accepted), string(public))
}

// PublicPart returns the part of the bundle that contains no secrets.
func (b Bundle) PublicPart() (PublicBundle, error) {
	sa, err := b.ServiceAccount.PublicPEM()
	if err != nil {
		return PublicBundle{}, err
	}

	p := PublicBundle{CAs: map[string]string{}, ServiceAccountKeys: cmp.Or(b.accepted, string(sa))}
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
	// isNamed is set if the sealed text must have the name, since the context does not.
	isNamed bool
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
	if name, _ := cutName(text); k.isNamed && name == "" {
		return Key{}, diag.WithHint(
			fmt.Errorf("%s in %s was sealed without its name, so it may be another key", k.objectKey, s.URL()),
			"find out who wrote it and restore the earlier version; if an older slipway did, apply the cluster "+
				"with this one, which publishes its agent and seals the keys again",
		)
	}

	return ParseKey(k.name, text)
}

// LoadPublicBundle reads the public part of a bundle from the state store. The error wraps
// store.ErrNotFound if the cluster has no bundle.
func LoadPublicBundle(ctx context.Context, s store.Store, cluster string) (PublicBundle, error) {
	o, err := s.Get(ctx, CertsObjectKey(cluster))
	if err != nil {
		return PublicBundle{}, err
	}

	return ParsePublicBundle(o)
}

// ParsePublicBundle decodes the object that LoadPublicBundle reads.
func ParsePublicBundle(o store.Object) (PublicBundle, error) {
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
// call it with the certificates of their node document. Keys without their names, which an older
// slipway has sealed, are refused: [PublishMachineKeys] seals them again before the agent that calls
// this function is published.
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
				isNamed:   true,
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

	b := Bundle{Cluster: cluster, CAs: map[string]CA{}, accepted: public.ServiceAccountKeys}

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

	return b, checkNames(keys, public)
}

// checkNames returns an error if a key is not the one of its name: somebody who can write to the store can put a sealed key
// in the place of another one. Those of CAs are compared with their certificates.
func checkNames(keys []Key, public PublicBundle) error {
	for i, key := range keys {
		for _, other := range keys[:i] {
			if key.Public().Equal(other.Public()) {
				return fmt.Errorf(
					"the stored %s is that of %s: one of them was replaced",
					key,
					other,
				)
			}
		}

		if key.name != ServiceAccountKey || public.ServiceAccountKeys == "" {
			continue
		}

		text, err := key.PublicPEM()
		if err != nil {
			return err
		}

		if !strings.Contains(public.ServiceAccountKeys, strings.TrimSpace(string(text))) {
			return fmt.Errorf(
				"the stored %s is none of those that verify tokens: it was replaced",
				key,
			)
		}
	}

	return nil
}

// OpenCA reads one CA from the state store and decrypts its key, for example to issue an
// administrator certificate.
func OpenCA(ctx context.Context, s store.Store, sealer store.Sealer, cluster, name string) (CA, error) {
	public, err := LoadPublicBundle(ctx, s, cluster)
	if err != nil {
		return CA{}, err
	}

	return public.OpenCA(ctx, s, sealer, cluster, name)
}

// OpenCA is the function OpenCA for a caller that has the public part of the bundle.
func (p PublicBundle) OpenCA(
	ctx context.Context,
	s store.Store,
	sealer store.Sealer,
	cluster, name string,
) (CA, error) {
	key, err := loadKey(ctx, s, sealer, cluster, name)
	if err != nil {
		return CA{}, err
	}

	ca, err := ParseCA(name, []byte(p.CAs[name]), key)
	if err != nil {
		return CA{}, diag.WithHint(
			fmt.Errorf("%s in %s: %w", CertsObjectKey(cluster), s.URL(), err),
			"find out who wrote it, and restore the earlier version",
		)
	}

	return ca, nil
}

// Issuer returns the certificate of a CA's signing key as PEM, without the others of its trust bundle.
func (p PublicBundle) Issuer(name string) ([]byte, error) {
	certs, err := ParseCerts([]byte(p.CAs[name]))
	if err != nil {
		return nil, fmt.Errorf("read the certificates of %s: %w", name, err)
	}

	return CertPEM(certs[0]), nil
}

// WithIssuersOnly returns the bundle with the certificate of the signing key of each CA alone.
func (p PublicBundle) WithIssuersOnly() (PublicBundle, error) {
	out := PublicBundle{CAs: map[string]string{}, ServiceAccountKeys: p.ServiceAccountKeys}
	for name := range p.CAs {
		issuer, err := p.Issuer(name)
		if err != nil {
			return PublicBundle{}, err
		}

		out.CAs[name] = string(issuer)
	}

	return out, nil
}

// Fingerprint returns the SHA-256 of the first certificate of a text (PEM) as 'openssl x509 -fingerprint -sha256' computes
// it, in lower-case hexadecimal; "none" if there is none.
func Fingerprint(certsPEM []byte) string {
	certs, err := ParseCerts(certsPEM)
	if err != nil {
		return "none"
	}

	return fmt.Sprintf("%x", sha256.Sum256(certs[0].Raw))
}
