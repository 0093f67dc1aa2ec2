// SPDX-License-Identifier: Apache-2.0

package pki_test

import (
	"bytes"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/rsa"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"net"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	"k8s.io/client-go/tools/clientcmd"

	"github.com/slipway-k8s/slipway/internal/lib/pki"
)

func start() time.Time { return time.Now().Truncate(time.Second) }

func newCA(t *testing.T, name string) pki.CA {
	t.Helper()
	key, err := pki.NewKey(name)
	if err != nil {
		t.Fatal(err)
	}
	ca, err := pki.NewCA(name, "demo", key, start())
	if err != nil {
		t.Fatal(err)
	}
	return ca
}

func TestCA(t *testing.T) {
	ca := newCA(t, pki.KubernetesCA)
	c := ca.Certs[0]
	pub, ok := c.PublicKey.(*ecdsa.PublicKey)
	if !ok || pub.Curve != elliptic.P256() {
		t.Errorf("the key is a %T", c.PublicKey)
	}
	if !c.IsCA || c.MaxPathLen != 0 || !c.MaxPathLenZero || c.KeyUsage&x509.KeyUsageCertSign == 0 {
		t.Errorf("not a CA of path length 0: %v %v %v", c.IsCA, c.MaxPathLen, c.KeyUsage)
	}
	if years := c.NotAfter.Sub(start()).Hours() / 24 / 365; years < 9.9 || years > 10.1 {
		t.Errorf("lasts %.1f years", years)
	}
	if c.SerialNumber.BitLen() < 64 || c.SerialNumber.Cmp(newCA(t, "x").Certs[0].SerialNumber) == 0 {
		t.Errorf("serial %v is not random", c.SerialNumber)
	}
	if err := c.CheckSignatureFrom(c); err != nil {
		t.Error(err)
	}
}

// issue generates a key and issues a certificate for it.
func issue(t *testing.T, ca pki.CA, leaf pki.Leaf) (tls.Certificate, *x509.Certificate) {
	t.Helper()
	key, err := pki.NewKey("leaf")
	if err != nil {
		t.Fatal(err)
	}
	cert, err := pki.IssueLeaf(ca, leaf, key.Public(), start())
	if err != nil {
		t.Fatal(err)
	}
	keyPEM, err := key.PEM()
	if err != nil {
		t.Fatal(err)
	}
	pair, err := tls.X509KeyPair(cert, keyPEM)
	if err != nil {
		t.Fatal(err)
	}
	return pair, pair.Leaf
}

func TestIssue(t *testing.T) {
	ca := newCA(t, pki.KubernetesCA)
	before := start()
	_, c := issue(t, ca, pki.Leaf{
		CN: "system:node:ip-10-80-16-4", Orgs: []string{"system:nodes"}, Usages: []pki.Usage{pki.ClientUsage, pki.ServerUsage},
		DNS: []string{"ip-10-80-16-4"}, IPs: []netip.Addr{netip.MustParseAddr("10.80.16.4")}, TTL: 24 * time.Hour,
	})
	if c.Subject.CommonName != "system:node:ip-10-80-16-4" || !slices.Equal(c.Subject.Organization, []string{"system:nodes"}) {
		t.Errorf("subject %v", c.Subject)
	}
	if c.IsCA || c.KeyUsage != x509.KeyUsageDigitalSignature {
		t.Errorf("may do more than it should: %v", c.KeyUsage)
	}
	after := start() // a second may have begun
	if c.NotBefore.After(before) || c.NotAfter.Before(before.Add(24*time.Hour)) || c.NotAfter.After(after.Add(24*time.Hour)) {
		t.Errorf("valid from %v to %v", c.NotBefore, c.NotAfter)
	}
	if err := c.VerifyHostname("10.80.16.4"); err != nil {
		t.Error(err)
	}
	if !bytes.Equal(c.AuthorityKeyId, ca.Certs[0].SubjectKeyId) {
		t.Error("it does not name its CA's key")
	}
}

func TestIssueEndsWithTheCA(t *testing.T) {
	ca := newCA(t, "x")
	key, _ := pki.NewKey("leaf")
	leaf := pki.Leaf{CN: "a", Usages: []pki.Usage{pki.ClientUsage}, TTL: 48 * time.Hour}
	late := ca.Certs[0].NotAfter.Add(-time.Hour)
	text, err := pki.IssueLeaf(ca, leaf, key.Public(), late)
	if err != nil {
		t.Fatal(err)
	}
	certs, err := pki.ParseCerts(text)
	if err != nil || !certs[0].NotAfter.Equal(ca.Certs[0].NotAfter) {
		t.Errorf("ends %v, the CA %v (%v)", certs[0].NotAfter, ca.Certs[0].NotAfter, err)
	}
	if _, err := pki.IssueLeaf(ca, leaf, key.Public(), late.Add(2*time.Hour)); err == nil {
		t.Error("issued under a CA that has ended")
	}
}

