// SPDX-License-Identifier: Apache-2.0

package attack_test

import (
	"crypto/tls"
	"crypto/x509"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/slipway-k8s/slipway/internal/machine/join"
	"github.com/slipway-k8s/slipway/internal/machine/node"
)

// serve serves the endpoint over TLS as the agent does. All its callers have one address, as those of a node of the load balancer.
func (j *joinLab) serve() *httptest.Server {
	j.Helper()
	front := httptest.NewUnstartedServer(j.server)
	front.TLS = &tls.Config{ClientAuth: tls.VerifyClientCertIfGiven, ClientCAs: j.server.ClientCAs()}
	front.StartTLS()
	j.Cleanup(front.Close)

	return front
}

// client returns a client of the endpoint that proves to be c; with the certificate of a node, if there is one.
func (j *joinLab) client(front *httptest.Server, c caller, certificates ...tls.Certificate) join.Client {
	j.Helper()
	roots := x509.NewCertPool()
	roots.AddCert(front.Certificate())
	cfg := j.config(c)

	return join.Client{
		URL:  front.URL,
		Sign: join.Signer{Credentials: cfg.Credentials, Region: cfg.Region, Endpoint: j.region.URL, Now: time.Now},
		HTTP: &http.Client{Transport: &http.Transport{
			DisableKeepAlives: true,
			TLSClientConfig:   &tls.Config{RootCAs: roots, Certificates: certificates, MinVersion: tls.VersionTLS13},
		}},
	}
}

// flood sends well-formed requests that nobody has signed, and returns how many of them were limited.
func (j *joinLab) flood(front *httptest.Server) (limited int) {
	j.Helper()
	csr := j.newRequest("")
	proof := j.prove(caller{"AKIDOFNOBODY", "secret", ""}, csr)
	client := j.client(front, caller{}).HTTP
	ask := func(path, body string) {
		answer, err := client.Post(front.URL+path, "application/json", strings.NewReader(body))
		j.check(err)
		_ = answer.Body.Close()
		if answer.StatusCode == http.StatusTooManyRequests {
			limited++
		}
	}

	csr = strings.ReplaceAll(csr, "\n", `\n`)
	for range 60 {
		ask("/v1/node-certificate", `{"csr":"`+csr+`","proof":"`+proof+`"}`)
		ask("/v1/lifecycle", `{"hook":"`+node.TerminationHook+`","kind":"COMPLETE","proof":"`+proof+`"}`)
	}

	return limited
}

// TestFloodsBehindTheBalancerBlockNoNode: a pod sends many unsigned requests through the load balancer, which hides the addresses of
// all callers. A worker that shows the certificate of its node renews it, ends its drain and signals. Seen to fail, since all
// callers of one address shared a limit.
func TestFloodsBehindTheBalancerBlockNoNode(t *testing.T) {
	j := newJoinLab(t)
	front := j.serve()
	worker := j.assume(workerRole)
	got, err := j.client(front, worker).Join(t.Context())
	j.check(err)
	certificate, err := tls.X509KeyPair([]byte(got.Client), got.Key)
	j.check(err)

	if j.flood(front) == 0 {
		t.Fatal("the flood had no limit")
	}

	client := j.client(front, worker, certificate)
	if _, err := client.Join(t.Context()); err != nil {
		t.Errorf("the worker cannot renew its certificate: %v", err)
	}

	drained := join.LifecycleAction{Hook: node.TerminationHook, Kind: join.LifecycleComplete}
	if _, err := client.SendLifecycle(t.Context(), drained); err != nil || len(j.actions) != 1 {
		t.Errorf("the worker cannot end its drain: %v", err)
	}

	if err := client.SendSignal(t.Context(), join.SignalSuccess); err != nil || len(j.passed) != 1 {
		t.Errorf("the worker cannot signal: %v", err)
	}

	// The certificate is no way around the limits: a proof is asked for as before, and each instance has a limit of its own.
	stranger := j.client(front, j.assume("stranger"), certificate)
	limited := false
	for range 40 {
		_, err := stranger.Join(t.Context())
		if err == nil || !strings.Contains(err.Error(), "worker role") && !strings.Contains(err.Error(), "429") {
			t.Fatalf("a stranger with the certificate of a node: %v", err)
		}

		limited = limited || strings.Contains(err.Error(), "429")
	}

	if !limited {
		t.Error("requests with a certificate have no limit")
	}
}
