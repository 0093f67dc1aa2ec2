// SPDX-License-Identifier: Apache-2.0

package etcd

import (
	"context"
	"fmt"
	"slices"

	clientv3 "go.etcd.io/etcd/client/v3"
	"golang.org/x/sync/errgroup"
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
	var out Survey
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

	if slices.ContainsFunc(out.Alarms, func(a Alarm) bool { return a.Type == AlarmCorrupt }) {
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
		revisions[i] = s.Header.Revision
		_, err = c.Get(ctx, healthKey)
		members[i].Healthy = err == nil
	})

	return revisions
}

// surveyHashes asks the members for the hash of their data at the newest revision that all of them have.
func (m Manager) surveyHashes(ctx context.Context, members []MemberState, revisions []int64) {
	common := int64(0)
	for _, revision := range revisions {
		if revision > 0 && (common == 0 || revision < common) {
			common = revision
		}
	}

	m.forEach(members, func(i int, c *clientv3.Client, url string) {
		ctx, cancel := context.WithTimeout(ctx, m.requestTimeout())
		defer cancel()
		if checkListening(ctx, url) != nil {
			return
		}

		got, err := c.HashKV(ctx, url, common)
		if err != nil {
			return
		}

		members[i].Hash = ContentHash{Known: true, Hash: got.Hash, CompactRevision: got.CompactRevision}
	})
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
		if _, err := c.Compact(ctx, revision, clientv3.WithCompactPhysical()); err != nil {
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
				return fmt.Errorf("disarm alarm %s of member %x through %s: %w", raised.Alarm, raised.MemberID, url, err)
			}
		}

		return nil
	})
}
