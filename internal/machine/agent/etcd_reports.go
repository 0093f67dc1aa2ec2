// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"context"
	"crypto/rand"
	"errors"
	"slices"
	"time"

	"github.com/slipway-k8s/slipway/internal/lib/store"
	"github.com/slipway-k8s/slipway/internal/machine/etcd"
	"github.com/slipway-k8s/slipway/internal/machine/node"
)

// seenReport is what a machine remembers of the reports of another slot's machine. Clocks are not compared.
type seenReport struct {
	// session and count are those of the newest report.
	session string
	count   int
	// changedAt is when this machine saw a newer report than before; zero until it has.
	changedAt time.Time
	// former are the sessions of earlier processes of the slot's machines.
	former []string
}

// newSession begins the reports on another loss of the quorum: those of others that were made before do not count any more.
func (m *recoveryMemory) newSession() {
	m.own.Session = rand.Text()
	m.own.Heard = nil
	m.seen = nil
}

// hear takes note of the signed report of another slot's machine and reports whether it counts: it changes, and was made during this
// loss of the quorum. Somebody who may write to the machine store can put earlier reports back, but none that has heard of this
// session, and not in another order than that in which they were made.
func (m *recoveryMemory) hear(slot string, r etcd.QuorumReport, now time.Time) bool {
	if m.seen == nil {
		m.seen = map[string]seenReport{}
		m.own.Heard = map[string]string{}
	}

	m.own.Heard[slot] = r.Session
	seen, isKnown := m.seen[slot]
	if !isKnown {
		m.seen[slot] = seenReport{session: r.Session, count: r.Count}
		return false // it may be old
	}

	isAnswer := r.Session != "" && r.Heard[m.own.Slot] == m.own.Session
	if !isAnswer || seen.isOlder(r) {
		return false
	}

	m.seen[slot] = seen.update(r, now)
	changedAt := m.seen[slot].changedAt

	return !changedAt.IsZero() && now.Sub(changedAt) <= freshReport
}

// isOlder reports whether a report was made before the newest one.
func (s seenReport) isOlder(r etcd.QuorumReport) bool {
	if r.Session == s.session {
		return r.Count < s.count
	}

	return slices.Contains(s.former, r.Session)
}

// update returns what is remembered after a report that is not older.
func (s seenReport) update(r etcd.QuorumReport, now time.Time) seenReport {
	if r.Session != s.session {
		s.former = append(slices.Clone(s.former), s.session)
		s.session = r.Session
		s.count = 0
	}

	if r.Count > s.count {
		s.count = r.Count
		s.changedAt = now
	}

	return s
}

// readOwn reads the report of this slot's machine once: an earlier process knew since when the quorum is missing.
func (r *etcdRecovery) readOwn(ctx context.Context) error {
	if r.memory.asked {
		return nil
	}

	key := node.EtcdQuorumReportKey(r.member.agent.doc.Cluster, r.member.slot.Name)
	var own etcd.QuorumReport
	err := r.member.agent.readRecord(ctx, r.member.store, key, &own)
	if node.IsUntrusted(err) {
		own = etcd.QuorumReport{} // somebody else may have written since when there is no quorum
		err = nil
	}

	if err != nil && !errors.Is(err, store.ErrNotFound) {
		return err
	}

	r.memory.own = own
	r.memory.newSession()
	r.memory.asked = true

	return nil
}

// publish writes this machine's report.
func (r *etcdRecovery) publish(ctx context.Context, step etcd.RecoveryStep) error {
	now := r.member.agent.Now().UTC()
	own := &r.memory.own
	own.Count++
	own.Step = step.Type
	own.Reason = step.Reason
	own.ReportedAt = now
	own.DueAt = time.Time{}
	if step.Due > 0 {
		own.DueAt = now.Add(step.Due)
	}

	r.member.agent.metrics.noteQuorum(*own)
	key := node.EtcdQuorumReportKey(r.member.agent.doc.Cluster, own.Slot)
	body, err := r.member.agent.signRecord(key, own)
	if err != nil {
		return err
	}

	_, err = r.member.store.Put(ctx, key, body)

	return err
}
