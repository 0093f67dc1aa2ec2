// SPDX-License-Identifier: Apache-2.0

package regiontest

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"io"
	"math/big"
	"net"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"time"
)

// StartProxy starts a proxy that reaches the region at endpoint by host names of AWS, with TLS. It returns the variables that
// make a program use the proxy and trust its certificate: the program itself needs to know nothing of either.
func StartProxy(tb testing.TB, endpoint string, hosts ...string) map[string]string {
	tb.Helper()
	target, err := url.Parse(endpoint)
	if err != nil {
		tb.Fatal(err)
	}

	certificate := newCertificate(tb, hosts)
	server := httptest.NewUnstartedServer(&httputil.ReverseProxy{Rewrite: func(p *httputil.ProxyRequest) {
		p.SetURL(target)
		p.Out.Host = p.In.Host
	}})

	server.TLS = &tls.Config{Certificates: []tls.Certificate{certificate}, MinVersion: tls.VersionTLS12}
	server.StartTLS()
	tb.Cleanup(server.Close)

	proxy := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		if req.Method != http.MethodConnect {
			http.Error(w, "this proxy only connects", http.StatusMethodNotAllowed)
			return
		}

		connect(req.Context(), w, server.Listener.Addr().String())
	}))
	tb.Cleanup(proxy.Close)

	path := filepath.Join(tb.TempDir(), "proxy.pem")
	body := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: certificate.Certificate[0]})
	if err := os.WriteFile(path, body, 0o600); err != nil {
		tb.Fatal(err)
	}

	return map[string]string{"HTTPS_PROXY": proxy.URL, "SSL_CERT_FILE": path}
}

// newCertificate returns a certificate for host names that no authority has issued.
func newCertificate(tb testing.TB, hosts []string) tls.Certificate {
	tb.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		tb.Fatal(err)
	}

	now := time.Now() //nolint:forbidigo // the program that checks the certificate has the real time
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1),
		NotBefore:    now.Add(-time.Hour),
		NotAfter:     now.Add(time.Hour),
		DNSNames:     hosts,
	}

	body, err := x509.CreateCertificate(rand.Reader, template, template, &key.PublicKey, key)
	if err != nil {
		tb.Fatal(err)
	}

	return tls.Certificate{Certificate: [][]byte{body}, PrivateKey: key}
}

// connect joins the client of a proxy with a server until one of them ends.
func connect(ctx context.Context, w http.ResponseWriter, address string) {
	server, err := new(net.Dialer).DialContext(ctx, "tcp", address)
	if err != nil {
		http.Error(w, err.Error(), http.StatusBadGateway)
		return
	}
	defer func() { _ = server.Close() }()

	w.WriteHeader(http.StatusOK)
	client, buffered, err := http.NewResponseController(w).Hijack()
	if err != nil {
		return
	}
	defer func() { _ = client.Close() }()

	var wg sync.WaitGroup
	wg.Go(func() {
		_, _ = io.Copy(server, buffered) // what the client sends, until it ends
		_ = server.Close()
	})

	_, _ = io.Copy(client, server)
	_ = client.Close()
	wg.Wait()
}
