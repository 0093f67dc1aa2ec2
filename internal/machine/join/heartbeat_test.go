// SPDX-License-Identifier: Apache-2.0

package join_test

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"maps"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"testing"
	"time"

	"github.com/slipway-k8s/slipway/internal/lib/pki"
	"github.com/slipway-k8s/slipway/internal/machine/join"
)

// TestHeartbeat: only the holder of a node's certificate is heard, as the node that the certificate names.
func TestHeartbeat(t *testing.T) {
	w := newWorld(t)
	now := time.Now()
	w.server.Now = func() time.Time { return now }
	heard := &join.Heartbeats{}
	w.server.Heartbeats = heard
	front := httptest.NewUnstartedServer(w.server)
	front.TLS = &tls.Config{ClientAuth: tls.VerifyClientCertIfGiven, ClientCAs: w.server.ClientCAs()}
	front.StartTLS()
	t.Cleanup(front.Close)
	node, _ := join.NodeLeaves("ip-10-80-16-4", netip.MustParseAddr("10.80.16.4"), time.Hour)
	admin := pki.Leaf{CN: "system:node:ip-10-80-16-9", Orgs: []string{"slipway:admins"}, Usages: []pki.Usage{pki.ClientUsage}, TTL: time.Hour}
	nameless := node
	nameless.CN = "system:node:"
	for name, leaf := range map[string]*pki.Leaf{"no certificate": nil, "of no node": &admin, "without a name": &nameless} {
		client := join.Client{URL: front.URL, HTTP: trustingClient(t, front, w.ca, leaf)}
		if err := client.SendHeartbeat(t.Context()); err == nil || len(heard.Seconds(now)) > 0 {
			t.Errorf("%s: %v, heard %v", name, err, heard.Seconds(now))
		}
	}
	client := join.Client{URL: front.URL, HTTP: trustingClient(t, front, w.ca, &node)}
	if err := client.SendHeartbeat(t.Context()); err != nil {
		t.Fatal(err)
	}
	if got := heard.Seconds(now.Add(7 * time.Second)); !maps.Equal(got, map[string]int{"ip-10-80-16-4": 7}) {
		t.Errorf("heard %v", got)
	}
	if got := heard.Seconds(now.Add(16 * time.Minute)); len(got) > 0 {
		t.Errorf("still remembered: %v", got)
	}
	w.server.Heartbeats = nil
	if err := client.SendHeartbeat(t.Context()); !errors.Is(err, join.ErrNoHeartbeats) {
		t.Errorf("from an endpoint that takes none: %v", err)
	}
}

// trustingClient returns a client that trusts front and has a certificate of ca for leaf.
func trustingClient(t *testing.T, front *httptest.Server, ca pki.CA, leaf *pki.Leaf) *http.Client {
	t.Helper()
	roots := x509.NewCertPool()
	roots.AddCert(front.Certificate())
	conf := &tls.Config{RootCAs: roots, MinVersion: tls.VersionTLS13}
	if leaf != nil {
		key, cert := newPair(t, ca, *leaf)
		pair, err := tls.X509KeyPair(cert, key)
		if err != nil {
			t.Fatal(err)
		}
		conf.Certificates = []tls.Certificate{pair}
	}
	transport := &http.Transport{TLSClientConfig: conf}
	t.Cleanup(transport.CloseIdleConnections)
	return &http.Client{Transport: transport}
}

func newPair(t *testing.T, ca pki.CA, leaf pki.Leaf) (key, cert []byte) {
	t.Helper()
	private, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	if cert, err = pki.IssueLeaf(ca, leaf, private.Public(), time.Now()); err != nil {
		t.Fatal(err)
	}
	der, err := x509.MarshalPKCS8PrivateKey(private)
	if err != nil {
		t.Fatal(err)
	}
	return pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: der}), cert
}
