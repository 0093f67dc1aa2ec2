// SPDX-License-Identifier: Apache-2.0

package pki_test

import (
	"context"
	"errors"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/slipway-k8s/slipway/internal/lib/pki"
	"github.com/slipway-k8s/slipway/internal/lib/store"
)

// rotate plans and writes the next step of a rotation.
func rotate(t *testing.T, s store.Store, sealer store.Sealer, want pki.RotationStep) {
	t.Helper()
	r, err := pki.PlanTokenKeyRotation(t.Context(), s, sealer, "demo")
	if err != nil || r.Step != want {
		t.Fatalf("the next step is %q, want %q: %v", r.Step, want, err)
	}
	if err := r.Write(t.Context(), s); err != nil {
		t.Fatal(err)
	}
}

func TestTokenKeyRotation(t *testing.T) {
	s, sealer := stateStore(t)
	first, err := pki.EnsureBundle(t.Context(), s, sealer, "demo", start())
	if err != nil {
		t.Fatal(err)
	}
	// signs returns the bundle, and checks which keys verify tokens: that of the bundle, and n in all.
	signs := func(n int) pki.Bundle {
		t.Helper()
		b, err := pki.LoadBundle(t.Context(), s, sealer, "demo")
		if err != nil {
			t.Fatal(err)
		}
		public, err := pki.LoadPublicBundle(t.Context(), s, "demo")
		if err != nil {
			t.Fatal(err)
		}
		if got := strings.Count(public.ServiceAccountKeys, "BEGIN"); got != n {
			t.Errorf("%d keys verify tokens, want %d", got, n)
		}
		return b
	}
	rotate(t, s, sealer, pki.RotationAdd)
	if b := signs(2); !b.ServiceAccount.Public().Equal(first.ServiceAccount.Public()) {
		t.Error("the new key signs before all machines know it")
	}
	rotate(t, s, sealer, pki.RotationPromote)
	second := signs(2)
	if second.ServiceAccount.Public().Equal(first.ServiceAccount.Public()) {
		t.Error("the old key still signs")
	}
	rotate(t, s, sealer, pki.RotationRemove)
	if b := signs(1); !b.ServiceAccount.Public().Equal(second.ServiceAccount.Public()) {
		t.Error("another key signs than before")
	}
	for name, ca := range signs(1).CAs {
		if !ca.Key().Public().Equal(first.CAs[name].Key().Public()) {
			t.Errorf("%s has changed", name)
		}
	}
	keys, err := s.List(t.Context(), pki.PrivateKeyObjectKey("demo", ""))
	if err != nil || len(keys) != len(pki.KeyNames()) {
		t.Errorf("the store has %v, %v", keys, err)
	}
	rotate(t, s, sealer, pki.RotationAdd) // another one
}

// killed ends the store's life after some changes.
type killed struct {
	store.Store
	left atomic.Int64
}

func (k *killed) change() error {
	if k.left.Add(-1) < 0 {
		return errors.New("killed")
	}
	return nil
}

func (k *killed) Create(ctx context.Context, key string, body []byte) (string, error) {
	if err := k.change(); err != nil {
		return "", err
	}
	return k.Store.Create(ctx, key, body)
}

func (k *killed) Put(ctx context.Context, key string, body []byte) (string, error) {
	if err := k.change(); err != nil {
		return "", err
	}
	return k.Store.Put(ctx, key, body)
}

func (k *killed) Update(ctx context.Context, key string, body []byte, etag string) (string, error) {
	if err := k.change(); err != nil {
		return "", err
	}
	return k.Store.Update(ctx, key, body, etag)
}

func (k *killed) Delete(ctx context.Context, key string) error {
	if err := k.change(); err != nil {
		return err
	}
	return k.Store.Delete(ctx, key)
}

