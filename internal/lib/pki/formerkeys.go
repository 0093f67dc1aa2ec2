// SPDX-License-Identifier: Apache-2.0

package pki

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"

	"github.com/slipway-k8s/slipway/internal/lib/store"
)

// FormerKeyPrefix returns the prefix of a cluster's former keys in the machine store. A former key is the encryption key of
// another cluster whose backup was restored into this one: Secrets of that time can be read with it alone. It is sealed
// without a name, so that it is refused in the place of the cluster's own key.
func FormerKeyPrefix(cluster string) string { return cluster + "/machine/etcd/former-keys/" }

// LoadMachineKey reads and decrypts one key of a cluster from the machine store, also one that an older slipway has sealed
// without its name: the key of a cluster whose backup is restored is for reading only, and a wrong one reads nothing.
func LoadMachineKey(ctx context.Context, s store.Store, sealer store.Sealer, cluster, name string) (Key, error) {
	return openKey(ctx, s, sealer, sealedKey{
		name: name, objectKey: MachineKeyObjectKey(cluster, name), context: MachineKeyContext(cluster),
	})
}

// LoadFormerKeys reads and decrypts the former keys of a cluster, sorted by their names.
func LoadFormerKeys(ctx context.Context, s store.Store, sealer store.Sealer, cluster string) ([]Key, error) {
	objects, err := s.List(ctx, FormerKeyPrefix(cluster))
	if err != nil {
		return nil, err
	}

	out := make([]Key, 0, len(objects))
	for _, object := range objects {
		key, err := openKey(ctx, s, sealer, sealedKey{
			name: EncryptionKey, objectKey: object, context: MachineKeyContext(cluster),
		})
		if err != nil {
			return nil, err
		}

		out = append(out, key)
	}

	return out, nil
}

// PublishFormerKey writes a former key of a cluster to the machine store, sealed to the cluster, unless it is there. Its name
// is a hash of its public key, so that it never changes.
func PublishFormerKey(ctx context.Context, s store.Store, sealer store.Sealer, cluster string, key Key) error {
	public, err := key.PublicPEM()
	if err != nil {
		return err
	}

	text, err := key.PEM()
	if err != nil {
		return err
	}

	defer clear(text)
	sealed, err := sealer.Seal(ctx, text, MachineKeyContext(cluster))
	if err != nil {
		return fmt.Errorf("seal a former key of cluster %s: %w", cluster, err)
	}

	sum := sha256.Sum256(public)
	_, err = s.Create(ctx, FormerKeyPrefix(cluster)+hex.EncodeToString(sum[:8]), sealed)
	if errors.Is(err, store.ErrConflict) {
		return nil
	}

	return err
}
