// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"context"
	"net"
	"slices"
	"strings"
	"testing"
	"time"

	"go.etcd.io/etcd/api/v3/etcdserverpb"
	"google.golang.org/grpc"

	"github.com/slipway-k8s/slipway/internal/lib/store"
	"github.com/slipway-k8s/slipway/internal/machine/etcd"
)

// restoredMember is the endpoint of a member that is restored after it has told its status: from then on it is of another cluster. The
// cluster has the voters of slots a and b.
type restoredMember struct {
	etcdserverpb.UnimplementedClusterServer
	etcdserverpb.UnimplementedMaintenanceServer
	etcdserverpb.UnimplementedKVServer
	// before and after are the ids of the clusters.
	before, after uint64
	// sent are the changes that it was asked for.
	sent []string
}

func (r *restoredMember) header() *etcdserverpb.ResponseHeader {
	return &etcdserverpb.ResponseHeader{ClusterId: r.after}
}

func (r *restoredMember) Status(context.Context, *etcdserverpb.StatusRequest) (*etcdserverpb.StatusResponse, error) {
	return &etcdserverpb.StatusResponse{Header: &etcdserverpb.ResponseHeader{ClusterId: r.before, MemberId: 1}, Leader: 1}, nil
}

func (*restoredMember) Alarm(context.Context, *etcdserverpb.AlarmRequest) (*etcdserverpb.AlarmResponse, error) {
	return &etcdserverpb.AlarmResponse{}, nil
}

func (r *restoredMember) Range(context.Context, *etcdserverpb.RangeRequest) (*etcdserverpb.RangeResponse, error) {
	return &etcdserverpb.RangeResponse{Header: r.header()}, nil
}

func (r *restoredMember) MemberList(context.Context, *etcdserverpb.MemberListRequest) (*etcdserverpb.MemberListResponse, error) {
	return &etcdserverpb.MemberListResponse{Header: r.header(), Members: []*etcdserverpb.Member{
		{ID: 1, Name: "etcd-a", PeerURLs: []string{"https://a:2380"}},
		{ID: 2, Name: "etcd-b", PeerURLs: []string{"https://b:2380"}},
	}}, nil
}

func (r *restoredMember) MemberRemove(context.Context, *etcdserverpb.MemberRemoveRequest) (*etcdserverpb.MemberRemoveResponse, error) {
	r.sent = append(r.sent, "remove")
	return &etcdserverpb.MemberRemoveResponse{Header: r.header()}, nil
}

func (r *restoredMember) MemberPromote(context.Context, *etcdserverpb.MemberPromoteRequest) (*etcdserverpb.MemberPromoteResponse, error) {
	r.sent = append(r.sent, "promote")
	return &etcdserverpb.MemberPromoteResponse{Header: r.header()}, nil
}

// serve serves the member, and returns a manager that finds the members of all slots there.
func (r *restoredMember) serve(t *testing.T) etcd.Manager {
	t.Helper()
	l, err := new(net.ListenConfig).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}

	server := grpc.NewServer()
	etcdserverpb.RegisterClusterServer(server, r)
	etcdserverpb.RegisterMaintenanceServer(server, r)
	etcdserverpb.RegisterKVServer(server, r)
	go func() { _ = server.Serve(l) }()
	t.Cleanup(server.Stop)
	manager := etcd.Manager{Timeout: 5 * time.Second}
	for _, slot := range []string{"a", "b", "c", "d", "e"} {
		manager.Peers = append(manager.Peers, etcd.Peer{
			Slot:      slot,
			ClientURL: "http://" + l.Addr().String(),
			PeerURL:   "https://" + slot + ":2380",
		})
	}

	return manager
}

// newMemberOfA returns the agent's view of the member of slot a, whose control plane has this slot only.
func newMemberOfA(t *testing.T) *etcdMember {
	t.Helper()
	a := testAgent(t)
	a.EC2 = &fakeEC2{}
	slot, _ := a.doc.Slot("a")

	return &etcdMember{agent: a, slot: slot, store: store.NewFileStore(t.TempDir()), volume: "vol-a"}
}

// TestChangesStayInTheirCluster: what an agent has seen of one cluster leads to no change of another one, which a member is of after its
// restoration.
func TestChangesStayInTheirCluster(t *testing.T) {
	for name, change := range map[string]func(*testing.T, *restoredMember){
		"promote": func(t *testing.T, r *restoredMember) {
			t.Helper()
			m := newMemberOfA(t)
			m.promoteLearner(t.Context(), r.serve(t), etcd.Status{MemberID: 3, ClusterID: r.before, Learner: true})
		},
		"remove": func(t *testing.T, r *restoredMember) {
			t.Helper()
			w := newMemberOfA(t).newResize()
			manager := r.serve(t)
			w.manager = func() etcd.Manager { return manager }
			w.url = manager.Peers[0].ClientURL
			w.checkCurrent = func(context.Context) error { return nil }
			w.checkChanges = func(context.Context) error { return nil }
			w.serves = func(context.Context, string) bool { return false }
			err := w.run(t.Context())
			if r.before != r.after && (err == nil || !strings.Contains(err.Error(), "is of cluster 8")) {
				t.Errorf("the error: %v", err)
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			same := &restoredMember{before: 7, after: 7}
			if change(t, same); !slices.Equal(same.sent, []string{name}) {
				t.Errorf("in the same cluster: sent %v", same.sent)
			}

			restored := &restoredMember{before: 7, after: 8}
			if change(t, restored); len(restored.sent) > 0 {
				t.Errorf("the other cluster was asked to %v", restored.sent)
			}
		})
	}
}
