// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"

	"github.com/slipway-k8s/slipway/internal/lib/pki"
	"github.com/slipway-k8s/slipway/internal/lib/store"
	"github.com/slipway-k8s/slipway/internal/machine/etcd"
	"github.com/slipway-k8s/slipway/internal/machine/node"
)

// The records about etcd in the machine store decide which data counts. Who may write there is not trusted: machines of the control
// plane and operators sign them with the key of the Kubernetes CA. See docs/design/0022-signed-state.md.

// signRecord encodes and signs a record for a key of the machine store.
func (a *Agent) signRecord(key string, record any) ([]byte, error) {
	return node.SignRecord(key, record, a.bundle.CAs[pki.KubernetesCA].Key())
}

// recordKeys signs and verifies the records of backups with the keys of an agent.
type recordKeys struct{ agent *Agent }

// Sign implements [backup.Records].
func (k recordKeys) Sign(key string, record any) ([]byte, error) {
	return k.agent.signRecord(key, record)
}

// Read implements [backup.Records].
func (k recordKeys) Read(body []byte, key string, record any) error {
	return node.ReadRecord(body, key, k.agent.doc.Trust.KubernetesCA, record)
}

// readRecord reads a signed record of the machine store into record. See [node.ReadRecord] for its errors; they wrap
// store.ErrNotFound if there is no record.
func (a *Agent) readRecord(ctx context.Context, s store.Store, key string, record any) error {
	o, err := s.Get(ctx, key)
	if err != nil {
		return err
	}

	return node.ReadRecord(o.Body, key, a.doc.Trust.KubernetesCA, record)
}

// untrustedGenerationError is returned for a generation that nobody has signed who has the key, and whose data no machine has.
func untrustedGenerationError(key string, err error) error {
	return fmt.Errorf(
		"ignoring the restoration of etcd in %s, and no machine has its data: %w: somebody without the cluster's keys has written it, or an "+
			"earlier version of slipway: delete the object, or begin a restoration with this version: slipway etcd restore --again",
		key, err,
	)
}

// readGeneration returns the newest generation; nil if the cluster was never restored. It must be signed. One of an earlier version
// is not: it counts if a machine has its data, by this machine's volume or the signed record of a member.
func (m *etcdMember) readGeneration(ctx context.Context) (*etcd.Generation, error) {
	keys, err := m.store.List(ctx, node.EtcdGenerationPrefix(m.agent.doc.Cluster))
	if err != nil || len(keys) == 0 {
		return nil, err
	}

	key := keys[len(keys)-1]
	var g etcd.Generation
	err = m.agent.readRecord(ctx, m.store, key, &g)
	if node.IsUntrusted(err) {
		g, err = m.readEarlierGeneration(ctx, key, err)
	}

	if err != nil {
		return nil, err
	}

	m.agent.restoredAt.Store(&g.CreatedAt)

	return &g, nil
}

// readEarlierGeneration reads a generation without a valid signature. reason says why it is not valid.
func (m *etcdMember) readEarlierGeneration(ctx context.Context, key string, reason error) (etcd.Generation, error) {
	g, err := readJSONObject[etcd.Generation](ctx, m.store, key)
	if err != nil {
		return etcd.Generation{}, err
	}

	if key != node.EtcdGenerationKey(m.agent.doc.Cluster, g.Number) {
		return *g, untrustedGenerationError(key, reason)
	}

	have, err := m.dataGeneration(etcd.DataDir)
	if err != nil || have >= g.Number {
		return *g, err
	}

	vouched, err := m.readVouchedGeneration(ctx)
	if err == nil && vouched < g.Number {
		err = untrustedGenerationError(key, reason)
	}

	return *g, err
}

// readVouchedGeneration returns the newest generation whose data a member has had by its signed record.
func (m *etcdMember) readVouchedGeneration(ctx context.Context) (int, error) {
	slots, err := m.listJoined(ctx, nil) // of any generation
	if err != nil {
		return 0, err
	}

	newest := 0
	for _, slot := range slots {
		record, err := m.readJoined(ctx, slot)
		if err != nil && !errors.Is(err, store.ErrNotFound) {
			return 0, err
		}

		newest = max(newest, record.Generation)
	}

	return newest, nil
}

// readJoined returns the record of a slot's member. Without a valid signature, which agents of earlier versions do not make, its
// generation is 0. The error wraps store.ErrNotFound if the member has never had data.
func (m *etcdMember) readJoined(ctx context.Context, slot string) (joinedRecord, error) {
	key := node.EtcdJoinedKey(m.agent.doc.Cluster, slot)
	o, err := m.store.Get(ctx, key)
	if err != nil {
		return joinedRecord{}, err
	}

	var out joinedRecord
	err = node.ReadRecord(o.Body, key, m.agent.doc.Trust.KubernetesCA, &out)
	if !node.IsUntrusted(err) {
		return out, err
	}

	if err := json.Unmarshal(o.Body, &out); err != nil {
		return out, fmt.Errorf("read %s: %w", key, err)
	}

	out.Generation = 0

	return out, nil
}
