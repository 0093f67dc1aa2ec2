// SPDX-License-Identifier: Apache-2.0

package node_test

import (
	"encoding/json"
	"errors"
	"strings"
	"testing"

	"github.com/slipway-k8s/slipway/internal/lib/pki"
	"github.com/slipway-k8s/slipway/internal/machine/node"
)

type testRecord struct {
	Number int    `json:"number"`
	Slot   string `json:"slot"`
}

// TestRecords: a record is read in its own place only, as it was signed, and agents of earlier versions can read it.
func TestRecords(t *testing.T) {
	ca := newCA(t)
	pem := string(ca.CertsPEM())
	want := testRecord{Number: 2, Slot: "a"}
	body, err := node.SignRecord("demo/machine/etcd/x", want, ca.Key())
	if err != nil {
		t.Fatal(err)
	}

	var got, plain testRecord
	if err := node.ReadRecord(body, "demo/machine/etcd/x", pem, &got); err != nil || got != want {
		t.Errorf("read %+v, %v", got, err)
	}

	if err := json.Unmarshal(body, &plain); err != nil || plain != want {
		t.Errorf("an earlier version reads %+v, %v", plain, err)
	}

	forged := strings.Replace(string(body), `"slot": "a"`, `"slot": "b"`, 1)
	if err := node.ReadRecord([]byte(forged), "demo/machine/etcd/x", pem, &got); err != nil || got != want {
		t.Errorf("members outside of the signature are read: %+v, %v", got, err)
	}

	for name, c := range map[string]struct {
		body, key, pem string
		want           error
	}{
		"unsigned":      {`{"number":2}`, "demo/machine/etcd/x", pem, node.ErrUnsigned},
		"another place": {string(body), "demo/machine/etcd/y", pem, pki.ErrSignature},
		"another CA":    {string(body), "demo/machine/etcd/x", string(newCA(t).CertsPEM()), pki.ErrSignature},
		"another text": {
			strings.Replace(string(body), `"signed": "ey`, `"signed": "eY`, 1), "demo/machine/etcd/x", pem, pki.ErrSignature,
		},
	} {
		err := node.ReadRecord([]byte(c.body), c.key, c.pem, &got)
		if !errors.Is(err, c.want) || !node.IsUntrusted(err) {
			t.Errorf("%s: %v, want %v", name, err, c.want)
		}
	}

	for _, broken := range []string{"", "[]", `{"signed":1}`} {
		if err := node.ReadRecord([]byte(broken), "x", pem, &got); err == nil || node.IsUntrusted(err) {
			t.Errorf("%q: %v", broken, err)
		}
	}

	if _, err := node.SignRecord("x", []int{1}, ca.Key()); err == nil {
		t.Error("a list is signed")
	}
}

// FuzzReadRecord: nothing but the output of SignRecord is read, whatever the bytes are.
func FuzzReadRecord(f *testing.F) {
	ca := newCA(f)
	body, err := node.SignRecord("x", testRecord{Number: 2}, ca.Key())
	if err != nil {
		f.Fatal(err)
	}

	f.Add(body)
	f.Add([]byte(`{"signed":"e30=","recordSignature":"MA=="}`))
	f.Fuzz(func(t *testing.T, body []byte) {
		var got testRecord
		if err := node.ReadRecord(body, "x", string(ca.CertsPEM()), &got); err == nil && got.Number != 2 {
			t.Errorf("read %+v of %q", got, body)
		}
	})
}
