// SPDX-License-Identifier: Apache-2.0

// Package pki makes a cluster's certificate authorities and keys, keeps them sealed in a store, and issues leaf
// certificates and kubeconfigs. It knows no cloud: everything here works before there is one.
package pki

import (
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

// The certificate authorities. They are separate so that a key of one trusts nothing of another (S4.2).
const (
	EtcdPeerCA   = "etcd-peer-ca"
	EtcdClientCA = "etcd-client-ca"
	KubernetesCA = "kubernetes-ca"
	FrontProxyCA = "front-proxy-ca"
)

// ServiceAccountKey is the name of the key pair that signs service-account tokens.
const ServiceAccountKey = "service-account"

// EncryptionKey is the name of the key that the key for Secrets in etcd is derived from. It signs nothing.
const EncryptionKey = "encryption-key"

// AdminGroup is the organization of an administrator's certificate. An add-on binds it to cluster-admin. It is not
// system:masters, whose rights no RBAC rule can take back (CIS 5.1.1, 5.1.7).
const AdminGroup = "slipway:cluster-admins"

// CALifetime is how long a new CA lasts: ten years, as kubeadm's and kops's do.
const CALifetime = 10 * 365 * 24 * time.Hour

// clockSkewAllowance lets a certificate be used on a machine whose clock is a little behind the issuer's.
const clockSkewAllowance = 5 * time.Minute

const (
	pemCertificate = "CERTIFICATE"
	pemPrivateKey  = "PRIVATE KEY"
	pemPublicKey   = "PUBLIC KEY"
)

// CANames lists the certificate authorities.
func CANames() []string { return []string{EtcdClientCA, EtcdPeerCA, FrontProxyCA, KubernetesCA} }

// KeyNames lists all private keys: those of the CAs, the service-account key and the encryption key.
func KeyNames() []string { return append(CANames(), ServiceAccountKey, EncryptionKey) }

// Key is a private key. It prints and marshals as its name only.
type Key struct {
	name    string
	private *ecdsa.PrivateKey
}

// NewKey makes an ECDSA P-256 key.
func NewKey(name string) (Key, error) {
	k, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return Key{}, fmt.Errorf("make key %s: %w", name, err)
	}

	return Key{name: name, private: k}, nil
}

// ParseKey reads what PEM returned. Its errors hold no part of the key.
func ParseKey(name string, text []byte) (Key, error) {
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

	return Key{name: name, private: k}, nil
}

// Name of the key.
func (k Key) Name() string { return k.name }

// String is the name, never the key; GoString and MarshalText too.
func (k Key) String() string { return "key " + k.name }

// GoString hides the key from %#v.
func (k Key) GoString() string { return k.String() }

// MarshalText hides the key from encoders.
func (k Key) MarshalText() ([]byte, error) { return []byte(k.String()), nil }

// Public half of the key.
func (k Key) Public() *ecdsa.PublicKey { return &k.private.PublicKey }

// PEM of the private key, PKCS #8. It is a secret: write it to memory-backed files and sealed objects only.
func (k Key) PEM() ([]byte, error) {
	der, err := x509.MarshalPKCS8PrivateKey(k.private)
	if err != nil {
		return nil, fmt.Errorf("encode key %s: %w", k.name, err)
	}

	return pem.EncodeToMemory(&pem.Block{Type: pemPrivateKey, Bytes: der}), nil
}

// Derive makes a symmetric key of size bytes from the private key, different for each purpose (HKDF, RFC 5869).
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
	// Certs is the trust bundle. The first one signs; others are old or coming ones that are trusted too.
	Certs []*x509.Certificate
	key   Key
}

// NewCA makes a self-signed CA over key, valid from now.
func NewCA(name, cluster string, key Key, now time.Time) (CA, error) {
	id, err := computeKeyID(key.Public())
	if err != nil {
		return CA{}, fmt.Errorf("make %s: %w", name, err)
	}

	serial, err := newSerial()
	if err != nil {
		return CA{}, fmt.Errorf("make %s: %w", name, err)
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
		return CA{}, fmt.Errorf("make %s: %w", name, err)
	}

	cert, err := x509.ParseCertificate(der)
	if err != nil {
		return CA{}, fmt.Errorf("make %s: %w", name, err)
	}

	return CA{Name: name, Certs: []*x509.Certificate{cert}, key: key}, nil
}

// ParseCA puts a trust bundle and the key of its first certificate together.
func ParseCA(name string, certsPEM []byte, key Key) (CA, error) {
	certs, err := ParseCerts(certsPEM)
	if err != nil {
		return CA{}, fmt.Errorf("load %s: %w", name, err)
	}

	if !key.Public().Equal(certs[0].PublicKey) {
		return CA{}, fmt.Errorf("load %s: its key is not that of its first certificate", name)
	}

	return CA{Name: name, Certs: certs, key: key}, nil
}

// Key of the first certificate; the zero Key in a CA that was loaded without.
func (c CA) Key() Key { return c.key }

// CertsPEM is the trust bundle.
func (c CA) CertsPEM() []byte {
	var out []byte
	for _, cert := range c.Certs {
		out = append(out, CertPEM(cert)...)
	}

	return out
}

// String is the name.
func (c CA) String() string { return "CA " + c.Name }

// CertPEM encodes one certificate.
func CertPEM(cert *x509.Certificate) []byte {
	return pem.EncodeToMemory(&pem.Block{Type: pemCertificate, Bytes: cert.Raw})
}

// ParseCerts reads one or more PEM certificates.
func ParseCerts(text []byte) ([]*x509.Certificate, error) {
	var out []*x509.Certificate
	for {
		var block *pem.Block
		block, text = pem.Decode(text)
		if block == nil {
			break
		}

		if block.Type != pemCertificate {
			return nil, fmt.Errorf("a PEM block is a %s, not a %s", block.Type, pemCertificate)
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

// newSerial returns 127 random bits, more than the 64 that CA/Browser rules ask for; never zero.
func newSerial() (*big.Int, error) {
	n, err := rand.Int(rand.Reader, new(big.Int).Lsh(big.NewInt(1), 127))
	if err != nil {
		return nil, err
	}

	return n.Add(n, big.NewInt(1)), nil
}

// computeKeyID is RFC 7093 method 1: the leftmost 160 bits of SHA-256 over the public key.
func computeKeyID(pub *ecdsa.PublicKey) ([]byte, error) {
	point, err := pub.Bytes()
	if err != nil {
		return nil, err
	}

	sum := sha256.Sum256(point)

	return sum[:20], nil
}
