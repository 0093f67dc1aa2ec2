// SPDX-License-Identifier: Apache-2.0

package etcd

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"
	"google.golang.org/grpc/codes"
)

// changePatience is how many times as long as for a read the manager waits for the answer to a change. What a change has done is not known
// without its answer.
const changePatience = 2

// changeLimit is how many times as long as for a read a change may take through all members together. Through five slots that answer late it
// would take more than two minutes otherwise, while the agent that makes it holds the lock of the member's data, and neither stops the member
// nor follows a restoration. It is enough for a member that does not answer the change, the look at the membership, and a next one that does.
const changeLimit = 6

// membershipChange is one change of the membership.
type membershipChange struct {
	// name for people, as "remove member 1f".
	name string
	// send asks a member for the change, and returns the header of its answer.
	send func(ctx context.Context, c *clientv3.Client) (*etcdserverpb.ResponseHeader, error)
	// judge is called with the membership after a change without an answer. It reports whether the change was made; the error says why
	// that cannot be told.
	judge func(members []*etcdserverpb.Member) (isMade bool, err error)
}

// RemoveMember removes the member id through a member other than that of slot self. etcd rejects a
// removal that would lose the quorum.
func (m Manager) RemoveMember(ctx context.Context, self string, id uint64) error {
	return m.changeMembership(ctx, self, membershipChange{
		name: fmt.Sprintf("remove member %x", id),
		send: func(ctx context.Context, c *clientv3.Client) (*etcdserverpb.ResponseHeader, error) {
			answer, err := c.MemberRemove(ctx, id)
			if err != nil {
				return nil, err
			}

			return answer.Header, nil
		},
		judge: func(members []*etcdserverpb.Member) (bool, error) { return findMember(members, id) == nil, nil },
	})
}

// AddLearner adds a learner with the given peer URL through a member other than that of slot self, and returns its id. If no answer
// comes and the membership has such a learner then, it returns an error: another machine of the slot may have added it at that moment,
// and two machines must not start as one member.
func (m Manager) AddLearner(ctx context.Context, self, peerURL string) (id uint64, err error) {
	err = m.changeMembership(ctx, self, membershipChange{
		name: "add learner " + peerURL,
		send: func(ctx context.Context, c *clientv3.Client) (*etcdserverpb.ResponseHeader, error) {
			answer, err := c.MemberAddAsLearner(ctx, []string{peerURL})
			if err != nil {
				return nil, err
			}

			id = answer.Member.ID

			return answer.Header, nil
		},
		judge: func(members []*etcdserverpb.Member) (bool, error) {
			at := slices.IndexFunc(members, func(e *etcdserverpb.Member) bool { return slices.Contains(e.PeerURLs, peerURL) })
			if at < 0 {
				return false, nil
			}

			return false, fmt.Errorf("learner %x exists now, and it is not known which machine has added it", members[at].ID)
		},
	})
	if err != nil {
		return 0, err
	}

	return id, nil
}

// PromoteLearner makes a learner a voting member, through a member other than that of slot self.
// etcd rejects the request while the learner has not caught up.
func (m Manager) PromoteLearner(ctx context.Context, self string, id uint64) error {
	return m.changeMembership(ctx, self, membershipChange{
		name: fmt.Sprintf("promote member %x", id),
		send: func(ctx context.Context, c *clientv3.Client) (*etcdserverpb.ResponseHeader, error) {
			answer, err := c.MemberPromote(ctx, id)
			if err != nil {
				return nil, err
			}

			return answer.Header, nil
		},
		judge: func(members []*etcdserverpb.Member) (bool, error) {
			e := findMember(members, id)
			return e != nil && !e.IsLearner, nil
		},
	})
}

// findMember returns the entry of a member in the membership; nil if there is none.
func findMember(members []*etcdserverpb.Member, id uint64) *etcdserverpb.Member {
	i := slices.IndexFunc(members, func(e *etcdserverpb.Member) bool { return e.ID == id })
	if i < 0 {
		return nil
	}

	return members[i]
}

// unansweredError is why it is not known what a change has done.
type unansweredError struct{ cause error }

func (e unansweredError) Error() string { return e.cause.Error() }

