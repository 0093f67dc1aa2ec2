// SPDX-License-Identifier: Apache-2.0

package join_test

import (
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"testing"
	"time"
)

// TestNodesHaveTheirOwnLimits: who shows the certificate of a node is limited by its instance, and not by the address, which all
// callers behind a node of the load balancer share. Everybody else is limited by the address.
func TestNodesHaveTheirOwnLimits(t *testing.T) {
	node := func(organizations ...string) pkix.Name {
		return pkix.Name{CommonName: "system:node:ip-10-80-16-4", Organization: append([]string{"system:nodes"}, organizations...)}
	}
	for name, c := range map[string]struct {
		subject pkix.Name
		age     time.Duration
		address string
		want    int // requests of 80
	}{
		"a node":                        {subject: node("slipway:instance:i-1"), want: 20},
		"a node, from another address":  {subject: node("slipway:instance:i-1"), address: "10.80.0.%d:1", want: 20},
		"no certificate":                {want: 0},
		"from other addresses":          {address: "10.80.0.%d:1", want: 30},
		"from loopback addresses":       {address: "127.0.0.%d:1", want: 20},
		"a certificate that has ended":  {subject: node("slipway:instance:i-1"), age: 2 * time.Hour, want: 0},
		"a node without an instance":    {subject: node(), want: 0},
		"a certificate of no node":      {subject: pkix.Name{CommonName: "kubernetes-admin", Organization: []string{"slipway:instance:i-1"}}, want: 0},
		"an instance without a name":    {subject: node("slipway:instance:"), want: 0},
		"the certificate of kube-proxy": {subject: pkix.Name{CommonName: "system:kube-proxy"}, want: 0},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			at := time.Now()
			w.server.Now = func() time.Time { return at }
			csr := newCSR(t)
			proof, err := w.signer().CreateProof(t.Context(), []byte(csr))
			if err != nil {
				t.Fatal(err)
			}
			post := func(address string, subject pkix.Name, age time.Duration) int {
				body := `{"csr":` + strconv.Quote(csr) + `,"proof":` + strconv.Quote(proof) + `}`
				req := httptest.NewRequest(http.MethodPost, "/v1/node-certificate", strings.NewReader(body))
				req.RemoteAddr = address
				if subject.CommonName != "" {
					leaf := &x509.Certificate{Subject: subject, NotAfter: at.Add(time.Hour - age)}
					req.TLS = &tls.ConnectionState{VerifiedChains: [][]*x509.Certificate{{leaf}}}
				}
				rec := httptest.NewRecorder()
				w.server.ServeHTTP(rec, req)
				return rec.Code
			}
			const balancer = "10.80.1.1:1"
			for range 25 {
				post(balancer, pkix.Name{}, 0)
			}
			got := 0
			for i := range 80 {
				address := balancer
				if c.address != "" {
					address = fmt.Sprintf(c.address, i)
				}
				if post(address, c.subject, c.age) == http.StatusOK {
					got++
				}
			}
			if got != c.want {
				t.Errorf("%d requests were answered, want %d", got, c.want)
			}
			if post(balancer, node("slipway:instance:i-2"), 0) != http.StatusOK {
				t.Error("another node is blocked")
			}
		})
	}
}
