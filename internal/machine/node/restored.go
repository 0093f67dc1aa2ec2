// SPDX-License-Identifier: Apache-2.0

package node

import (
	"context"
	"errors"
	"path"

	"github.com/slipway-k8s/slipway/internal/lib/store"
)

// RestoredSlots says which slots' members have had the data of a generation of etcd.
type RestoredSlots struct {
	// Signed are the slots of which a machine or an operator of the cluster has signed that.
	Signed []string
	// Unsigned are those of which nobody has signed it. An agent of an earlier version has written the record, or somebody who may write
	// to the machine store and has no key.
	Unsigned []string
}

// ReadRestoredSlots reads the records of a generation. One without a valid signature counts if the slot's own record, which agents replace
// when they start with the data, is signed and says the same. caPEM are the certificates of the Kubernetes CA.
func ReadRestoredSlots(ctx context.Context, s store.Store, cluster string, number int, caPEM string) (RestoredSlots, error) {
	keys, err := s.List(ctx, EtcdRestoredKey(cluster, number, ""))
	if err != nil {
		return RestoredSlots{}, err
	}

	var out RestoredSlots
	for _, key := range keys {
		slot := path.Base(key)
		_, isSigned, err := readSignedGeneration(ctx, s, key, caPEM)
		if err == nil && !isSigned {
			var generation int
			generation, isSigned, err = readSignedGeneration(ctx, s, EtcdJoinedKey(cluster, slot), caPEM)
			isSigned = isSigned && generation == number
		}

		switch {
		case err != nil:
			return RestoredSlots{}, err
		case isSigned:
			out.Signed = append(out.Signed, slot)
		default:
			out.Unsigned = append(out.Unsigned, slot)
		}
	}

	return out, nil
}

// readSignedGeneration reads the generation in a record of a member, and reports whether there is one with a valid signature. What
// cannot be read as a record has none.
func readSignedGeneration(ctx context.Context, s store.Store, key, caPEM string) (generation int, isSigned bool, err error) {
	o, err := s.Get(ctx, key)
	if errors.Is(err, store.ErrNotFound) {
		return 0, false, nil
	}

	if err != nil {
		return 0, false, err
	}

	var record struct {
		Generation int `json:"generation"`
	}
	isSigned = ReadRecord(o.Body, key, caPEM, &record) == nil

	return record.Generation, isSigned, nil
}