func TestIssueRefuses(t *testing.T) {
	ca := newCA(t, "x")
	key, _ := pki.NewKey("leaf")
	weak, err := rsa.GenerateKey(rand.Reader, 1024)
	if err != nil {
		t.Log("this Go version cannot generate a weak RSA key:", err)
	}
	good := pki.Leaf{CN: "a", Usages: []pki.Usage{pki.ClientUsage}, TTL: time.Hour}
	change := func(f func(*pki.Leaf)) pki.Leaf { l := good; f(&l); return l }
	for name, c := range map[string]struct {
		leaf pki.Leaf
		pub  any
		ca   pki.CA
	}{
		"no name":                  {change(func(l *pki.Leaf) { l.CN = "" }), key.Public(), ca},
		"a name too long":          {change(func(l *pki.Leaf) { l.CN = strings.Repeat("a", 65) }), key.Public(), ca},
		"no lifetime":              {change(func(l *pki.Leaf) { l.TTL = 0 }), key.Public(), ca},
		"a lifetime too long":      {change(func(l *pki.Leaf) { l.TTL = pki.MaxLeafLifetime + 1 }), key.Public(), ca},
		"no usage":                 {change(func(l *pki.Leaf) { l.Usages = nil }), key.Public(), ca},
		"another usage":            {change(func(l *pki.Leaf) { l.Usages = []pki.Usage{"any"} }), key.Public(), ca},
		"a server without a name":  {change(func(l *pki.Leaf) { l.Usages = []pki.Usage{pki.ServerUsage} }), key.Public(), ca},
		"an address that is unset": {change(func(l *pki.Leaf) { l.IPs = []netip.Addr{{}} }), key.Public(), ca},
		"a string for a key":       {good, "key", ca},
		"a CA without key":         {good, key.Public(), pki.CA{Name: "x", Certs: ca.Certs}},
	} {
		if _, err := pki.IssueLeaf(c.ca, c.leaf, c.pub, start()); err == nil {
			t.Errorf("%s: issued", name)
		}
	}
	if weak != nil {
		if _, err := pki.IssueLeaf(ca, good, &weak.PublicKey, start()); err == nil {
			t.Error("certified a weak RSA key")
		}
	}
}

// TestMutualTLS uses the certificates in a real TLS handshake, which must fail with the certificate
// of another CA.
func TestMutualTLS(t *testing.T) {
	ca, other := newCA(t, pki.EtcdPeerCA), newCA(t, pki.EtcdClientCA)
	server, _ := issue(t, ca, pki.Leaf{CN: "s", DNS: []string{"etcd-a.demo.internal"}, Usages: []pki.Usage{pki.ServerUsage}, TTL: time.Hour})
	client, _ := issue(t, ca, pki.Leaf{CN: "c", Usages: []pki.Usage{pki.ClientUsage}, TTL: time.Hour})
	stranger, _ := issue(t, other, pki.Leaf{CN: "c", Usages: []pki.Usage{pki.ClientUsage}, TTL: time.Hour})
	pool := x509.NewCertPool()
	pool.AddCert(ca.Certs[0])
	shake := func(cert tls.Certificate) error {
		a, b := net.Pipe()
		defer a.Close()
		defer b.Close()
		srv := tls.Server(a, &tls.Config{Certificates: []tls.Certificate{server}, ClientCAs: pool, ClientAuth: tls.RequireAndVerifyClientCert})
		cl := tls.Client(b, &tls.Config{Certificates: []tls.Certificate{cert}, RootCAs: pool, ServerName: "etcd-a.demo.internal"})
		done := make(chan error, 1)
		go func() {
			_, err := cl.Read(make([]byte, 1)) // completes the handshake, and receives the server's alert
			done <- err
		}()
		err := srv.HandshakeContext(t.Context())
		_ = srv.Close()
		<-done
		return err
	}
	if err := shake(client); err != nil {
		t.Errorf("a peer is refused: %v", err)
	}
	if err := shake(stranger); err == nil {
		t.Error("another CA's client is let in")
	}
}

