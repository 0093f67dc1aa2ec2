// SPDX-License-Identifier: Apache-2.0

package etcd_test

import (
	"cmp"
	"context"
	"net"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	"google.golang.org/grpc"

	"github.com/slipway-k8s/slipway/internal/machine/etcd"
)

// membership is what all members of a cluster have agreed on. It carries out changes as etcd does.
type membership struct {
	etcdserverpb.UnimplementedClusterServer
	cluster uint64

	mutex   sync.Mutex
	members []*etcdserverpb.Member
	// sent are the changes that members were asked for, by the slot that was asked.
	sent []string
}

// servedMember is a member's endpoint.
type servedMember struct {
	*membership
	slot string
	// isSilent is set if the member carries out changes and does not answer, and isLost if it does neither.
	isSilent, isLost bool
	// refusal is what it answers to changes, which it does not carry out.
	refusal error
	// delay of its lists.
	delay time.Duration
	// changesIn is the cluster that it answers changes of; 0: that of its lists.
	changesIn uint64
}

// change notes a change, carries it out and answers, or not.
func (s servedMember) change(ctx context.Context, what string, do func()) (*etcdserverpb.ResponseHeader, error) {
	s.mutex.Lock()
	s.sent = append(s.sent, what+" through "+s.slot)
	if s.refusal == nil && !s.isLost {
		do()
	}
	s.mutex.Unlock()
	if s.refusal != nil {
		return nil, s.refusal
	}
	if s.isSilent || s.isLost {
		<-ctx.Done()
		return nil, ctx.Err()
	}

	return &etcdserverpb.ResponseHeader{ClusterId: cmp.Or(s.changesIn, s.cluster)}, nil
}

func (s servedMember) MemberList(context.Context, *etcdserverpb.MemberListRequest) (*etcdserverpb.MemberListResponse, error) {
	time.Sleep(s.delay)
	s.mutex.Lock()
	defer s.mutex.Unlock()

	return &etcdserverpb.MemberListResponse{
		Header:  &etcdserverpb.ResponseHeader{ClusterId: s.cluster},
		Members: slices.Clone(s.members),
	}, nil
}

func (s servedMember) MemberAdd(ctx context.Context, r *etcdserverpb.MemberAddRequest) (*etcdserverpb.MemberAddResponse, error) {
	s.mutex.Lock()
	exists := slices.ContainsFunc(s.members, func(m *etcdserverpb.Member) bool { return m.PeerURLs[0] == r.PeerURLs[0] })
	s.mutex.Unlock()
	if exists {
		return nil, rpctypes.ErrGRPCPeerURLExist
	}
	added := &etcdserverpb.Member{ID: 99, PeerURLs: r.PeerURLs, IsLearner: r.IsLearner}
	header, err := s.change(ctx, "add", func() { s.members = append(s.members, added) })

	return &etcdserverpb.MemberAddResponse{Header: header, Member: added}, err
}

func (s servedMember) MemberRemove(ctx context.Context, r *etcdserverpb.MemberRemoveRequest) (*etcdserverpb.MemberRemoveResponse, error) {
	header, err := s.change(ctx, "remove", func() {
		s.members = slices.DeleteFunc(s.members, func(m *etcdserverpb.Member) bool { return m.ID == r.ID })
	})

	return &etcdserverpb.MemberRemoveResponse{Header: header}, err
}

func (s servedMember) MemberPromote(ctx context.Context, r *etcdserverpb.MemberPromoteRequest) (*etcdserverpb.MemberPromoteResponse, error) {
	header, err := s.change(ctx, "promote", func() {
		for i, m := range s.members {
			if m.ID == r.ID {
				s.members[i] = &etcdserverpb.Member{ID: m.ID, PeerURLs: m.PeerURLs}
			}
		}
	})

	return &etcdserverpb.MemberPromoteResponse{Header: header}, err
}

