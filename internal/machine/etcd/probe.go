// SPDX-License-Identifier: Apache-2.0

package etcd

import (
	"context"
	"fmt"
	"strings"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
)

// probeTimeout limits a probe, so that a member that hangs is reported within seconds.
const probeTimeout = 2 * time.Second

// Ping asks the member at url for its status. The error says why it does not answer within 2 seconds.
func (m Manager) Ping(ctx context.Context, url string) error {
	ctx, cancel := context.WithTimeout(ctx, probeTimeout)
	defer cancel()
	if err := checkListening(ctx, url); err != nil {
		return err
	}

	_, err := m.Status(ctx, url)

	return err
}

// Probe asks the member at url for its status, and whether it answers a linearizable read, which needs a
// quorum. It takes at most 4 seconds. The error says why there is no status.
func (m Manager) Probe(ctx context.Context, url string) (status Status, quorum bool, err error) {
	statusCtx, cancel := context.WithTimeout(ctx, probeTimeout)
	defer cancel()
	if err := checkListening(statusCtx, url); err != nil {
		return Status{}, false, err
	}

	c, err := m.newClient(url)
	if err != nil {
		return Status{}, false, err
	}

	defer func() { _ = c.Close() }()
	answer, err := c.Status(statusCtx, url)
	if err != nil {
		return Status{}, false, fmt.Errorf("get etcd status from %s: %w", url, err)
	}

	readCtx, cancelRead := context.WithTimeout(ctx, probeTimeout)
	defer cancelRead()
	_, err = c.Get(readCtx, healthKey)

	return newStatus(answer), err == nil, nil
}

func newStatus(s *clientv3.StatusResponse) Status {
	return Status{
		MemberID:  s.Header.MemberId,
		Learner:   s.IsLearner,
		Leader:    s.Leader == s.Header.MemberId,
		LeaderID:  s.Leader,
		ClusterID: s.Header.ClusterId,
		RaftTerm:  s.RaftTerm,
		RaftIndex: s.RaftIndex,
		Revision:  s.Header.Revision,
		DBSize:    s.DbSize,
		Quota:     s.DbSizeQuota,
		Version:   s.Version,
		Errors:    s.Errors,
	}
}

// Alarms returns the names of the alarms of the cluster, such as NOSPACE. etcd lists them among the errors of
// a status, each as "memberID:1 alarm:NOSPACE ".
func (s Status) Alarms() []string {
	var out []string
	for _, e := range s.Errors {
		if _, name, ok := strings.Cut(e, "alarm:"); ok {
			out = append(out, strings.TrimSpace(name))
		}
	}

	return out
}
