// SPDX-License-Identifier: Apache-2.0

package etcd

import (
	"context"
	"crypto/tls"
	"fmt"
	"net"
	"slices"
	"strings"
	"time"

	"go.etcd.io/etcd/api/v3/etcdserverpb"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"
)

// Peer holds the URLs of the member in one slot.
type Peer struct {
	// Slot of the member.
	Slot string
	// ClientURL is the URL for requests, https://host:2379.
	ClientURL string
	// PeerURL is the URL for other members, https://host:2380.
	PeerURL string
}

// Manager reads and changes the etcd membership. Its methods may be called concurrently.
type Manager struct {
	// TLS configuration with a client certificate of etcd's client CA.
	TLS *tls.Config
	// Peers are the members of all slots, including this machine's own.
	Peers []Peer
	// ClusterID is the id of the cluster whose members count; 0: any. See [Generation.ClusterID].
	ClusterID uint64
	// Timeout of one request. Default 5 seconds.
	Timeout time.Duration
}

// Status is the state of a member as reported by its own endpoint.
type Status struct {
	// MemberID is the id of the member.
	MemberID uint64
	// Learner is set for a member without a vote.
	Learner bool
	// Leader is set if the member is the current leader.
	Leader bool
	// LeaderID is the id of the leader; 0 if the member knows none.
	LeaderID uint64
	// ClusterID is the id of the member's cluster.
	ClusterID uint64
	// RaftTerm is the current term of Raft.
	RaftTerm uint64
	// RaftIndex is the last index in the member's Raft log.
	RaftIndex uint64
	// Revision of the data that the member has.
	Revision int64
	// DBSize of the backend in bytes.
	DBSize int64
	// Quota of the backend in bytes; 0 if the member does not report it (before etcd 3.6).
	Quota int64
	// Version of etcd, such as 3.6.6.
	Version string
	// Errors that the member reports, such as a raised alarm.
	Errors []string
}

func (m Manager) requestTimeout() time.Duration {
	if m.Timeout > 0 {
		return m.Timeout
	}

	return 5 * time.Second
}

func (m Manager) newClient(urls ...string) (*clientv3.Client, error) {
	c, err := clientv3.New(clientv3.Config{
		Endpoints:   urls,
		TLS:         m.TLS,
		DialTimeout: m.requestTimeout(),
		Logger:      zap.NewNop(),
	})
	if err != nil {
		return nil, fmt.Errorf("create etcd client for %v: %w", urls, err)
	}

	return c, nil
}

// Members asks all members except that of slot self concurrently and returns the first membership
// list. It returns nil if no peer answers with a quorum.
func (m Manager) Members(ctx context.Context, self string) []Member {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	answers := make(chan []Member, len(m.Peers))
	asked := 0

	for _, peer := range m.Peers {
		if peer.Slot == self {
			continue
		}

		asked++
		go func() {
			members, err := m.membersFrom(ctx, peer)
			if err != nil {
				members = nil
			}

			answers <- members
		}()
	}

	for range asked {
		if members := <-answers; members != nil {
			return members
		}
	}

	return nil
}

func (m Manager) membersFrom(ctx context.Context, peer Peer) ([]Member, error) {
	ctx, cancel := context.WithTimeout(ctx, m.requestTimeout())
	defer cancel()
	c, err := m.newClient(peer.ClientURL)
	if err != nil {
		return nil, err
	}

	defer func() { _ = c.Close() }()
	list, err := m.listVia(ctx, c, peer.ClientURL)
	if err != nil {
		return nil, err
	}

	var out []Member

	for _, e := range list.Members {
		member, peer := m.listedMember(e)
		if peer != nil {
			member.Healthy = m.Healthy(ctx, peer.ClientURL)
		}

		out = append(out, member)
	}

	return out, nil
}

// checkListening returns an error immediately if nothing listens at clientURL. Without it, etcd's
// client would retry until the timeout.
func checkListening(ctx context.Context, clientURL string) error {
	_, host, _ := strings.Cut(clientURL, "://")
	c, err := new(net.Dialer).DialContext(ctx, "tcp", host)
	if err != nil {
		return fmt.Errorf("reach etcd at %s: %w", clientURL, err)
	}

	return c.Close()
}

// listedMember returns an entry of the membership list with its slot, and the peer of the slot; nil if it is of none.
func (m Manager) listedMember(e *etcdserverpb.Member) (Member, *Peer) {
	member := Member{ID: e.ID, Name: e.Name, Learner: e.IsLearner}
	i := slices.IndexFunc(m.Peers, func(p Peer) bool { return slices.Contains(e.PeerURLs, p.PeerURL) })
	if i < 0 {
		return member, nil
	}

	member.Slot = m.Peers[i].Slot

	return member, &m.Peers[i]
}

// Healthy reports whether the member at url answers a linearizable read within 2 seconds.
func (m Manager) Healthy(ctx context.Context, url string) bool {
	c, err := m.newClient(url)
	if err != nil {
		return false
	}

	defer func() { _ = c.Close() }()
	ctx, cancel := context.WithTimeout(ctx, 2*time.Second)
	defer cancel()
	_, err = c.Get(ctx, healthKey)

	return err == nil
}

// Status returns the status of the member at url.
func (m Manager) Status(ctx context.Context, url string) (Status, error) {
	c, err := m.newClient(url)
	if err != nil {
		return Status{}, err
	}

	defer func() { _ = c.Close() }()
	ctx, cancel := context.WithTimeout(ctx, m.requestTimeout())
	defer cancel()
	s, err := c.Status(ctx, url)
	if err != nil {
		return Status{}, fmt.Errorf("get etcd status from %s: %w", url, err)
	}

	return newStatus(s), nil
}
