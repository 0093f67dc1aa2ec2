// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"context"
	"crypto/rand"
	"errors"
	"time"

	"github.com/slipway-k8s/slipway/internal/lib/store"
	"github.com/slipway-k8s/slipway/internal/machine/etcd"
	"github.com/slipway-k8s/slipway/internal/machine/node"
)

// newSession begins the reports on another loss of the quorum: those of others that were made before do not count any more.
func (m *recoveryMemory) newSession() {
	m.own.Session = rand.Text()
	m.own.Heard = nil
	m.seen = etcd.ReportWatch{}
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

// renewSession begins a new session if another machine of the slot has reported since this one has: the others do not count the reports
// of a session which another one followed, as when the volume was at the other machine for a while. It returns a notReadyError if this
// machine's volume does not work: its report must not replace that of a machine which may have the volume now.
func (r *etcdRecovery) renewSession(ctx context.Context) error {
	key := node.EtcdQuorumReportKey(r.member.agent.doc.Cluster, r.member.slot.Name)
	var last etcd.QuorumReport
	err := r.member.agent.readRecord(ctx, r.member.store, key, &last)
	if errors.Is(err, store.ErrNotFound) || node.IsUntrusted(err) {
		return nil
	}

	if err != nil {
		return err
	}

	if isOther := last.Machine != r.member.agent.instance.ID; isOther && r.member.agent.etcdStopped.Load() {
		return newNotReadyError("the etcd volume does not work, and machine %s has reported for slot %s", last.Machine, last.Slot)
	}

	if r.memory.published == r.memory.own.Session && last.Session != r.memory.published {
		r.memory.newSession()
	}

	return nil
}

// publish writes this machine's report.
func (r *etcdRecovery) publish(ctx context.Context, step etcd.RecoveryStep) error {
	now := r.member.agent.Now().UTC()
	own := &r.memory.own
	own.Count++
	own.Machine = r.member.agent.instance.ID
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

	if _, err = r.member.store.Put(ctx, key, body); err == nil {
		r.memory.published = own.Session
	}

	return err
}
