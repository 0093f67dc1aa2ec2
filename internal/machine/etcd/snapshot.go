// SPDX-License-Identifier: Apache-2.0

package etcd

import (
	"context"
	"fmt"
	"io"

	clientv3 "go.etcd.io/etcd/client/v3"
)

// SnapshotSource says which member a snapshot is from.
type SnapshotSource struct {
	// ClusterID and MemberID are etcd's.
	ClusterID, MemberID uint64
	// Version of etcd.
	Version string
}

// Snapshot streams a snapshot of the member at url to out until ctx ends. etcd appends a checksum to the database, which a
// restore checks.
func (m Manager) Snapshot(ctx context.Context, url string, out io.Writer) (SnapshotSource, error) {
	c, err := m.newClient(url)
	if err != nil {
		return SnapshotSource{}, err
	}

	defer func() { _ = c.Close() }()
	// A linearizable read proves that the member is up to date.
	now, err := c.Get(ctx, healthKey)
	if err != nil {
		return SnapshotSource{}, fmt.Errorf("read the revision of etcd at %s: %w", url, err)
	}

	in, err := c.SnapshotWithVersion(ctx)
	if err != nil {
		return SnapshotSource{}, fmt.Errorf("take a snapshot of etcd at %s: %w", url, err)
	}

	defer func() { _ = in.Snapshot.Close() }()
	if _, err := io.Copy(out, in.Snapshot); err != nil {
		return SnapshotSource{}, fmt.Errorf("take a snapshot of etcd at %s: %w", url, err)
	}

	return SnapshotSource{ClusterID: now.Header.ClusterId, MemberID: now.Header.MemberId, Version: in.Version}, nil
}

// KeyValues is what a member says of its keys and values at a revision.
type KeyValues struct {
	// Hash of all keys and values that are newer than CompactRevision.
	Hash            uint32
	CompactRevision int64
	// Keys is the number of keys.
	Keys int
}

// KeyValuesAt returns what the member at url has at a revision, which must not be compacted.
func (m Manager) KeyValuesAt(ctx context.Context, url string, revision int64) (out KeyValues, err error) {
	err = m.use(url, func(c *clientv3.Client) error {
		hash, err := c.HashKV(ctx, url, revision)
		if err != nil {
			return fmt.Errorf("read the hash of etcd at %s at revision %d: %w", url, revision, err)
		}

		all := []clientv3.OpOption{clientv3.WithFromKey(), clientv3.WithCountOnly(), clientv3.WithRev(revision)}
		counted, err := c.Get(ctx, "\x00", all...)
		if err != nil {
			return fmt.Errorf("count the keys of etcd at %s at revision %d: %w", url, revision, err)
		}

		out = KeyValues{Hash: hash.Hash, CompactRevision: hash.CompactRevision, Keys: int(counted.Count)}

		return nil
	})

	return out, err
}

// Defragment defragments the database of the member at url. The member answers nothing meanwhile.
func (m Manager) Defragment(ctx context.Context, url string) error {
	return m.use(url, func(c *clientv3.Client) error {
		if _, err := c.Defragment(ctx, url); err != nil {
			return fmt.Errorf("defragment etcd at %s: %w", url, err)
		}

		return nil
	})
}

// use calls do with a client of the member at url.
func (m Manager) use(url string, do func(*clientv3.Client) error) error {
	c, err := m.newClient(url)
	if err != nil {
		return err
	}

	defer func() { _ = c.Close() }()

	return do(c)
}

// healthKey is read to learn whether etcd answers. It need not exist.
const healthKey = "slipway-health"
