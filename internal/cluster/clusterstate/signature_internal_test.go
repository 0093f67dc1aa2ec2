// SPDX-License-Identifier: Apache-2.0

package clusterstate

import (
	"encoding/json"
	"strings"
	"testing"
	"time"

	"github.com/slipway-k8s/slipway/internal/lib/diag"
	"github.com/slipway-k8s/slipway/internal/lib/pki/pkitest"
)

// TestStatementOfALaterVersion: the error says what to do, and not that somebody has tampered.
func TestStatementOfALaterVersion(t *testing.T) {
	ca := pkitest.NewKubernetesCA(t, time.Now())
	body, err := json.Marshal(statement{Version: statementVersion + 1, Cluster: "demo"})
	if err != nil {
		t.Fatal(err)
	}
	signature, err := ca.Key().SignMessage(statementPurpose, body)
	if err != nil {
		t.Fatal(err)
	}
	text, err := json.Marshal(signedStatement{Statement: body, Signature: signature})
	if err != nil {
		t.Fatal(err)
	}
	_, err = parseStatement(text, "demo", ca.Issuer())
	if err == nil || !strings.Contains(err.Error(), "unknown format version 3") || diag.Hints(err)[0] != "upgrade slipway" {
		t.Errorf("%v", err)
	}
}

func FuzzParseStatement(f *testing.F) {
	ca := pkitest.NewKubernetesCA(f, time.Now())
	o, err := encodeSigned(statement{
		Cluster: "demo", Revision: 1, Documents: map[string][]string{"demo/cluster.yaml": {"", hashOf(nil)}},
	}, ca.Key())
	if err != nil {
		f.Fatal(err)
	}
	f.Add(o.Body)
	f.Add([]byte(`{"statement":"e30=","signature":""}`))
	f.Fuzz(func(t *testing.T, body []byte) {
		got, err := parseStatement(body, "demo", ca.Issuer())
		if err != nil {
			return
		}
		if got.Cluster != "demo" || got.Revision != 1 || len(got.Documents) != 1 {
			t.Errorf("nobody signed %+v", got)
		}
	})
}
