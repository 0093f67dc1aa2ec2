// SPDX-License-Identifier: Apache-2.0

// Package pki creates a cluster's certificate authorities and keys, stores them sealed, and issues
// leaf certificates and kubeconfigs.
//
// A Bundle contains all CAs and keys of a cluster. EnsureBundle creates it in the state store, and
// PublishMachineKeys copies the private keys to the machine store, from which control-plane
// machines load them. Private keys are sealed in both. The CA certificates are public.
//
// The package does not depend on a cloud: everything here works before any cloud resource exists.
package pki

import (
	"bytes"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/hkdf"
	"crypto/rand"
	"crypto/sha256"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"fmt"
	"math/big"
	"time"
)

// The names of the certificate authorities. They are separate, so that a certificate of one CA is
// not trusted where another CA is required.
const (
	EtcdPeerCA   = "etcd-peer-ca"
	EtcdClientCA = "etcd-client-ca"
	KubernetesCA = "kubernetes-ca"
	FrontProxyCA = "front-proxy-ca"
)

// ServiceAccountKey is the name of the key pair that signs ServiceAccount tokens.
const ServiceAccountKey = "service-account"

// EncryptionKey is the name of the key from which the encryption key of Secrets in etcd is derived.
// It signs nothing.
const EncryptionKey = "encryption-key"

// AdminGroup is the organization in administrator certificates. An add-on binds it to
// cluster-admin. system:masters is not used, because RBAC cannot revoke its permissions (CIS
// Kubernetes Benchmark 5.1.1, 5.1.7).
const AdminGroup = "slipway:cluster-admins"

// CALifetime is the lifetime of a new CA: ten years, as in kubeadm and kops.
const CALifetime = 10 * 365 * 24 * time.Hour

// clockSkewAllowance is the time by which NotBefore precedes the issue of a certificate, so that
// machines with a slow clock accept it.
const clockSkewAllowance = 5 * time.Minute

const (
	pemCertificate = "CERTIFICATE"
	pemPrivateKey  = "PRIVATE KEY"
	pemPublicKey   = "PUBLIC KEY"
)

// CANames returns the names of the certificate authorities, sorted.
func CANames() []string { return []string{EtcdClientCA, EtcdPeerCA, FrontProxyCA, KubernetesCA} }

// KeyNames returns the names of all private keys: those of the CAs, the ServiceAccount key and the
// encryption key.
func KeyNames() []string { return append(CANames(), ServiceAccountKey, EncryptionKey) }

// Key is a private key. Only its name is printed and marshaled.
type Key struct {
	name       string
	private    *ecdsa.PrivateKey
	signsState bool
}

// NewKey generates an ECDSA P-256 key.
func NewKey(name string) (Key, error) {
	k, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return Key{}, fmt.Errorf("generate key %s: %w", name, err)
	}

	return Key{name: name, private: k}, nil
}

// ParseKey parses the result of Key.PEM. A name in the text must be the given one; callers whose context does not bind the
// name require one before. Its errors contain no part of the key.
func ParseKey(name string, text []byte) (Key, error) {
	if other, _ := cutName(text); other != "" && other != name {
		return Key{}, fmt.Errorf("key %s was sealed as key %s: somebody has exchanged the objects", name, other)
	}

	block, _ := pem.Decode(text)
	if block == nil || block.Type != pemPrivateKey {
		return Key{}, fmt.Errorf("key %s is not a PEM block of type %s", name, pemPrivateKey)
	}

	parsed, err := x509.ParsePKCS8PrivateKey(block.Bytes)
	if err != nil {
		return Key{}, fmt.Errorf("key %s is not PKCS #8", name)
	}

	k, ok := parsed.(*ecdsa.PrivateKey)
	if !ok || k.Curve != elliptic.P256() {
		return Key{}, fmt.Errorf("key %s is not ECDSA P-256", name)
	}

	return Key{name: name, private: k, signsState: bytes.HasPrefix(text, []byte(signedStateMark))}, nil
}

// signedStateMark precedes the PEM of a sealed key of the Kubernetes CA whose cluster had a signature from the
// beginning. PEM allows text there, which earlier versions and other programs skip.
const signedStateMark = "The state of this cluster is signed.\n"

// SignsState reports whether the state of the key's cluster has been signed since the key was created. This is known from
// the sealed form of the key, so that nobody who cannot seal can take it back.
func (k Key) SignsState() bool { return k.signsState }

// Name returns the name of the key.
func (k Key) Name() string { return k.name }

// String returns the name of the key, never the key itself.
func (k Key) String() string { return "key " + k.name }

// GoString returns the name of the key, so that %#v does not print the key.
func (k Key) GoString() string { return k.String() }

// MarshalText returns the name of the key, so that encoders do not write the key.
func (k Key) MarshalText() ([]byte, error) { return []byte(k.String()), nil }

// Public returns the public key.
func (k Key) Public() *ecdsa.PublicKey { return &k.private.PublicKey }

// PEM returns the private key as PEM, in PKCS #8. It is a secret: write it to files in memory and
// sealed objects only.
func (k Key) PEM() ([]byte, error) {
	der, err := x509.MarshalPKCS8PrivateKey(k.private)
	if err != nil {
		return nil, fmt.Errorf("encode key %s: %w", k.name, err)
	}

	return pem.EncodeToMemory(&pem.Block{Type: pemPrivateKey, Bytes: der}), nil
}

