// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"crypto/tls"
	"crypto/x509"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"testing"
	"time"

	"github.com/slipway-k8s/slipway/internal/lib/pki"
)

// TestHealthCheckOfJoinEndpoint: AWS's health checks cannot speak TLS 1.3, so the join endpoint also speaks TLS 1.2, but
// only with authenticated encryption.
func TestHealthCheckOfJoinEndpoint(t *testing.T) {
	leaf := pki.Leaf{CN: "slipway-join", Usages: []pki.Usage{pki.ServerUsage}, TTL: time.Hour, IPs: []netip.Addr{netip.MustParseAddr("127.0.0.1")}}
	pair := newCertificateSource(testBundle(t), pki.KubernetesCA, leaf, time.Now)
	server := httptest.NewUnstartedServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))
	server.Listener = tls.NewListener(server.Listener, joinTLSConfig(pair, x509.NewCertPool()))
	server.Config.ErrorLog = slog.NewLogLogger(slog.DiscardHandler, slog.LevelError)
	server.Start()
	t.Cleanup(server.Close)

	for name, row := range map[string]struct {
		max    uint16
		suites []uint16
		want   bool
	}{
		"a load balancer": {tls.VersionTLS12, nil, true},
		"a worker":        {tls.VersionTLS13, nil, true},
		"TLS 1.1":         {tls.VersionTLS11, nil, false},
		"CBC":             {tls.VersionTLS12, []uint16{tls.TLS_ECDHE_ECDSA_WITH_AES_128_CBC_SHA}, false},
	} {
		t.Run(name, func(t *testing.T) {
			client := &http.Client{Transport: &http.Transport{TLSClientConfig: &tls.Config{
				InsecureSkipVerify: true, MinVersion: tls.VersionTLS10, MaxVersion: row.max, CipherSuites: row.suites,
			}}}
			t.Cleanup(client.CloseIdleConnections)
			req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "https://"+server.Listener.Addr().String(), http.NoBody)
			if err != nil {
				t.Fatal(err)
			}
			resp, err := client.Do(req)
			if err == nil {
				resp.Body.Close()
			}
			if (err == nil) != row.want {
				t.Errorf("handshake: %v, want success %v", err, row.want)
			}
		})
	}
}