func (e unansweredError) Unwrap() error { return e.cause }

// changeMembership makes a change through the first member that makes it, within changeLimit. After one that did not answer, it looks at the
// membership before it does anything else.
func (m Manager) changeMembership(ctx context.Context, self string, change membershipChange) error {
	ctx, cancel := context.WithTimeout(ctx, changeLimit*m.requestTimeout())
	defer cancel()
	err := fmt.Errorf("%s: etcd has no other member", change.name)
	for _, peer := range m.Peers {
		if peer.Slot == self {
			continue
		}

		if err = m.changeVia(ctx, peer, change); err == nil {
			return nil
		}

		if _, isUnanswered := errors.AsType[unansweredError](err); !isUnanswered {
			if ctx.Err() != nil {
				return err
			}

			continue
		}

		isMade, unknown := m.lookForChange(ctx, self, change)
		if unknown != nil {
			return fmt.Errorf("%w; %w", err, unknown)
		}

		if isMade {
			return nil
		}
	}

	return err
}

// changeVia makes a change through a member, if it is of the cluster that the manager asks. It returns an unansweredError if the change was
// sent and may have been made.
func (m Manager) changeVia(ctx context.Context, peer Peer, change membershipChange) error {
	c, err := m.newClient(peer.ClientURL)
	if err != nil {
		return err
	}

	defer func() { _ = c.Close() }()
	list, err := m.listVia(ctx, c, peer.ClientURL)
	if err != nil {
		return fmt.Errorf("%s: %w", change.name, err)
	}

	ctx, cancel := context.WithTimeout(ctx, changePatience*m.requestTimeout())
	defer cancel()
	header, err := change.send(ctx, c)
	if err != nil {
		err = fmt.Errorf("%s through %s: %w", change.name, peer.ClientURL, err)
		if !isRefusal(err) {
			err = unansweredError{err}
		}

		return err
	}

	if list.Header.GetClusterId() != header.GetClusterId() { // the member was restored between the two
		return fmt.Errorf("%s through %s: made in cluster %x instead of %x", change.name, peer.ClientURL,
			header.GetClusterId(), list.Header.GetClusterId())
	}

	return nil
}

// isRefusal reports whether an error is etcd's answer that a change is not made. Of others, such as a timeout, it is not known.
func isRefusal(err error) bool {
	answer, isAnswer := errors.AsType[rpctypes.EtcdError](err)
	if !isAnswer {
		return false
	}

	switch answer.Code() {
	case codes.FailedPrecondition, codes.InvalidArgument, codes.NotFound, codes.PermissionDenied, codes.Unauthenticated:
		return true
	default:
		return errors.Is(err, rpctypes.ErrUnhealthy) // which it says before it proposes a change
	}
}

// lookForChange reports whether a change without an answer was made, by the membership that the first member says that answers with a
// quorum. It returns an error if that cannot be told.
func (m Manager) lookForChange(ctx context.Context, self string, change membershipChange) (bool, error) {
	err := errors.New("no member says what the membership is")
	for _, peer := range m.Peers {
		if peer.Slot == self {
			continue
		}

		var list *clientv3.MemberListResponse
		err = m.use(peer.ClientURL, func(c *clientv3.Client) (err error) {
			list, err = m.listVia(ctx, c, peer.ClientURL)
			return err
		})
		if err == nil {
			return change.judge(list.Members)
		}
	}

	return false, err
}

// listVia returns the membership as the member at url says it, whose client c is. It needs a quorum: the answer is linearizable. The error
// says so if the member is of another cluster than the one that the manager asks.
func (m Manager) listVia(ctx context.Context, c *clientv3.Client, url string) (*clientv3.MemberListResponse, error) {
	ctx, cancel := context.WithTimeout(ctx, m.requestTimeout())
	defer cancel()
	if err := checkListening(ctx, url); err != nil {
		return nil, err
	}

	list, err := c.MemberList(ctx)
	if err != nil {
		return nil, fmt.Errorf("list members through %s: %w", url, err)
	}

	if err := m.checkCluster(url, list.Header.GetClusterId()); err != nil {
		return nil, err
	}

	return list, nil
}
