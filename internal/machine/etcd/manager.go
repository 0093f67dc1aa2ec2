// SPDX-License-Identifier: Apache-2.0

package etcd

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"slices"
	"strings"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"
)

// Peer is another member's slot and client URL.
type Peer struct {
	Slot, ClientURL, PeerURL string
}

// Manager asks members for the membership and changes it.
type Manager struct {
	// TLS of an etcd client.
	TLS *tls.Config
	// Peers are all slots, ours too.
	Peers []Peer
	// Timeout of one request. Default 5 s.
	Timeout time.Duration
}

// Status is a member's health as its own endpoint tells it.
type Status struct {
	MemberID  uint64
	Learner   bool
	Leader    bool
	RaftIndex uint64
	DBSize    int64
	Errors    []string
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
		return nil, fmt.Errorf("etcd client of %v: %w", urls, err)
	}

	return c, nil
}

// Members asks the other members for the membership, all at once. It returns nil if none of them has a quorum behind it.
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
	if err := checkListening(ctx, peer.ClientURL); err != nil {
		return nil, err
	}

	c, err := m.newClient(peer.ClientURL)
	if err != nil {
		return nil, err
	}

	defer c.Close() //nolint:errcheck // nothing was written
	// MemberList is linearizable: it answers only with a quorum.
	list, err := c.MemberList(ctx)
	if err != nil {
		return nil, fmt.Errorf("list members through %s: %w", peer.ClientURL, err)
	}

	var out []Member

	for _, e := range list.Members {
		member := Member{ID: e.ID, Name: e.Name, Learner: e.IsLearner}
		if i := m.peerIndex(e.PeerURLs); i >= 0 {
			member.Slot = m.Peers[i].Slot
			member.Healthy = m.Healthy(ctx, m.Peers[i].ClientURL)
		}

		out = append(out, member)
	}

	return out, nil
}

// checkListening fails at once where nothing listens at a URL: etcd's client would go on trying until its time is over.
func checkListening(ctx context.Context, clientURL string) error {
	_, host, _ := strings.Cut(clientURL, "://")
	c, err := new(net.Dialer).DialContext(ctx, "tcp", host)
	if err != nil {
		return fmt.Errorf("reach etcd at %s: %w", clientURL, err)
	}

	return c.Close()
}

func (m Manager) peerIndex(urls []string) int {
	return slices.IndexFunc(m.Peers, func(p Peer) bool { return slices.Contains(urls, p.PeerURL) })
}

// Healthy says whether the member answers a linearizable read within 2 s.
func (m Manager) Healthy(ctx context.Context, url string) bool {
	c, err := m.newClient(url)
	if err != nil {
		return false
	}

	defer c.Close() //nolint:errcheck // nothing was written
	ctx, cancel := context.WithTimeout(ctx, 2*time.Second)
	defer cancel()
	_, err = c.Get(ctx, "slipway-health")

	return err == nil
}

// Status of the member at url.
func (m Manager) Status(ctx context.Context, url string) (Status, error) {
	c, err := m.newClient(url)
	if err != nil {
		return Status{}, err
	}

	defer c.Close() //nolint:errcheck // nothing was written
	ctx, cancel := context.WithTimeout(ctx, m.requestTimeout())
	defer cancel()
	s, err := c.Status(ctx, url)
	if err != nil {
		return Status{}, fmt.Errorf("etcd status of %s: %w", url, err)
	}

	return Status{
		MemberID:  s.Header.MemberId,
		Learner:   s.IsLearner,
		Leader:    s.Leader == s.Header.MemberId,
		RaftIndex: s.RaftIndex,
		DBSize:    s.DbSize,
		Errors:    s.Errors,
	}, nil
}

// RemoveMember removes a member through the other members. etcd itself refuses what would cost the quorum.
func (m Manager) RemoveMember(ctx context.Context, self string, id uint64) error {
	return m.changeMembership(ctx, self, func(ctx context.Context, c *clientv3.Client) error {
		if _, err := c.MemberRemove(ctx, id); err != nil {
			return fmt.Errorf("remove member %x: %w", id, err)
		}

		return nil
	})
}

// ActionAddLearner adds our slot as a learner through the other members.
func (m Manager) AddLearner(ctx context.Context, self, peerURL string) error {
	return m.changeMembership(ctx, self, func(ctx context.Context, c *clientv3.Client) error {
		if _, err := c.MemberAddAsLearner(ctx, []string{peerURL}); err != nil {
			return fmt.Errorf("add learner %s: %w", peerURL, err)
		}

		return nil
	})
}

// PromoteLearner makes a learner a voter. etcd refuses while it is not in sync.
func (m Manager) PromoteLearner(ctx context.Context, self string, id uint64) error {
	return m.changeMembership(ctx, self, func(ctx context.Context, c *clientv3.Client) error {
		if _, err := c.MemberPromote(ctx, id); err != nil {
			return fmt.Errorf("promote member %x: %w", id, err)
		}

		return nil
	})
}

func (m Manager) changeMembership(
	ctx context.Context,
	self string,
	do func(context.Context, *clientv3.Client) error,
) error {
	err := errors.New("there is no other member")
	for _, peer := range m.Peers {
		if peer.Slot == self {
			continue
		}

		if err = m.changeMembershipVia(ctx, peer, do); err == nil {
			return nil
		}
	}

	return err
}

func (m Manager) changeMembershipVia(
	ctx context.Context,
	peer Peer,
	do func(context.Context, *clientv3.Client) error,
) error {
	c, err := m.newClient(peer.ClientURL)
	if err != nil {
		return err
	}

	defer c.Close() //nolint:errcheck // the change has its own answer
	ctx, cancel := context.WithTimeout(ctx, m.requestTimeout())
	defer cancel()

	return do(ctx, c)
}