// serve returns a manager of slot c, whose members a and b serve a membership of cluster 7 with the voters 1 and 2 and the learner 3.
func serve(t *testing.T, served ...servedMember) (etcd.Manager, *membership) {
	t.Helper()
	shared := &membership{cluster: 7, members: []*etcdserverpb.Member{
		{ID: 1, PeerURLs: []string{"https://a:2380"}},
		{ID: 2, PeerURLs: []string{"https://b:2380"}},
		{ID: 3, PeerURLs: []string{"https://d:2380"}, IsLearner: true},
	}}
	manager := etcd.Manager{Timeout: time.Second}
	for _, s := range served {
		s.membership = shared
		l, err := new(net.ListenConfig).Listen(t.Context(), "tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		server := grpc.NewServer()
		etcdserverpb.RegisterClusterServer(server, s)
		go func() { _ = server.Serve(l) }()
		t.Cleanup(server.Stop)
		manager.Peers = append(manager.Peers, etcd.Peer{
			Slot:      s.slot,
			ClientURL: "http://" + l.Addr().String(),
			PeerURL:   "https://" + s.slot + ":2380",
		})
	}

	return manager, shared
}

// changes are the changes of the membership, on behalf of slot c.
func changes(t *testing.T) map[string]func(etcd.Manager) error {
	t.Helper()

	return map[string]func(etcd.Manager) error{
		"add": func(m etcd.Manager) error {
			_, err := m.AddLearner(t.Context(), "c", "https://c:2380")
			return err
		},
		"remove":  func(m etcd.Manager) error { return m.RemoveMember(t.Context(), "c", 2) },
		"promote": func(m etcd.Manager) error { return m.PromoteLearner(t.Context(), "c", 3) },
	}
}

// TestChangesOfAnotherCluster: only [etcd.Manager.Members] compared the id of the cluster, and a change of the membership could be made
// in the cluster of before a restoration, whose member answered at the address of a slot.
func TestChangesOfAnotherCluster(t *testing.T) {
	t.Parallel()
	for name, change := range changes(t) {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			manager, shared := serve(t, servedMember{slot: "a"}, servedMember{slot: "b"})
			manager.ClusterID = 8
			if err := change(manager); err == nil || !strings.Contains(err.Error(), "is of cluster 7") {
				t.Errorf("another cluster: %v", err)
			}
			if len(shared.sent) > 0 {
				t.Errorf("another cluster was asked to %v", shared.sent)
			}
			manager.ClusterID = 7
			if err := change(manager); err != nil || strings.Join(shared.sent, ", ") != name+" through a" {
				t.Errorf("the cluster: %v, sent: %v", err, shared.sent)
			}
		})
	}
}

// TestChangesWithoutAnswer: a change that was carried out without an answer was sent to the next member, which refused it, and counted
// as one that was not made. The membership says what happened, and nothing else is done before it was read.
func TestChangesWithoutAnswer(t *testing.T) {
	t.Parallel()
	for name, change := range changes(t) {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			manager, shared := serve(t, servedMember{slot: "a", isSilent: true}, servedMember{slot: "b"})
			err := change(manager)
			if isAdd := name == "add"; isAdd != (err != nil) || isAdd && !strings.Contains(err.Error(), "learner 63") {
				t.Errorf("%v; only a learner may be that of another machine", err)
			}
			if strings.Join(shared.sent, ", ") != name+" through a" {
				t.Errorf("sent: %v", shared.sent)
			}
		})

		t.Run(name+" that was not made", func(t *testing.T) {
			t.Parallel()
			manager, shared := serve(t, servedMember{slot: "a", isLost: true}, servedMember{slot: "b"})
			if err := change(manager); err != nil || strings.Join(shared.sent, ", ") != name+" through a, "+name+" through b" {
				t.Errorf("%v, sent: %v", err, shared.sent)
			}
		})
	}
}

// TestRefusedChanges: what a member refuses is not made, and another one is asked. It may know of a leader.
func TestRefusedChanges(t *testing.T) {
	t.Parallel()
	for name, change := range changes(t) {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			manager, shared := serve(t, servedMember{slot: "a", refusal: rpctypes.ErrGRPCUnhealthy}, servedMember{slot: "b"})
			if err := change(manager); err != nil || strings.Join(shared.sent, ", ") != name+" through a, "+name+" through b" {
				t.Errorf("%v, sent: %v", err, shared.sent)
			}
		})
	}
}

// TestChangesAreBounded: through five slots whose members answer late, a change took 28 times the limit of a read, while the agent held the
// lock of the member's data.
func TestChangesAreBounded(t *testing.T) {
	t.Parallel()
	const timeout = 500 * time.Millisecond
	for name, change := range changes(t) {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			late := servedMember{isLost: true, delay: timeout * 9 / 10}
			var members []servedMember
			for _, slot := range []string{"a", "b", "d", "e"} {
				late.slot = slot
				members = append(members, late)
			}

			manager, _ := serve(t, members...)
			manager.Timeout = timeout
			begin := time.Now()
			if err := change(manager); err == nil {
				t.Error("no error")
			}

			if took := time.Since(begin); took > 10*timeout {
				t.Errorf("it took %s, want at most 6 times %s", took, timeout)
			}
		})
	}
}

// TestChangesInAnotherCluster: a member that is restored between its answers lists one cluster and changes another one. Such a change does
// not count.
func TestChangesInAnotherCluster(t *testing.T) {
	t.Parallel()
	for name, change := range changes(t) {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			manager, _ := serve(t, servedMember{slot: "a", changesIn: 8})
			if err := change(manager); err == nil || !strings.Contains(err.Error(), "made in cluster 8 instead of 7") {
				t.Errorf("%v", err)
			}
		})
	}
}
