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

// MaxLeafLifetime is the longest that Issue gives: leaves are issued on the machine and renewed, so none need last.
const MaxLeafLifetime = 365 * 24 * time.Hour

// minRSABits of a key that Issue certifies.
const minRSABits = 2048

// Usage is what a leaf certificate is for.
type Usage string

// The usages.
const (
	ClientUsage Usage = "client"
	ServerUsage Usage = "server"
)

// Leaf says what to put into a leaf certificate.
type Leaf struct {
	// CN and Orgs are the subject: for Kubernetes the user and its groups.
	CN   string
	Orgs []string
	// DNS and IPs are the subject alternative names. A Server leaf needs at least one.
	DNS []string
	IPs []netip.Addr
	// Usages: Client, Server or both.
	Usages []Usage
	// TTL from now; the CA's own end cuts it short.
	TTL time.Duration
}

// IssueLeaf signs a leaf certificate for pub with ca's first certificate. It returns the certificate as PEM.
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
		return nil, errors.New("the CA's key is not loaded")
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
			return nil, fmt.Errorf("usage %q is neither client nor server", u)
		}
	}

	end := now.Add(leaf.TTL)
	if last := ca.Certs[0].NotAfter; end.After(last) {
		end = last
	}

	if !end.After(now) {
		return nil, fmt.Errorf("the CA ended on %s", ca.Certs[0].NotAfter.UTC().Format(time.DateOnly))
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
		return fmt.Errorf("a lifetime of %s is not between 0 and %s", l.TTL, MaxLeafLifetime)
	case len(l.Usages) == 0:
		return errors.New("it has no usage")
	case slices.Contains(l.Usages, ServerUsage) && len(l.DNS)+len(l.IPs) == 0:
		return errors.New("a server certificate needs a name or an address")
	}

	for _, ip := range l.IPs {
		if !ip.IsValid() {
			return errors.New("an address is not set")
		}
	}

	return nil
}

// checkPublicKey refuses keys that are too weak to certify.
func checkPublicKey(pub crypto.PublicKey) error {
	switch k := pub.(type) {
	case *ecdsa.PublicKey:
		if k.Curve == elliptic.P224() {
			return errors.New("the public key's curve is too small")
		}

	case *rsa.PublicKey:
		if k.N.BitLen() < minRSABits {
			return fmt.Errorf("the public RSA key has fewer than %d bits", minRSABits)
		}

	case ed25519.PublicKey:
	default:
		return fmt.Errorf("public keys of type %T are not certified", pub)
	}

	return nil
}
