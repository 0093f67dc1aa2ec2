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
