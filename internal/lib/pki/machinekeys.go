// SPDX-License-Identifier: Apache-2.0

package pki

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"

	"github.com/slipway-k8s/slipway/internal/lib/diag"
	"github.com/slipway-k8s/slipway/internal/lib/store"
)

// PublishMachineKeys copies the private keys of the bundle to the machine store, sealed to the
// cluster, and returns the object keys that it wrote. It skips keys that are already published, so
// that a second apply writes nothing. It returns an error with a hint if the store contains another
// key, since a running cluster of the same name from another state may boot with it.
func PublishMachineKeys(
	ctx context.Context,
	b Bundle,
	machine store.Store,
	sealer store.Sealer,
) ([]string, error) {
	keys := []Key{b.ServiceAccount, b.Encryption}
	for _, name := range CANames() {
		keys = append(keys, b.CAs[name].key)
	}

	have, err := machine.List(ctx, MachineKeyObjectKey(b.Cluster, ""))
	if err != nil {
		return nil, err
	}

	missing, err := findUnpublished(keys, have, b.Cluster, func(sec machineKey) (bool, error) {
		sec.mayFollow = b.verifiesTokens

		return isMachineKeyPublished(ctx, machine, sealer, sec)
	})
	if err != nil || len(missing) == 0 {
		return nil, err
	}

	return writeMachineKeys(ctx, machine, sealer, b.Cluster, missing)
}

// findUnpublished returns those of keys that the machine store lacks, or that it has in a form that cannot be
// decrypted. have are the objects of the machine store; isPublished compares a key with its object.
func findUnpublished(
	keys []Key,
	have []string,
	cluster string,
	isPublished func(machineKey) (bool, error),
) ([]machineKey, error) {
	missing := make([]machineKey, len(keys))
	errs := make([]error, len(keys))
	var wg sync.WaitGroup

	for i, key := range keys {
		wg.Go(func() {
			text, err := key.PEM()
			sec := machineKey{cluster: cluster, name: key.name, keyPEM: text}
			sec.exists = slices.Contains(have, MachineKeyObjectKey(cluster, key.name))
			same := false
			if err == nil && sec.exists {
				same, err = isPublished(sec)
			}

			errs[i] = err
			if !same {
				missing[i] = sec
			}
		})
	}

	wg.Wait()
	missing = slices.DeleteFunc(missing, func(sec machineKey) bool { return sec.name == "" })

	return missing, errors.Join(errs...)
}

// writeMachineKeys seals and writes keys, and returns the object keys that it wrote.
func writeMachineKeys(
	ctx context.Context,
	machine store.Store,
	sealer store.Sealer,
	cluster string,
	keys []machineKey,
) ([]string, error) {
	texts := make([][]byte, len(keys))
	for i, sec := range keys {
		texts[i] = withName(sec.name, sec.keyPEM)
	}

	sealed, err := store.SealAll(ctx, sealer, texts, MachineKeyContext(cluster))
	for _, text := range texts {
		clear(text)
	}

	if err != nil {
		return nil, fmt.Errorf("seal the keys of machines: %w", err)
	}

	wrote := make([]string, len(keys))
	errs := make([]error, len(keys))
	var wg sync.WaitGroup

	for i, sec := range keys {
		wg.Go(func() {
			objectKey := MachineKeyObjectKey(cluster, sec.name)
			if sec.exists {
				_, errs[i] = machine.Put(ctx, objectKey, sealed[i])
			} else { // on a conflict, the next run compares the keys
				_, errs[i] = machine.Create(ctx, objectKey, sealed[i])
			}

			if errs[i] == nil {
				wrote[i] = objectKey
			}
		})
	}

	wg.Wait()
	wrote = slices.DeleteFunc(wrote, func(key string) bool { return key == "" })

	return wrote, errors.Join(errs...)
}

// ListUnpublishedKeys returns the object keys that PublishMachineKeys would create in the machine
// store. It decrypts nothing.
func ListUnpublishedKeys(ctx context.Context, machine store.Store, cluster string) ([]string, error) {
	have, err := machine.List(ctx, MachineKeyObjectKey(cluster, ""))
	if err != nil {
		return nil, err
	}

	seen := map[string]bool{}
	for _, key := range have {
		seen[key] = true
	}

	var out []string

	for _, name := range KeyNames() {
		if key := MachineKeyObjectKey(cluster, name); !seen[key] {
			out = append(out, key)
		}
	}

	return out, nil
}

// machineKey is a private key to publish to the machine store.
type machineKey struct {
	cluster, name string
	keyPEM        []byte
	exists        bool // the machine store already contains an object for it
	// mayFollow reports whether the key may take the place of another private key (PEM) of its name; nil: of none.
	mayFollow func(name string, keyPEM []byte) bool
}

// isMachineKeyPublished reports whether the machine store contains the key. It returns false for an
// object that can no longer be decrypted, which may be replaced, and an error for an object with
// another key.
func isMachineKeyPublished(
	ctx context.Context,
	machine store.Store,
	sealer store.Sealer,
	sec machineKey,
) (bool, error) {
	objectKey := MachineKeyObjectKey(sec.cluster, sec.name)
	o, err := machine.Get(ctx, objectKey)
	if err != nil {
		return false, err
	}

	old, err := sealer.Open(ctx, o.Body, MachineKeyContext(sec.cluster))
	name, text := cutName(old)
	same := bytes.Equal(text, sec.keyPEM)
	isFormer := err == nil && !same && sec.mayFollow != nil && sec.mayFollow(sec.name, text)
	clear(old)

	switch {
	case isFormer: // keys are rotated
		return false, nil

	case err == nil && !same:
		return false, diag.WithHint(
			fmt.Errorf("%s/%s contains the key of another cluster %s", machine.URL(), objectKey, sec.cluster),
			"use another store for machines (spec.configStore.base); if that cluster no longer exists, "+
				"delete all objects below "+sec.cluster+"/machine/",
		)

	case err != nil && !errors.Is(err, store.ErrDecryption):
		return false, fmt.Errorf("decrypt %s: %w", objectKey, err)
	}

	return err == nil && name == sec.name, nil // an older slipway sealed no name, and machines refuse that
}

// nameMark precedes the PEM of a key that is sealed for machines, with its name. All of them are sealed to the same context,
// so only the name tells one object from another. PEM allows text there, which earlier agents skip.
const nameMark = "This is the key "

// withName returns the text of a key with its name. It clears the given one.
func withName(name string, keyPEM []byte) []byte {
	defer clear(keyPEM)

	return slices.Concat([]byte(nameMark+name+".\n"), keyPEM)
}

// cutName returns the name in the text of a key, and the rest. The name is empty if there is none.
func cutName(text []byte) (name string, rest []byte) {
	after, ok := bytes.CutPrefix(text, []byte(nameMark))
	if !ok {
		return "", text
	}

	named, rest, ok := bytes.Cut(after, []byte(".\n"))
	if !ok {
		return "", text
	}

	return string(named), rest
}