func TestKeysDoNotShow(t *testing.T) {
	key, err := pki.NewKey("kubernetes-ca")
	if err != nil {
		t.Fatal(err)
	}
	text, err := key.PEM()
	if err != nil {
		t.Fatal(err)
	}
	body := strings.Split(string(text), "\n")[1]
	b := pki.Bundle{CAs: map[string]pki.CA{"x": newCA(t, "x")}, ServiceAccount: key}
	asJSON, err := json.Marshal(b)
	if err != nil {
		t.Fatal(err)
	}
	_, parseErr := pki.ParseKey("k", bytes.ReplaceAll(text, []byte("PRIVATE KEY"), []byte("EC PRIVATE KEY")))
	for how, shown := range map[string]string{
		"%v": fmt.Sprintf("%v", key), "%+v": fmt.Sprintf("%+v", b), "%#v": fmt.Sprintf("%#v", key),
		"json": string(asJSON), "a parse error": fmt.Sprint(parseErr),
	} {
		if strings.Contains(shown, body) || strings.Contains(shown, "PRIVATE KEY-----") || strings.Contains(shown, "D:+") {
			t.Errorf("%s shows the key: %s", how, shown)
		}
	}
	again, err := pki.ParseKey("kubernetes-ca", text)
	if err != nil || !again.Public().Equal(key.Public()) {
		t.Errorf("the key does not come back from its PEM: %v", err)
	}
}

func TestDerive(t *testing.T) {
	key, _ := pki.NewKey("k")
	a, err := key.Derive("one", 32)
	if err != nil || len(a) != 32 {
		t.Fatal(a, err)
	}
	b, _ := key.Derive("one", 32)
	c, _ := key.Derive("two", 32)
	if !bytes.Equal(a, b) || bytes.Equal(a, c) {
		t.Error("the same purpose must give the same bytes, and another one others")
	}
	if _, err := (pki.Key{}).Derive("one", 32); err == nil {
		t.Error("derived from no key")
	}
}

func TestTrustBundleOfTwo(t *testing.T) {
	old, next := newCA(t, "kubernetes-ca"), newCA(t, "kubernetes-ca")
	both, err := pki.ParseCA("kubernetes-ca", append(next.CertsPEM(), old.CertsPEM()...), next.Key())
	if err != nil {
		t.Fatal(err)
	}
	if len(both.Certs) != 2 || !bytes.Equal(both.CertsPEM(), append(next.CertsPEM(), old.CertsPEM()...)) {
		t.Errorf("the bundle has %d certificates", len(both.Certs))
	}
	_, leaf := issue(t, both, pki.Leaf{CN: "a", Usages: []pki.Usage{pki.ClientUsage}, TTL: time.Hour})
	if err := leaf.CheckSignatureFrom(next.Certs[0]); err != nil {
		t.Error("the first certificate does not sign:", err)
	}
	if _, err := pki.ParseCA("kubernetes-ca", old.CertsPEM(), next.Key()); err == nil {
		t.Error("a key that does not match the certificate was accepted")
	}
}

func TestKubeconfig(t *testing.T) {
	ca := newCA(t, pki.KubernetesCA)
	key, _ := pki.NewKey("admin")
	cert, err := pki.IssueLeaf(ca, pki.Leaf{CN: "a", Usages: []pki.Usage{pki.ClientUsage}, TTL: time.Hour}, key.Public(), start())
	if err != nil {
		t.Fatal(err)
	}
	keyPEM, _ := key.PEM()
	text, err := pki.RenderKubeconfig(pki.KubeconfigOptions{
		Name: "demo", Server: "https://127.0.0.1:6443", TLSServerName: "kubernetes", CAPEM: ca.CertsPEM(), CertPEM: cert, KeyPEM: keyPEM,
	})
	if err != nil {
		t.Fatal(err)
	}
	rc, err := clientcmd.RESTConfigFromKubeConfig(text)
	if err != nil {
		t.Fatal(err)
	}
	if rc.Host != "https://127.0.0.1:6443" || rc.ServerName != "kubernetes" || !bytes.Equal(rc.CertData, cert) ||
		!bytes.Equal(rc.KeyData, keyPEM) || !bytes.Equal(rc.CAData, ca.CertsPEM()) {
		t.Errorf("client-go reads something else: %v", rc.Host)
	}
}

func FuzzParseCerts(f *testing.F) {
	key, _ := pki.NewKey("x")
	ca, err := pki.NewCA("x", "demo", key, start())
	if err != nil {
		f.Fatal(err)
	}
	f.Add(ca.CertsPEM())
	f.Add([]byte("-----BEGIN CERTIFICATE-----\n"))
	f.Fuzz(func(t *testing.T, text []byte) {
		certs, err := pki.ParseCerts(text)
		if err != nil {
			return
		}
		again, err := pki.ParseCerts(pki.CA{Certs: certs}.CertsPEM())
		if err != nil || len(again) != len(certs) {
			t.Errorf("%d certificates came back as %d: %v", len(certs), len(again), err)
		}
	})
}

func FuzzParseKey(f *testing.F) {
	key, _ := pki.NewKey("x")
	text, err := key.PEM()
	if err != nil {
		f.Fatal(err)
	}
	f.Add(text)
	f.Add(pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: []byte("x")}))
	f.Fuzz(func(t *testing.T, text []byte) {
		key, err := pki.ParseKey("x", text)
		if err != nil {
			return
		}
		if _, err := key.PEM(); err != nil {
			t.Error(err)
		}
	})
}
