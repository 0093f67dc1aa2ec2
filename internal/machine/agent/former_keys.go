// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"context"
	"sync"

	"github.com/slipway-k8s/slipway/internal/lib/pki"
	"github.com/slipway-k8s/slipway/internal/lib/store"
	"github.com/slipway-k8s/slipway/internal/machine/kube"
)

// formerKeys are the keys of other clusters whose backup was restored into this one. All agents of one machine share them. A
// nil pointer has none.
type formerKeys struct {
	mu   sync.Mutex
	keys []pki.Key
}

// load reads the former keys of a cluster.
func (k *formerKeys) load(ctx context.Context, s store.Store, sealer store.Sealer, cluster string) error {
	keys, err := pki.LoadFormerKeys(ctx, s, sealer, cluster)
	if err != nil {
		return err
	}

	k.mu.Lock()
	defer k.mu.Unlock()
	k.keys = keys

	return nil
}

// derive returns the keys with which the API server reads Secrets of those clusters.
func (k *formerKeys) derive() ([][]byte, error) {
	if k == nil {
		return nil, nil
	}

	k.mu.Lock()
	defer k.mu.Unlock()
	var out [][]byte
	for _, key := range k.keys {
		derived, err := deriveSecretsKey(key)
		if err != nil {
			return nil, err
		}

		out = append(out, derived)
	}

	return out, nil
}

// deriveSecretsKey returns the key that encrypts Secrets in etcd.
func deriveSecretsKey(key pki.Key) ([]byte, error) {
	return key.Derive("slipway encryption-key of secrets v1", 32)
}

// readFormerKeys reads the former keys again after a restoration, before the API server restarts with them.
func (m *etcdMember) readFormerKeys(ctx context.Context) error {
	a := m.agent
	if a.former == nil {
		return nil // the agent has not read any secrets yet
	}

	if err := a.former.load(ctx, m.store, a.Sealer, a.doc.Cluster); err != nil {
		return err
	}

	files, err := a.controlPlaneFiles()
	if err != nil {
		return err
	}

	for _, file := range files {
		if file.Path == kube.SecretDir+"/encryption.yaml" {
			_, err = a.Root.Write(file)
		}
	}

	return err
}
