// SPDX-License-Identifier: Apache-2.0

package pki

import (
	"crypto"
	"crypto/ecdsa"
	"crypto/ed25519"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/rsa"
	"crypto/x509"
	"crypto/x509/pkix"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"slices"
	"time"
)

// MaxLeafLifetime is the longest lifetime that IssueLeaf accepts. Machines renew their
// certificates, so short lifetimes are enough.
const MaxLeafLifetime = 365 * 24 * time.Hour

// minRSABits is the smallest RSA key that IssueLeaf certifies.
const minRSABits = 2048

// Usage is a purpose of a leaf certificate.
type Usage string

// The usages of leaf certificates: TLS client and TLS server authentication.
const (
	ClientUsage Usage = "client"
	ServerUsage Usage = "server"
)

// Leaf describes a leaf certificate.
type Leaf struct {
	// CN and Orgs are the subject. Kubernetes uses them as the user and its groups. CN has 1 to 64
	// characters.
	CN   string
	Orgs []string
	// DNS and IPs are the subject alternative names. A server certificate needs at least one.
	DNS []string
	IPs []netip.Addr
	// Usages are ClientUsage, ServerUsage or both.
	Usages []Usage
	// TTL is the lifetime from now, at most MaxLeafLifetime. The certificate never outlives the CA.
	TTL time.Duration
}

// IssueLeaf signs a leaf certificate for the public key pub with the key of ca, and returns it as
// PEM.
func IssueLeaf(ca CA, leaf Leaf, pub crypto.PublicKey, now time.Time) ([]byte, error) {
	template, err := newLeafTemplate(ca, leaf, pub, now)
	if err != nil {
		return nil, fmt.Errorf("issue %q under %s: %w", leaf.CN, ca.Name, err)
	}

	der, err := x509.CreateCertificate(rand.Reader, template, ca.Certs[0], pub, ca.key.private)
	if err != nil {
		return nil, fmt.Errorf("issue %q under %s: %w", leaf.CN, ca.Name, err)
	}

	cert, err := x509.ParseCertificate(der)
	if err != nil {
		return nil, fmt.Errorf("issue %q under %s: %w", leaf.CN, ca.Name, err)
	}

	return CertPEM(cert), nil
}

func newLeafTemplate(ca CA, leaf Leaf, pub crypto.PublicKey, now time.Time) (*x509.Certificate, error) {
	if ca.key.private == nil || len(ca.Certs) == 0 {
		return nil, errors.New("the private key of the CA is not loaded")
	}

	if err := errors.Join(leaf.validate(), checkPublicKey(pub)); err != nil {
		return nil, err
	}

	usages := make([]x509.ExtKeyUsage, 0, len(leaf.Usages))

	for _, u := range leaf.Usages {
		switch u {
		case ClientUsage:
			usages = append(usages, x509.ExtKeyUsageClientAuth)
		case ServerUsage:
			usages = append(usages, x509.ExtKeyUsageServerAuth)
		default:
			return nil, fmt.Errorf("invalid usage %q: want client or server", u)
		}
	}

	end := now.Add(leaf.TTL)
	if last := ca.Certs[0].NotAfter; end.After(last) {
		end = last
	}

	if !end.After(now) {
		return nil, fmt.Errorf("the CA expired on %s", ca.Certs[0].NotAfter.UTC().Format(time.DateOnly))
	}

	serial, err := newSerial()
	if err != nil {
		return nil, err
	}

	ips := make([]net.IP, 0, len(leaf.IPs))
	for _, ip := range leaf.IPs {
		ips = append(ips, ip.Unmap().AsSlice())
	}

	return &x509.Certificate{
		SerialNumber: serial,
		Subject: pkix.Name{
			CommonName:   leaf.CN,
			Organization: slices.Sorted(slices.Values(leaf.Orgs)),
		},
		NotBefore:             now.Add(-clockSkewAllowance),
		NotAfter:              end,
		KeyUsage:              x509.KeyUsageDigitalSignature,
		ExtKeyUsage:           usages,
		BasicConstraintsValid: true,
		DNSNames:              leaf.DNS,
		IPAddresses:           ips,
	}, nil
}

func (l Leaf) validate() error {
	switch {
	case l.CN == "" || len(l.CN) > 64: // RFC 5280's ub-common-name
		return errors.New("the common name must have 1 to 64 characters")
	case l.TTL <= 0 || l.TTL > MaxLeafLifetime:
		return fmt.Errorf(
			"invalid lifetime %s: want more than 0 and at most %s",
			l.TTL,
			MaxLeafLifetime,
		)
	case len(l.Usages) == 0:
		return errors.New("the certificate has no usage")
	case slices.Contains(l.Usages, ServerUsage) && len(l.DNS)+len(l.IPs) == 0:
		return errors.New("a server certificate needs a DNS name or an IP address")
	}

	for _, ip := range l.IPs {
		if !ip.IsValid() {
			return errors.New("an IP address is not set")
		}
	}

	return nil
}

// checkPublicKey returns an error for a key that is too weak to certify, or of an unsupported type.
func checkPublicKey(pub crypto.PublicKey) error {
	switch k := pub.(type) {
	case *ecdsa.PublicKey:
		if k.Curve == elliptic.P224() {
			return errors.New("the public key's curve is too small")
		}

	case *rsa.PublicKey:
		if k.N.BitLen() < minRSABits {
			return fmt.Errorf("the RSA key has fewer than %d bits", minRSABits)
		}

	case ed25519.PublicKey:
	default:
		return fmt.Errorf("public keys of type %T are not supported", pub)
	}

	return nil
}
