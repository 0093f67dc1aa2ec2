// SPDX-License-Identifier: Apache-2.0

package node_test

import (
	"testing"
	"time"

	"github.com/slipway-k8s/slipway/internal/lib/pki"
	"github.com/slipway-k8s/slipway/internal/machine/node"
)

func newCA(tb testing.TB) pki.CA {
	tb.Helper()
	key, err := pki.NewKey(pki.KubernetesCA)
	if err != nil {
		tb.Fatal(err)
	}
	ca, err := pki.NewCA(pki.KubernetesCA, "demo", key, time.Now())
	if err != nil {
		tb.Fatal(err)
	}
	return ca
}

func TestSiblingURL(t *testing.T) {
	key := node.RevisionsKey("demo", "Worker")
	got, err := node.SiblingURL("s3://bucket/prefix/demo/machine/worker/documents/nodes-a.json", "demo", key)
	if err != nil || got != "s3://bucket/prefix/demo/machine/worker/revisions.json" {
		t.Errorf("got %s, %v", got, err)
	}
	if got, err := node.SiblingURL("https://example.com/nodes.json", "demo", key); err == nil {
		t.Errorf("got %s", got)
	}
}

func FuzzVerifyRevisions(f *testing.F) {
	ca := newCA(f)
	revisions := revise(node.Revisions{}, "a")
	body, err := revisions.Sign(ca.Key())
	if err != nil {
		f.Fatal(err)
	}
	f.Add(body)
	f.Fuzz(func(t *testing.T, body []byte) {
		got, err := node.VerifyRevisions(body, string(ca.CertsPEM()), "demo", "Worker")
		if err == nil && got.Groups["nodes"].Document != "a" {
			t.Errorf("accepted %+v", got)
		}
	})
}
