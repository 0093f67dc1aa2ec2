// SPDX-License-Identifier: Apache-2.0

package clusterstate_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"maps"
	"strconv"
	"strings"
	"testing"
	"time"

	"filippo.io/age"

	"github.com/slipway-k8s/slipway/internal/cluster/clusterstate"
	"github.com/slipway-k8s/slipway/internal/lib/diag"
	"github.com/slipway-k8s/slipway/internal/lib/pki"
	"github.com/slipway-k8s/slipway/internal/lib/pki/pkitest"
	"github.com/slipway-k8s/slipway/internal/lib/store"
)

// signedState is a cluster demo with two groups, whose documents are signed.
type signedState struct {
	*testing.T
	store.Store
	ca     pki.CA
	bodies map[string][]byte
}

func newSignedState(t *testing.T) *signedState {
	t.Helper()
	id, err := age.GenerateX25519Identity()
	if err != nil {
		t.Fatal(err)
	}
	s := &signedState{T: t, Store: store.NewFileStore(t.TempDir()), bodies: map[string][]byte{
		"demo/cluster.yaml": []byte("cluster"), "demo/assets.yaml": []byte("assets"),
		"demo/instancegroups/a.yaml": []byte("a"), "demo/instancegroups/b.yaml": []byte("b"),
	}}
	bundle, err := pki.EnsureStoredBundle(t.Context(), s.Store, store.NewAgeSealer(id), "demo", time.Now())
	if err != nil {
		t.Fatal(err)
	}
	s.ca = bundle.CAs[pki.KubernetesCA]
	for key, body := range s.bodies {
		s.put(key, body)
	}
	s.bodies[bundle.Certs.Key] = bundle.Certs.Body
	if err := s.signer(clusterstate.Signed{}).Finish(t.Context(), clusterstate.HashBodies(s.bodies)); err != nil {
		t.Fatal(err)
	}
	return s
}

func (s *signedState) signer(signed clusterstate.Signed) *clusterstate.Signer {
	return clusterstate.NewSigner(s.Store, "demo", s.ca.Key(), 1000, signed)
}

func (s *signedState) put(key string, body []byte) {
	s.Helper()
	if body == nil {
		if err := s.Delete(s.Context(), key); err != nil {
			s.Fatal(err)
		}
		return
	}
	if _, err := s.Put(s.Context(), key, body); err != nil {
		s.Fatal(err)
	}
}

func (s *signedState) verify() clusterstate.Signed {
	s.Helper()
	signed, err := clusterstate.VerifyDocuments(s.Context(), s.Store, "demo")
	if err != nil || !signed.Exists() {
		s.Fatalf("%+v, %v", signed, err)
	}
	return signed
}

// certsWith returns the certificates with more of the Kubernetes CA.
func (s *signedState) certsWith(more pki.CA) []byte {
	s.Helper()
	var public pki.PublicBundle
	if err := json.Unmarshal(s.bodies["demo/pki/certs.json"], &public); err != nil {
		s.Fatal(err)
	}
	public.CAs[pki.KubernetesCA] += string(more.CertsPEM())
	body, err := json.Marshal(public)
	if err != nil {
		s.Fatal(err)
	}
	return body
}

func TestDocumentsThatNobodySigned(t *testing.T) {
	stranger := pkitest.NewKubernetesCA(t, time.Now())
	for name, change := range map[string]func(s *signedState) map[string][]byte{
		"an edited cluster": func(*signedState) map[string][]byte { return map[string][]byte{"demo/cluster.yaml": []byte("x")} },
		"an edited group": func(*signedState) map[string][]byte {
			return map[string][]byte{"demo/instancegroups/a.yaml": []byte("x")}
		},
		"an added group": func(*signedState) map[string][]byte {
			return map[string][]byte{"demo/instancegroups/c.yaml": []byte("c")}
		},
		"a deleted group": func(*signedState) map[string][]byte { return map[string][]byte{"demo/instancegroups/b.yaml": nil} },
		"other assets":    func(*signedState) map[string][]byte { return map[string][]byte{"demo/assets.yaml": []byte("x")} },
		"no assets":       func(*signedState) map[string][]byte { return map[string][]byte{"demo/assets.yaml": nil} },
		"no certificates": func(*signedState) map[string][]byte { return map[string][]byte{"demo/pki/certs.json": nil} },
		"swapped groups": func(*signedState) map[string][]byte {
			return map[string][]byte{"demo/instancegroups/a.yaml": []byte("b"), "demo/instancegroups/b.yaml": []byte("a")}
		},
		"a broken record": func(*signedState) map[string][]byte { return map[string][]byte{"demo/signature.json": []byte("{")} },
		"an empty record": func(*signedState) map[string][]byte { return map[string][]byte{"demo/signature.json": []byte("{}")} },
		"an added CA": func(s *signedState) map[string][]byte {
			return map[string][]byte{"demo/pki/certs.json": s.certsWith(stranger)}
		},
		"another cluster's": func(s *signedState) map[string][]byte {
			return map[string][]byte{"demo/signature.json": s.sign("other", s.ca.Key(), s.bodies)}
		},
		"an added CA that signs": func(s *signedState) map[string][]byte {
			bodies := maps.Clone(s.bodies)
			bodies["demo/pki/certs.json"] = s.certsWith(stranger)
			return map[string][]byte{
				"demo/pki/certs.json": bodies["demo/pki/certs.json"],
				"demo/signature.json": s.sign("demo", stranger.Key(), bodies),
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			s := newSignedState(t)
			s.verify()
			for key, body := range change(s) {
				s.put(key, body)
			}
			_, err := clusterstate.VerifyDocuments(t.Context(), s.Store, "demo")
			if !errors.Is(err, clusterstate.ErrTampered) || len(diag.Hints(err)) == 0 || !strings.Contains(err.Error(), "demo/") {
				t.Errorf("%v", err)
			}
		})
	}
}

