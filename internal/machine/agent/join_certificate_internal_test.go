// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"net"
	"net/http"
	"net/netip"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/credentials"

	"github.com/slipway-k8s/slipway/internal/lib/pki"
	"github.com/slipway-k8s/slipway/internal/machine/join"
	"github.com/slipway-k8s/slipway/internal/machine/kube"
	"github.com/slipway-k8s/slipway/internal/machine/node"
)

// TestRequestsShowTheCertificate: a worker that has the certificate of its node shows it to the join endpoint. It shows none that
// the endpoint would not accept, because TLS would end the connection: one that has ended, or of a former authority.
func TestRequestsShowTheCertificate(t *testing.T) {
	const address = "127.77.0.11"
	a := testAgent(t)
	a.Boot.API.Internal = address
	a.Sign = join.Signer{
		Credentials: credentials.NewStaticCredentialsProvider("AKID", "SECRET", ""),
		Region:      "us-east-1",
		Endpoint:    "https://sts.example",
		Now:         time.Now,
	}

	var shown string
	endpoint := &join.Server{CA: a.bundle.CAs[pki.KubernetesCA]}
	handler := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		shown = "none"
		if len(r.TLS.VerifiedChains) > 0 {
			shown = r.TLS.VerifiedChains[0][0].Subject.CommonName
		}

		_, _ = w.Write([]byte(`{"waited":true}`))
	})
	leaf := pki.Leaf{
		CN:     "slipway-join",
		Usages: []pki.Usage{pki.ServerUsage},
		TTL:    time.Hour,
		IPs:    []netip.Addr{netip.MustParseAddr(address)},
	}
	pair := newCertificateSource(a.bundle, pki.KubernetesCA, leaf, time.Now)
	listener, err := new(net.ListenConfig).Listen(t.Context(), "tcp", address+":"+join.Port)
	if err != nil {
		t.Fatal(err)
	}

	server := &http.Server{
		Handler:           handler,
		ReadHeaderTimeout: time.Minute,
		TLSConfig:         joinTLSConfig(pair, endpoint.ClientCAs()),
	}
	go func() { _ = server.ServeTLS(listener, "", "") }()
	t.Cleanup(func() { _ = server.Close() })

	ask := func(what, want string) {
		t.Helper()
		shown = ""
		action := join.LifecycleAction{Hook: node.TerminationHook, Kind: join.LifecycleHeartbeat}
		if _, err := a.newJoinClient().SendLifecycle(t.Context(), action); err != nil || shown != want {
			t.Errorf("%s: the endpoint saw the certificate of %q, want %q: %v", what, shown, want, err)
		}
	}
	write := func(bundle pki.Bundle, at time.Time) {
		t.Helper()
		client, _ := join.NodeLeaves("ip-10-80-0-4", netip.MustParseAddr("10.80.0.4"), NodeTTL)
		key, certificate, err := issueCertificate(bundle, keyPair{ca: pki.KubernetesCA, leaf: client}, at)
		if err != nil {
			t.Fatal(err)
		}

		if err := writePair(a.Root, keyPair{path: kube.PKIDir + "/kubelet-client"}, key, certificate); err != nil {
			t.Fatal(err)
		}
	}

	ask("before it has joined", "none")
	write(a.bundle, time.Now())
	ask("with a certificate", "system:node:ip-10-80-0-4")
	write(a.bundle, time.Now().Add(time.Minute-NodeTTL))
	ask("with a certificate that ends in a minute", "none")
	write(a.bundle, time.Now().Add(-2*NodeTTL))
	ask("with a certificate that has ended", "none")
	write(testAgent(t).bundle, time.Now())
	ask("with a certificate of another authority", "none")
}
