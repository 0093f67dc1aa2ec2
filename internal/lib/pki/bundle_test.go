// SPDX-License-Identifier: Apache-2.0

package pki_test

import (
	"bytes"
	"context"
	"errors"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"filippo.io/age"

	"github.com/slipway-k8s/slipway/internal/lib/pki"
	"github.com/slipway-k8s/slipway/internal/lib/store"
)

func stateStore(t *testing.T) (store.Store, store.Sealer) {
	t.Helper()
	id, err := age.GenerateX25519Identity()
	if err != nil {
		t.Fatal(err)
	}
	return store.NewFileStore(t.TempDir()), store.NewAgeSealer(id)
}

func TestEnsureIsIdempotentAndSealed(t *testing.T) {
	s, sealer := stateStore(t)
	first, err := pki.EnsureBundle(t.Context(), s, sealer, "demo", start())
	if err != nil {
		t.Fatal(err)
	}
	again, err := pki.EnsureBundle(t.Context(), s, sealer, "demo", start().Add(time.Hour))
	if err != nil {
		t.Fatal(err)
	}
	sameBundle(t, first, again)
	loaded, err := pki.LoadBundle(t.Context(), s, sealer, "demo")
	if err != nil {
		t.Fatal(err)
	}
	sameBundle(t, first, loaded)
	keys, err := s.List(t.Context(), "")
	if err != nil {
		t.Fatal(err)
	}
	if len(keys) != 1+len(pki.KeyNames()) {
		t.Errorf("the store contains %v", keys)
	}
	for _, key := range keys {
		o, err := s.Get(t.Context(), key)
		if err != nil || bytes.Contains(o.Body, []byte("PRIVATE")) {
			t.Errorf("%s is not sealed (%v)", key, err)
		}
	}
	// A key moved to another name or cluster must not open.
	o, _ := s.Get(t.Context(), pki.PrivateKeyObjectKey("demo", pki.EtcdPeerCA))
	if _, err := s.Put(t.Context(), pki.PrivateKeyObjectKey("demo", pki.KubernetesCA), o.Body); err != nil {
		t.Fatal(err)
	}
	if _, err := pki.OpenCA(t.Context(), s, sealer, "demo", pki.KubernetesCA); !errors.Is(err, store.ErrDecryption) {
		t.Errorf("another CA's key opened in its place: %v", err)
	}
}

func sameBundle(t *testing.T, a, b pki.Bundle) {
	t.Helper()
	for name, ca := range a.CAs {
		if !bytes.Equal(ca.CertsPEM(), b.CAs[name].CertsPEM()) || !ca.Key().Public().Equal(b.CAs[name].Key().Public()) {
			t.Errorf("%s differs", name)
		}
	}
	if !a.ServiceAccount.Public().Equal(b.ServiceAccount.Public()) || !a.Encryption.Public().Equal(b.Encryption.Public()) {
		t.Error("a key differs")
	}
}

// failing ends the store's life after some writes, as a killed process does.
type failing struct {
	store.Store
	left atomic.Int64
}

func newFailing(s store.Store, left int) *failing {
	f := &failing{Store: s}
	f.left.Store(int64(left))
	return f
}

func (f *failing) Create(ctx context.Context, key string, body []byte) (string, error) {
	if f.left.Add(-1) < 0 {
		return "", errors.New("killed")
	}
	return f.Store.Create(ctx, key, body)
}

func TestEnsureAfterBeingKilledAnywhere(t *testing.T) {
	for left := range 1 + len(pki.KeyNames()) {
		s, sealer := stateStore(t)
		if _, err := pki.EnsureBundle(t.Context(), newFailing(s, left), sealer, "demo", start()); err == nil {
			t.Fatalf("was not killed after %d writes", left)
		}
		b, err := pki.EnsureBundle(t.Context(), s, sealer, "demo", start())
		if err != nil {
			t.Fatalf("after %d writes: %v", left, err)
		}
		loaded, err := pki.LoadBundle(t.Context(), s, sealer, "demo")
		if err != nil {
			t.Fatal(err)
		}
		sameBundle(t, b, loaded)
	}
}

func TestEnsureAtOnce(t *testing.T) {
	s, sealer := stateStore(t)
	bundles := make([]pki.Bundle, 6)
	var wg sync.WaitGroup
	for i := range bundles {
		wg.Go(func() {
			var err error
			if bundles[i], err = pki.EnsureBundle(t.Context(), s, sealer, "demo", start()); err != nil {
				t.Error(err)
			}
		})
	}
	wg.Wait()
	for _, b := range bundles[1:] {
		sameBundle(t, bundles[0], b)
	}
}

