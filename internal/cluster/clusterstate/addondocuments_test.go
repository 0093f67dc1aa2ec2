// SPDX-License-Identifier: Apache-2.0

package clusterstate_test

import (
	"errors"
	"testing"

	"github.com/slipway-k8s/slipway/internal/cluster/clusterstate"
	"github.com/slipway-k8s/slipway/internal/lib/store"
)

const addonKey = "demo/addons/settings.yaml"

// verifyAddon checks a document of an add-on with a body, and reports whether it is signed.
func (s *signedState) verifyAddon(body string) bool {
	s.Helper()
	_, err := clusterstate.VerifyObject(s.Context(), s.Store, "demo", store.Object{Key: addonKey, Body: []byte(body)})
	if err != nil && !errors.Is(err, clusterstate.ErrTampered) {
		s.Fatal(err)
	}

	return err == nil
}

// TestAddonDocumentsStaySigned: changes of manifests keep what is signed about add-ons, whatever their documents are
// meanwhile, and a change that was killed half-way leaves both versions signed.
func TestAddonDocumentsStaySigned(t *testing.T) {
	s := newSignedState(t)
	if s.verifyAddon("one") {
		t.Error("a document that nobody has signed is accepted")
	}

	change := func(key, body string, kill bool) {
		t.Helper()
		sums := clusterstate.HashBodies(map[string][]byte{key: []byte(body)})
		if body == "" {
			sums[key] = ""
		}

		signer := s.signer(s.verify())
		if err := signer.Begin(t.Context(), sums); err != nil {
			t.Fatal(err)
		}

		if body == "" {
			s.put(key, nil)
		} else {
			s.put(key, []byte(body))
		}

		if kill {
			return
		}

		if err := signer.Finish(t.Context(), sums); err != nil {
			t.Fatal(err)
		}
	}
	accepted := func(when string, want ...string) {
		t.Helper()
		for _, body := range []string{"one", "two", "three"} {
			isWanted := len(want) > 0 && (body == want[0] || body == want[len(want)-1])
			if got := s.verifyAddon(body); got != isWanted {
				t.Errorf("%s: %q is accepted: %v", when, body, got)
			}
		}
	}

	change(addonKey, "one", false)
	accepted("after it was signed", "one")
	s.put(addonKey, []byte("of a stranger"))
	change("demo/instancegroups/a.yaml", "a2", false)
	accepted("after a change of a group", "one")

	change(addonKey, "two", true)
	accepted("after a kill", "one", "two")
	change("demo/instancegroups/a.yaml", "a3", true)
	change("demo/instancegroups/a.yaml", "a4", false)
	accepted("after a kill and changes of a group", "one", "two")

	change(addonKey, "three", false)
	accepted("after the next change", "three")
	change(addonKey, "", false)
	accepted("after its deletion")
	s.verify()
}

// TestHashAllDocuments: what an operator reviews and signs includes the documents of add-ons, and a plan does not.
func TestHashAllDocuments(t *testing.T) {
	s := newSignedState(t)
	s.put(addonKey, []byte("one"))
	s.put("demo/addons/secrets/registry", []byte("sealed"))
	documents, err := clusterstate.HashDocuments(t.Context(), s.Store, "demo")
	if err != nil {
		t.Fatal(err)
	}

	all, err := clusterstate.HashAllDocuments(t.Context(), s.Store, "demo")
	if err != nil {
		t.Fatal(err)
	}

	if documents[addonKey] != "" || all[addonKey] == "" || len(all) != len(documents)+2 {
		t.Errorf("a plan has %v, a signature %v", documents, all)
	}

	if err := s.signer(s.verify()).Finish(t.Context(), all); err != nil {
		t.Fatal(err)
	}

	if !s.verifyAddon("one") {
		t.Error("what was signed is not accepted")
	}
}