// sign returns a signature of documents.
func (s *signedState) sign(cluster string, key pki.Key, bodies map[string][]byte) []byte {
	s.Helper()
	var objects []store.Object
	for name, body := range bodies {
		objects = append(objects, store.Object{Key: name, Body: body})
	}
	o, err := clusterstate.NewSigner(nil, cluster, key, 1, clusterstate.Signed{}).SignNew(objects)
	if err != nil {
		s.Fatal(err)
	}
	return o.Body
}

// TestInterruptedChanges: a change that is killed after each of its writes leaves documents that are signed, and whoever
// continues can change them again.
func TestInterruptedChanges(t *testing.T) {
	changes := map[string][]byte{
		"demo/instancegroups/a.yaml": []byte("a2"), "demo/instancegroups/b.yaml": nil, "demo/instancegroups/c.yaml": []byte("c"),
	}
	order := []string{"demo/instancegroups/c.yaml", "demo/instancegroups/a.yaml", "demo/instancegroups/b.yaml"}
	for writes := range len(order) + 2 {
		t.Run(strconv.Itoa(writes), func(t *testing.T) {
			s := newSignedState(t)
			before := s.verify()
			signer := s.signer(before)
			sums := clusterstate.HashBodies(changes)
			if err := signer.Begin(t.Context(), sums); err != nil {
				t.Fatal(err)
			}
			for _, key := range order[:min(writes, len(order))] {
				s.put(key, changes[key])
			}
			if writes > len(order) {
				if err := signer.Finish(t.Context(), sums); err != nil {
					t.Fatal(err)
				}
			}
			now := s.verify()
			if now.Revision <= before.Revision {
				t.Errorf("revision %d after %d", now.Revision, before.Revision)
			}

			next := s.signer(now)
			again := map[string][]byte{"demo/instancegroups/a.yaml": []byte("a3")}
			if err := next.Begin(t.Context(), clusterstate.HashBodies(again)); err != nil {
				t.Fatal(err)
			}
			s.put("demo/instancegroups/a.yaml", again["demo/instancegroups/a.yaml"])
			if err := next.Finish(t.Context(), clusterstate.HashBodies(again)); err != nil {
				t.Fatal(err)
			}
			s.verify()
			s.put("demo/instancegroups/a.yaml", changes["demo/instancegroups/a.yaml"])
			if _, err := clusterstate.VerifyDocuments(t.Context(), s.Store, "demo"); !errors.Is(err, clusterstate.ErrTampered) {
				t.Errorf("the former group is still accepted: %v", err)
			}
		})
	}
}

// TestSignerIsConditional: of two changes that began with the same documents, one fails.
func TestSignerIsConditional(t *testing.T) {
	s := newSignedState(t)
	was := s.verify()
	sums := clusterstate.HashBodies(map[string][]byte{"demo/instancegroups/a.yaml": []byte("x")})
	if err := s.signer(was).Begin(t.Context(), sums); err != nil {
		t.Fatal(err)
	}
	if err := s.signer(was).Begin(t.Context(), sums); !errors.Is(err, store.ErrConflict) {
		t.Errorf("%v", err)
	}
}

// TestTrust: an authority that somebody added is refused if the certificates are signed, and left out if they never were.
func TestTrust(t *testing.T) {
	s := newSignedState(t)
	if public, err := clusterstate.LoadTrust(t.Context(), s.Store, "demo"); err != nil || len(public.CAs) != len(pki.CANames()) {
		t.Fatal(public, err)
	}
	s.put("demo/pki/certs.json", s.certsWith(pkitest.NewKubernetesCA(t, time.Now())))
	if _, err := clusterstate.LoadTrust(t.Context(), s.Store, "demo"); !errors.Is(err, clusterstate.ErrTampered) {
		t.Errorf("%v", err)
	}
	s.put("demo/signature.json", nil)
	public, err := clusterstate.LoadTrust(t.Context(), s.Store, "demo")
	if err != nil || !bytes.Equal([]byte(public.CAs[pki.KubernetesCA]), s.ca.Issuer()) {
		t.Errorf("%v, %v", public.CAs[pki.KubernetesCA], err)
	}
	signed, err := clusterstate.VerifyDocuments(t.Context(), s.Store, "demo")
	if err != nil || signed.Exists() {
		t.Errorf("%+v, %v", signed, err)
	}
}

// TestRevisionsOfALostSignature: a signature that is made without the former one is newer than it.
func TestRevisionsOfALostSignature(t *testing.T) {
	s := newSignedState(t)
	former := s.verify()
	s.put("demo/signature.json", nil)
	again := clusterstate.NewSigner(s.Store, "demo", s.ca.Key(), 1001, clusterstate.Signed{})
	if err := again.Finish(t.Context(), former.Documents); err != nil {
		t.Fatal(err)
	}
	if now := s.verify(); now.Revision <= former.Revision {
		t.Errorf("revision %d after %d", now.Revision, former.Revision)
	}
}