// TestTokenKeyRotationIsKilled: a rotation that is killed at any change continues, never skips a step, and a bundle can always be loaded.
func TestTokenKeyRotationIsKilled(t *testing.T) {
	for _, at := range []int64{0, 1, 2} {
		s, sealer := stateStore(t)
		if _, err := pki.EnsureBundle(t.Context(), s, sealer, "demo", start()); err != nil {
			t.Fatal(err)
		}
		for _, want := range []pki.RotationStep{pki.RotationAdd, pki.RotationPromote, pki.RotationRemove} {
			r, err := pki.PlanTokenKeyRotation(t.Context(), s, sealer, "demo")
			if err != nil || r.Step != want {
				t.Fatalf("killed at %d: the next step is %q, want %q: %v", at, r.Step, want, err)
			}
			k := &killed{Store: s}
			k.left.Store(at)
			failed := r.Write(t.Context(), k)
			if _, err := pki.LoadBundle(t.Context(), s, sealer, "demo"); err != nil {
				t.Fatalf("killed at change %d of %s: %v", at, want, err)
			}
			if failed != nil {
				again, err := pki.PlanTokenKeyRotation(t.Context(), s, sealer, "demo")
				if err != nil {
					t.Fatalf("killed at change %d of %s: %v", at, want, err)
				}
				if again.Step == want {
					rotate(t, s, sealer, want)
				} // else only what is left over was not deleted yet
			}
		}
	}
}

// TestReplacedTokenKeys: keys that do not belong together are not rotated.
func TestReplacedTokenKeys(t *testing.T) {
	s, sealer := stateStore(t)
	if _, err := pki.EnsureBundle(t.Context(), s, sealer, "demo", start()); err != nil {
		t.Fatal(err)
	}
	other, otherSealer := stateStore(t)
	if _, err := pki.EnsureBundle(t.Context(), other, otherSealer, "demo", start()); err != nil {
		t.Fatal(err)
	}
	foreign, err := other.Get(t.Context(), pki.CertsObjectKey("demo"))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := s.Put(t.Context(), foreign.Key, foreign.Body); err != nil {
		t.Fatal(err)
	}
	if _, err := pki.PlanTokenKeyRotation(t.Context(), s, sealer, "demo"); err == nil || !strings.Contains(err.Error(), "none of those that verify tokens") {
		t.Errorf("got %v", err)
	}
}

// TestMachinesGetTheNewTokenKey: the key of machines is replaced if it is one of the cluster's, and no other one is.
func TestMachinesGetTheNewTokenKey(t *testing.T) {
	s, sealer := stateStore(t)
	machine := store.NewFileStore(t.TempDir())
	publish := func() error {
		b, err := pki.EnsureBundle(t.Context(), s, sealer, "demo", start())
		if err != nil {
			t.Fatal(err)
		}
		_, err = pki.PublishMachineKeys(t.Context(), b, machine, sealer)
		return err
	}
	load := func() (pki.Bundle, error) {
		public, err := pki.LoadPublicBundle(t.Context(), s, "demo")
		if err != nil {
			t.Fatal(err)
		}
		return pki.LoadMachineBundle(t.Context(), machine, sealer, "demo", public)
	}
	if err := publish(); err != nil {
		t.Fatal(err)
	}
	for _, step := range []pki.RotationStep{pki.RotationAdd, pki.RotationPromote, pki.RotationRemove} {
		former, _ := machine.Get(t.Context(), pki.MachineKeyObjectKey("demo", pki.ServiceAccountKey))
		rotate(t, s, sealer, step)
		if err := publish(); err != nil {
			t.Fatalf("%s: %v", step, err)
		}
		b, err := load()
		own, ownErr := pki.LoadBundle(t.Context(), s, sealer, "demo")
		if err := errors.Join(err, ownErr); err != nil || !b.ServiceAccount.Public().Equal(own.ServiceAccount.Public()) {
			t.Fatalf("%s: machines have another key: %v", step, err)
		}
		if step == pki.RotationPromote {
			defer func() { // whoever restores the old key in the store of machines, after it was removed
				if _, err := machine.Put(t.Context(), former.Key, former.Body); err != nil {
					t.Fatal(err)
				}
				if _, err := load(); err == nil {
					t.Error("machines take a key that was removed")
				}
				if err := publish(); err == nil || !strings.Contains(err.Error(), "another cluster") {
					t.Errorf("got %v", err)
				}
			}()
		}
	}
}