// Derive returns a symmetric key of size bytes that is derived from the private key with HKDF (RFC
// 5869). It is different for each purpose, and always the same for one private key and purpose.
func (k Key) Derive(purpose string, size int) ([]byte, error) {
	if k.private == nil {
		return nil, fmt.Errorf("derive from key %s: it is not loaded", k.name)
	}

	text, err := k.PEM()
	if err != nil {
		return nil, err
	}

	defer clear(text)
	out, err := hkdf.Key(sha256.New, text, nil, purpose, size)
	if err != nil {
		return nil, fmt.Errorf("derive from key %s: %w", k.name, err)
	}

	return out, nil
}

// PublicPEM of the key, PKIX.
func (k Key) PublicPEM() ([]byte, error) { return PublicPEM(k.Public()) }

// PublicPEM encodes a public key as PKIX.
func PublicPEM(pub *ecdsa.PublicKey) ([]byte, error) {
	der, err := x509.MarshalPKIXPublicKey(pub)
	if err != nil {
		return nil, fmt.Errorf("encode public key: %w", err)
	}

	return pem.EncodeToMemory(&pem.Block{Type: pemPublicKey, Bytes: der}), nil
}

// CA is a certificate authority.
type CA struct {
	// Name such as kubernetes-ca.
	Name string
	// Certs is the trust bundle. The first certificate belongs to the signing key. The others are
	// previous or future certificates, which are trusted too.
	Certs []*x509.Certificate
	key   Key
}

// NewCA returns a CA with a self-signed certificate for key, valid from now for CALifetime.
func NewCA(name, cluster string, key Key, now time.Time) (CA, error) {
	id, err := computeKeyID(key.Public())
	if err != nil {
		return CA{}, fmt.Errorf("create CA %s: %w", name, err)
	}

	serial, err := newSerial()
	if err != nil {
		return CA{}, fmt.Errorf("create CA %s: %w", name, err)
	}

	template := &x509.Certificate{
		SerialNumber:          serial,
		Subject:               pkix.Name{CommonName: name, OrganizationalUnit: []string{cluster}},
		NotBefore:             now.Add(-clockSkewAllowance),
		NotAfter:              now.Add(CALifetime),
		KeyUsage:              x509.KeyUsageCertSign | x509.KeyUsageCRLSign | x509.KeyUsageDigitalSignature,
		BasicConstraintsValid: true,
		IsCA:                  true,
		MaxPathLenZero:        true,
		SubjectKeyId:          id,
	}

	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key.private)
	if err != nil {
		return CA{}, fmt.Errorf("create CA %s: %w", name, err)
	}

	cert, err := x509.ParseCertificate(der)
	if err != nil {
		return CA{}, fmt.Errorf("create CA %s: %w", name, err)
	}

	return CA{Name: name, Certs: []*x509.Certificate{cert}, key: key}, nil
}

// ParseCA returns the CA with a trust bundle and the private key of its first certificate.
func ParseCA(name string, certsPEM []byte, key Key) (CA, error) {
	certs, err := ParseCerts(certsPEM)
	if err != nil {
		return CA{}, fmt.Errorf("load CA %s: %w", name, err)
	}

	if !key.Public().Equal(certs[0].PublicKey) {
		return CA{}, fmt.Errorf("load CA %s: the key does not match the first certificate", name)
	}

	return CA{Name: name, Certs: certs, key: key}, nil
}

// Key returns the private key of the first certificate, or the zero Key if the CA was loaded
// without it.
func (c CA) Key() Key { return c.key }

// CertsPEM returns the trust bundle as PEM.
func (c CA) CertsPEM() []byte {
	var out []byte
	for _, cert := range c.Certs {
		out = append(out, CertPEM(cert)...)
	}

	return out
}

// String returns the name of the CA.
func (c CA) String() string { return "CA " + c.Name }

// Issuer returns the certificate of the signing key as PEM, without the others of the trust bundle.
func (c CA) Issuer() []byte { return CertPEM(c.Certs[0]) }

// CertPEM returns a certificate as PEM.
func CertPEM(cert *x509.Certificate) []byte {
	return pem.EncodeToMemory(&pem.Block{Type: pemCertificate, Bytes: cert.Raw})
}

// ParseCerts parses one or more PEM certificates.
func ParseCerts(text []byte) ([]*x509.Certificate, error) {
	var out []*x509.Certificate
	for {
		var block *pem.Block
		block, text = pem.Decode(text)
		if block == nil {
			break
		}

		if block.Type != pemCertificate {
			return nil, fmt.Errorf("unexpected PEM block %s, want %s", block.Type, pemCertificate)
		}

		cert, err := x509.ParseCertificate(block.Bytes)
		if err != nil {
			return nil, fmt.Errorf("parse certificate: %w", err)
		}

		out = append(out, cert)
	}

	if len(out) == 0 {
		return nil, errors.New("no PEM certificate found")
	}

	return out, nil
}

// newSerial returns a serial number of 127 random bits, which is never zero. The CA/Browser Forum
// requires 64 bits.
func newSerial() (*big.Int, error) {
	n, err := rand.Int(rand.Reader, new(big.Int).Lsh(big.NewInt(1), 127))
	if err != nil {
		return nil, err
	}

	return n.Add(n, big.NewInt(1)), nil
}

// computeKeyID returns the key identifier of RFC 7093, method 1: the leftmost 160 bits of the
// SHA-256 of the public key.
func computeKeyID(pub *ecdsa.PublicKey) ([]byte, error) {
	point, err := pub.Bytes()
	if err != nil {
		return nil, err
	}

	sum := sha256.Sum256(point)

	return sum[:20], nil
}