func TestPublish(t *testing.T) {
	s, sealer := stateStore(t)
	machine, machineSealer := stateStore(t)
	b, err := pki.EnsureBundle(t.Context(), s, sealer, "demo", start())
	if err != nil {
		t.Fatal(err)
	}
	missing, err := pki.ListUnpublishedKeys(t.Context(), machine, "demo")
	if err != nil || len(missing) != len(pki.KeyNames()) {
		t.Errorf("unpublished: %v (%v)", missing, err)
	}
	wrote, err := pki.PublishMachineKeys(t.Context(), b, machine, machineSealer)
	if err != nil || len(wrote) != len(pki.KeyNames()) {
		t.Fatalf("wrote %v (%v)", wrote, err)
	}
	if wrote, err = pki.PublishMachineKeys(t.Context(), b, machine, machineSealer); err != nil || len(wrote) != 0 {
		t.Errorf("a second time it wrote %v (%v)", wrote, err)
	}
	if missing, err = pki.ListUnpublishedKeys(t.Context(), machine, "demo"); err != nil || len(missing) != 0 {
		t.Errorf("unpublished: %v (%v)", missing, err)
	}
	public, err := b.PublicPart()
	if err != nil {
		t.Fatal(err)
	}
	got, err := pki.LoadMachineBundle(t.Context(), machine, machineSealer, "demo", public)
	if err != nil {
		t.Fatal(err)
	}
	sameBundle(t, b, got)
	if _, err := machine.Put(t.Context(), pki.MachineKeyObjectKey("demo", pki.KubernetesCA), []byte("junk")); err != nil {
		t.Fatal(err)
	}
	if wrote, err = pki.PublishMachineKeys(t.Context(), b, machine, machineSealer); err != nil || len(wrote) != 1 {
		t.Errorf("a damaged secret was not replaced: %v (%v)", wrote, err)
	}
	other, err := pki.EnsureBundle(t.Context(), store.NewFileStore(t.TempDir()), sealer, "demo", start())
	if err != nil {
		t.Fatal(err)
	}
	if wrote, err = pki.PublishMachineKeys(t.Context(), other, machine, machineSealer); err == nil || len(wrote) != 0 {
		t.Errorf("the keys of another cluster of this name were overwritten: %v", wrote)
	}
	if got, err = pki.LoadMachineBundle(t.Context(), machine, machineSealer, "demo", public); err != nil {
		t.Fatal(err)
	}
	sameBundle(t, b, got)
}

// publication is a bundle, what everybody may know of it, and a machine store with its sealed keys.
type publication struct {
	bundle  pki.Bundle
	public  pki.PublicBundle
	machine store.Store
	sealer  store.Sealer
}

func publishKeys(t *testing.T) publication {
	t.Helper()
	state, sealer := stateStore(t)
	machine, machineSealer := stateStore(t)
	b, err := pki.EnsureBundle(t.Context(), state, sealer, "demo", start())
	if err != nil {
		t.Fatal(err)
	}
	if _, err := pki.PublishMachineKeys(t.Context(), b, machine, machineSealer); err != nil {
		t.Fatal(err)
	}
	public, err := b.PublicPart()
	if err != nil {
		t.Fatal(err)
	}
	return publication{b, public, machine, machineSealer}
}

// TestSealedKeysKeepTheirNames: whoever can write to the machine store, and seal nothing, exchanges two sealed keys. Machines
// then signed tokens with the key that encrypts Secrets; this was seen to succeed. Keys without a name, of an older
// slipway, were accepted for ever: they are refused, and get a name when they are published again.
func TestSealedKeysKeepTheirNames(t *testing.T) {
	p := publishKeys(t)
	b, machine, machineSealer := p.bundle, p.machine, p.sealer
	put := func(name string, body []byte) {
		t.Helper()
		if _, err := machine.Put(t.Context(), pki.MachineKeyObjectKey("demo", name), body); err != nil {
			t.Fatal(err)
		}
	}
	encryption, err := machine.Get(t.Context(), pki.MachineKeyObjectKey("demo", pki.EncryptionKey))
	if err != nil {
		t.Fatal(err)
	}
	put(pki.ServiceAccountKey, encryption.Body)
	if _, err := pki.LoadMachineBundle(t.Context(), machine, machineSealer, "demo", p.public); err == nil || !strings.Contains(err.Error(), "somebody has exchanged the objects") {
		t.Errorf("an exchanged key: %v", err)
	}

	text, err := b.ServiceAccount.PEM()
	if err != nil {
		t.Fatal(err)
	}
	unnamed, err := machineSealer.Seal(t.Context(), text, pki.MachineKeyContext("demo"))
	if err != nil {
		t.Fatal(err)
	}
	put(pki.ServiceAccountKey, unnamed)
	if _, err := pki.LoadMachineBundle(t.Context(), machine, machineSealer, "demo", p.public); err == nil || !strings.Contains(err.Error(), "sealed without its name") {
		t.Errorf("a key of an older slipway: %v", err)
	}
	if wrote, err := pki.PublishMachineKeys(t.Context(), b, machine, machineSealer); err != nil || len(wrote) != 1 {
		t.Errorf("the key without a name was not written again: %v (%v)", wrote, err)
	}
	if got, err := pki.LoadMachineBundle(t.Context(), machine, machineSealer, "demo", p.public); err != nil {
		t.Errorf("a key that got a name: %v", err)
	} else {
		sameBundle(t, b, got)
	}
}

