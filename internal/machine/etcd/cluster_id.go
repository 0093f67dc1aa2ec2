// SPDX-License-Identifier: Apache-2.0

package etcd

import (
	"crypto/sha1" //nolint:gosec // etcd's ids are made with it
	"encoding/binary"
	"fmt"
)

// ClusterID returns the id of the etcd cluster of this generation, which begins with one member, at peerURL. etcd computes it from the URL
// and the token, and it never changes. It tells the members of the generation from those of an earlier one, which may answer at the address
// of the same slot: a machine that was replaced may work.
func (g Generation) ClusterID(peerURL string) uint64 {
	member := sha1.Sum([]byte(peerURL + g.Token)) //nolint:gosec // as etcd
	cluster := sha1.Sum(member[:8])               //nolint:gosec // as etcd

	return binary.BigEndian.Uint64(cluster[:8])
}

// checkCluster returns an error if an answer is of another cluster than the one that the manager asks.
func (m Manager) checkCluster(url string, cluster uint64) error {
	if m.ClusterID == 0 || m.ClusterID == cluster {
		return nil
	}

	return fmt.Errorf("list members through %s: it is of cluster %x, and the newest restoration of etcd is cluster %x",
		url, cluster, m.ClusterID)
}
