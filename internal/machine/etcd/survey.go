// SPDX-License-Identifier: Apache-2.0

package etcd

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"
	"golang.org/x/sync/errgroup"
)

const (
	// hashTimeout limits the computation of a hash, for which a member reads its database, of 8 GiB at most.
	hashTimeout = 2 * time.Minute
	// hashPause is the pause before a member that has not reached a revision is asked again, hashAttempts times in all.
	hashPause    = 200 * time.Millisecond
	hashAttempts = 5
)

// Survey is what the agent of one machine learns of all members for its maintenance.
type Survey struct {
	// Members are all entries of the membership list.
	Members []MemberState
	// Alarms that are raised.
	Alarms []Alarm
	// Revision is the newest one that a member has reported.
	Revision int64
}

// Survey asks the member at url for the membership and the alarms, and every member for its state. It needs a quorum. While
// the data of members differs, it asks for the hashes of the data too.
func (m Manager) Survey(ctx context.Context, url string) (Survey, error) {
	return m.surveyVia(ctx, url, false)
}

// surveyVia surveys the cluster, with hashes if they are wanted or an alarm CORRUPT is raised.
func (m Manager) surveyVia(ctx context.Context, url string, hashes bool) (Survey, error) {
	var out Survey
	if err := checkListening(ctx, url); err != nil {
		return out, err
	}

	err := m.use(url, func(c *clientv3.Client) error {
		ctx, cancel := context.WithTimeout(ctx, m.requestTimeout())
		defer cancel()

		return m.surveyCluster(ctx, c, &out)
	})
	if err != nil {
		return out, fmt.Errorf("survey etcd through %s: %w", url, err)
	}

	revisions := m.surveyMembers(ctx, out.Members)
	for _, revision := range revisions {
		out.Revision = max(out.Revision, revision)
	}

	if hashes || slices.ContainsFunc(out.Alarms, func(a Alarm) bool { return a.Type == AlarmCorrupt }) {
		m.surveyHashes(ctx, out.Members, revisions)
	}

	return out, nil
}

// surveyCluster adds the membership list and the alarms.
func (m Manager) surveyCluster(ctx context.Context, c *clientv3.Client, out *Survey) error {
	list, err := c.MemberList(ctx)
	if err != nil {
		return fmt.Errorf("list members: %w", err)
	}

	alarms, err := c.AlarmList(ctx)
	if err != nil {
		return fmt.Errorf("list alarms: %w", err)
	}

	for _, a := range alarms.Alarms {
		out.Alarms = append(out.Alarms, Alarm{MemberID: a.MemberID, Type: a.Alarm.String()})
	}

	for _, e := range list.Members {
		member, _ := m.listedMember(e)
		out.Members = append(out.Members, MemberState{Member: member})
	}

	return nil
}

// surveyMembers completes the members with what they report, and returns their revisions; 0 for those that do not answer.
func (m Manager) surveyMembers(ctx context.Context, members []MemberState) []int64 {
	revisions := make([]int64, len(members))
	m.forEach(members, func(i int, c *clientv3.Client, url string) {
		ctx, cancel := context.WithTimeout(ctx, probeTimeout)
		defer cancel()
		if checkListening(ctx, url) != nil {
			return
		}

		s, err := c.Status(ctx, url)
		if err != nil {
			return
		}

		members[i].Leader = s.Leader == s.Header.MemberId
		members[i].DBSize = s.DbSize
		members[i].InUse = s.DbSizeInUse
		members[i].Quota = s.DbSizeQuota
		members[i].Revision = s.Header.Revision
		revisions[i] = s.Header.Revision
		_, err = c.Get(ctx, healthKey)
		members[i].Healthy = err == nil
	})

	return revisions
}

// surveyHashes asks the voters for the hash of their data at the newest revision that a majority of them has. A member that
// does not answer, or is far behind, does not prevent the comparison of the others.
func (m Manager) surveyHashes(ctx context.Context, members []MemberState, revisions []int64) {
	common := commonRevision(members, revisions)
	if common == 0 {
		return
	}

	m.forEach(members, func(i int, c *clientv3.Client, url string) {
		ctx, cancel := context.WithTimeout(ctx, hashTimeout)
		defer cancel()
		if members[i].Learner || checkListening(ctx, url) != nil {
			return
		}

		for range hashAttempts {
			got, err := c.HashKV(ctx, url, common)
			if err == nil {
				members[i].Hash = ContentHash{Known: true, Hash: got.Hash, CompactRevision: got.CompactRevision}
				return
			}

			if !errors.Is(err, rpctypes.ErrFutureRev) {
				return
			}

			select {
			case <-ctx.Done():
			case <-time.After(hashPause):
			}
		}
	})
}

// commonRevision returns the newest revision that a majority of the voters has; 0 if no majority answers.
func commonRevision(members []MemberState, revisions []int64) int64 {
	var known []int64
	voters := 0
	for i, m := range members {
		if m.Learner {
			continue
		}

		voters++
		if revisions[i] > 0 {
			known = append(known, revisions[i])
		}
	}

	if len(known)*2 <= voters {
		return 0
	}

	slices.Sort(known)

	return known[len(known)-1-voters/2]
}

// forEach calls do for each member of a slot, at the same time, with a client of it.
func (m Manager) forEach(members []MemberState, do func(i int, c *clientv3.Client, url string)) {
	var calls errgroup.Group
	for i := range members {
		at := slices.IndexFunc(m.Peers, func(p Peer) bool { return p.Slot == members[i].Slot })
		if at < 0 {
			continue
		}

		url := m.Peers[at].ClientURL
		calls.Go(func() error {
			return m.use(url, func(c *clientv3.Client) error {
				do(i, c, url)
				return nil
			})
		})
	}

	_ = calls.Wait() // a member that cannot be asked is not healthy
}

// Compact removes the history up to a revision, through the member at url.
func (m Manager) Compact(ctx context.Context, url string, revision int64) error {
	return m.use(url, func(c *clientv3.Client) error {
		_, err := c.Compact(ctx, revision, clientv3.WithCompactPhysical())
		if err != nil && !errors.Is(err, rpctypes.ErrCompacted) { // it was compacted further meanwhile
			return fmt.Errorf("compact etcd at revision %d through %s: %w", revision, url, err)
		}

		return nil
	})
}

// Disarm disarms alarms through the member at url, if they are still raised.
func (m Manager) Disarm(ctx context.Context, url string, alarms []Alarm) error {
	return m.use(url, func(c *clientv3.Client) error {
		list, err := c.AlarmList(ctx)
		if err != nil {
			return fmt.Errorf("list alarms through %s: %w", url, err)
		}

		for _, raised := range list.Alarms {
			if !slices.Contains(alarms, Alarm{MemberID: raised.MemberID, Type: raised.Alarm.String()}) {
				continue
			}

			if _, err := c.AlarmDisarm(ctx, (*clientv3.AlarmMember)(raised)); err != nil {
				return fmt.Errorf(
					"disarm alarm %s of member %x through %s: %w",
					raised.Alarm,
					raised.MemberID,
					url,
					err,
				)
			}
		}

		return nil
	})
}