// TestFormerKeys: keys of other clusters are written once, are sealed to the cluster, and are no part of its own bundle.
func TestFormerKeys(t *testing.T) {
	machine, sealer := stateStore(t)
	if keys, err := pki.LoadFormerKeys(t.Context(), machine, sealer, "demo"); err != nil || len(keys) != 0 {
		t.Fatalf("without a restoration: %v, %v", keys, err)
	}
	var want [][]byte
	for range 2 {
		key, err := pki.NewKey(pki.EncryptionKey)
		if err != nil {
			t.Fatal(err)
		}
		for range 2 {
			if err := pki.PublishFormerKey(t.Context(), machine, sealer, "demo", key); err != nil {
				t.Fatal(err)
			}
		}
		text, err := key.PEM()
		if err != nil {
			t.Fatal(err)
		}
		want = append(want, text)
	}
	keys, err := pki.LoadFormerKeys(t.Context(), machine, sealer, "demo")
	if err != nil || len(keys) != 2 {
		t.Fatalf("%d keys, %v", len(keys), err)
	}
	for _, key := range keys {
		if text, err := key.PEM(); err != nil || !slices.ContainsFunc(want, func(w []byte) bool { return bytes.Equal(w, text) }) {
			t.Errorf("another key came back: %v", err)
		}
	}
	objects, err := machine.List(t.Context(), "")
	if err != nil {
		t.Fatal(err)
	}
	for _, object := range objects {
		o, err := machine.Get(t.Context(), object)
		if err != nil || bytes.Contains(o.Body, []byte("PRIVATE KEY")) || !strings.HasPrefix(object, "demo/machine/etcd/") {
			t.Errorf("%s is plain text, or machines cannot list it: %v", object, err)
		}
	}
}

// TestKeysTellThatStateIsSigned: the sealed key of the Kubernetes CA says that its cluster had a signature from the
// beginning. The key itself, and keys of earlier versions, do not.
func TestKeysTellThatStateIsSigned(t *testing.T) {
	s, sealer := stateStore(t)
	if _, err := pki.EnsureBundle(t.Context(), s, sealer, "demo", start()); err != nil {
		t.Fatal(err)
	}
	b, err := pki.LoadBundle(t.Context(), s, sealer, "demo")
	if err != nil {
		t.Fatal(err)
	}
	ca := b.CAs[pki.KubernetesCA].Key()
	if !ca.SignsState() || b.ServiceAccount.SignsState() {
		t.Errorf("%t, %t", ca.SignsState(), b.ServiceAccount.SignsState())
	}
	text, err := ca.PEM()
	if err != nil || !bytes.HasPrefix(text, []byte("-----BEGIN PRIVATE KEY-----")) {
		t.Errorf("%v", err)
	}
	if old, err := pki.ParseKey(pki.KubernetesCA, text); err != nil || old.SignsState() {
		t.Errorf("%v, %v", old.SignsState(), err)
	}
}

// TestExchangedKeys: the keys of machines are sealed to their cluster. Somebody who can write to the store cannot put one of
// them, or a key of a restored backup, in the place of another. Seen to succeed for the keys that have no certificate.
func TestExchangedKeys(t *testing.T) {
	p := publishKeys(t)
	b, machine, machineSealer := p.bundle, p.machine, p.sealer
	former, err := pki.NewKey(pki.EncryptionKey)
	if err != nil {
		t.Fatal(err)
	}
	if err := pki.PublishFormerKey(t.Context(), machine, machineSealer, "demo", former); err != nil {
		t.Fatal(err)
	}
	others, err := machine.List(t.Context(), "demo/machine/")
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range pki.KeyNames() {
		object := pki.MachineKeyObjectKey("demo", name)
		own, err := machine.Get(t.Context(), object)
		if err != nil {
			t.Fatal(err)
		}
		for _, other := range others {
			if other == object {
				continue
			}
			o, err := machine.Get(t.Context(), other)
			if err != nil {
				t.Fatal(err)
			}
			if _, err := machine.Put(t.Context(), object, o.Body); err != nil {
				t.Fatal(err)
			}
			if _, err := pki.LoadMachineBundle(t.Context(), machine, machineSealer, "demo", p.public); err == nil {
				t.Errorf("%s is accepted in the place of %s", other, object)
			}
		}
		if _, err := machine.Put(t.Context(), object, own.Body); err != nil {
			t.Fatal(err)
		}
	}
	if got, err := pki.LoadMachineBundle(t.Context(), machine, machineSealer, "demo", p.public); err != nil {
		t.Fatal(err)
	} else {
		sameBundle(t, b, got)
	}
}
