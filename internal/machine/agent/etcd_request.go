// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"time"

	"github.com/slipway-k8s/slipway/internal/machine/backup"
	"github.com/slipway-k8s/slipway/internal/machine/etcd"
)

const (
	// answerTTL is how old the answer of another machine may be before this machine takes its request over.
	answerTTL = 2 * time.Minute
	// answerInterval is how often a machine says that it still works on a request.
	answerInterval = 30 * time.Second
	// memberTimeout is how long a member may take to answer again after its defragmentation.
	memberTimeout = 2 * time.Minute
)

// nextRequest returns the request of an operator that this machine has to carry out; nil if there is none.
func (b *etcdBackup) nextRequest(ctx context.Context) (*backup.Request, error) {
	request, err := b.archive.ReadRequest(ctx)
	if err != nil || request == nil || b.doneRequests[request.ID] {
		return nil, err
	}

	answer, err := b.readAnswerTo(ctx, request.ID)
	if err != nil {
		return nil, err
	}

	now := b.now()

	switch {
	case request.Expired(now) && answer == nil:
		return nil, b.refuseExpired(ctx, *request)

	case request.Expired(now), answer != nil && answer.Done:
		b.doneRequests[request.ID] = true
		return nil, nil

	case answer != nil && answer.Machine != b.agent.instance.ID && now.Sub(answer.UpdatedAt) < answerTTL:
		return nil, nil // the machine of the former leader works on it
	}

	return request, nil
}

// readAnswerTo returns the answer to a request; nil if there is none.
func (b *etcdBackup) readAnswerTo(ctx context.Context, id string) (*backup.Answer, error) {
	answer, err := b.archive.ReadAnswer(ctx)
	if err != nil || answer == nil || answer.ID != id {
		return nil, err
	}

	return answer, nil
}

// refuseExpired answers a request that no machine has begun and none must begin any more, so that whoever waits learns that a clock is
// wrong. The answer is final: no machine carries the request out later, whatever its clock says.
func (b *etcdBackup) refuseExpired(ctx context.Context, r backup.Request) error {
	now := b.now().UTC()
	const form = time.DateOnly + " " + time.TimeOnly + "Z"
	answer := backup.Answer{
		ID:      r.ID,
		Machine: b.agent.instance.ID,
		Done:    true,
		Error: fmt.Sprintf(
			"the request was not carried out: it was written at %s by the clock of the computer that asks, and it is %s by the clock of "+
				"this machine, which is %s apart; at most %s is allowed: set the clock that is wrong, and ask again",
			r.CreatedAt.UTC().Format(form), now.Format(form), now.Sub(r.CreatedAt).Abs().Round(time.Second), backup.RequestTTL,
		),
	}

	b.agent.Log.Warn(
		"refused a request about etcd",
		slog.String("type", string(r.Type)),
		slog.String("error", answer.Error),
	)
	if err := b.answer(ctx, answer); err != nil {
		return err
	}

	b.doneRequests[r.ID] = true

	return nil
}

// carryOut carries out a request and answers it. Only the failure to answer is an error.
func (b *etcdBackup) carryOut(ctx context.Context, r backup.Request) error {
	answer := backup.Answer{ID: r.ID, Machine: b.agent.instance.ID, Step: "began"}
	if err := b.answer(ctx, answer); err != nil {
		return err
	}

	b.agent.Log.Info(
		"carrying out a request",
		slog.String("type", string(r.Type)),
		slog.String("by", r.By),
	)
	var err error

	switch {
	case r.NeedsSignature() && !r.IsSigned:
		err = errors.New("nobody who has the key of the cluster has signed this request, so it is ignored")
	case r.Type == backup.RequestSnapshot:
		err = b.whileAnswering(ctx, answer, func(ctx context.Context) error {
			answer.Backup, answer.APIStopped, err = b.takeRequested(ctx, r)
			return err
		})

	case r.Type == backup.RequestDefrag:
		err = b.defragmentAll(ctx, &answer)
	case r.Type == backup.RequestStartAPI:
		err = startAPI(b.agent)
	default:
		err = fmt.Errorf("this agent knows no request of type %q: replace the machine with: slipway rolling-update", r.Type)
	}

	answer.Done = true
	answer.Step = ""
	if err != nil {
		answer.Error = err.Error()
	}

	b.doneRequests[r.ID] = true // whoever writes it again asks for nothing
	b.lookedAt = time.Time{}    // somebody may wait for the test of the backup

	return b.answer(ctx, answer)
}

// takeRequested takes a backup for a request, and reports whether the API server is stopped since before it was taken.
func (b *etcdBackup) takeRequested(ctx context.Context, r backup.Request) (id string, isAPIStopped bool, err error) {
	if r.StopsAPI {
		id, err = b.takeLast(ctx, r)
		return id, err == nil, err
	}

	id, err = b.takeOnce(ctx, r)

	return id, false, err
}

// takeOnce takes a backup for a request, unless an agent that was killed before it answered has taken it.
func (b *etcdBackup) takeOnce(ctx context.Context, r backup.Request) (id string, err error) {
	listing, err := b.catalog.List(ctx)
	if err != nil {
		return "", err
	}

	i := slices.IndexFunc(listing.Backups, func(taken backup.Backup) bool { return taken.RequestID == r.ID })
	if i >= 0 {
		return listing.Backups[i].ID, nil
	}

	reason := cmp.Or(r.Reason, backup.ReasonRequest)
	taken, err := b.take(ctx, backup.Metadata{Reason: reason, RequestID: r.ID})

	return taken.ID, err
}

// answer writes an answer.
func (b *etcdBackup) answer(ctx context.Context, answer backup.Answer) error {
	answer.UpdatedAt = b.now().UTC()

	return b.archive.WriteAnswer(ctx, answer)
}

// whileAnswering calls do, and repeats the answer so that no other machine takes the request over.
func (b *etcdBackup) whileAnswering(ctx context.Context, answer backup.Answer, do func(context.Context) error) error {
	repeatCtx, stop := context.WithCancel(ctx)
	done := make(chan struct{})
	go func() {
		defer close(done)
		for b.agent.Wait(repeatCtx, answerInterval) == nil {
			if err := b.answer(repeatCtx, answer); err != nil && repeatCtx.Err() == nil {
				b.agent.Log.Warn("cannot answer a request", slog.Any("error", err))
			}
		}
	}()

	err := do(ctx)
	stop()
	<-done

	return err
}

// defragmentAll defragments all members, this machine's own one last. It stops at the first failure.
func (b *etcdBackup) defragmentAll(ctx context.Context, answer *backup.Answer) error {
	manager := b.agent.newEtcdManager()
	own := b.member.slot.Name
	peers := slices.Clone(manager.Peers)
	slices.SortStableFunc(peers, func(x, y etcd.Peer) int { // this machine has the leader
		return cmp.Compare(isSlot(x, own), isSlot(y, own))
	})

	for _, peer := range peers {
		if err := b.waitForMembers(ctx, manager); err != nil {
			return err
		}

		if peer.Slot == own {
			peer.ClientURL = b.url
		}

		b.yieldForDefragmentation(ctx, manager, peer) // another member may have become the leader meanwhile

		answer.Step = "defragmenting etcd-" + peer.Slot
		err := b.whileAnswering(ctx, *answer, func(ctx context.Context) error {
			result, err := defragmentMember(ctx, manager, peer, b.now)
			if err == nil {
				answer.Members = append(answer.Members, result)
			}

			return err
		})
		if err != nil {
			return err
		}
	}

	return b.waitForMembers(ctx, manager)
}

func isSlot(p etcd.Peer, slot string) int {
	if p.Slot == slot {
		return 1
	}

	return 0
}

// yieldForDefragmentation moves the leadership away from a member, since a leader that does not answer stops all writes. It is no
// error if no other member can take it.
func (b *etcdBackup) yieldForDefragmentation(ctx context.Context, manager etcd.Manager, peer etcd.Peer) {
	_, err := manager.YieldLeadership(ctx, peer.Slot, peer.ClientURL)
	if err != nil && !errors.Is(err, etcd.ErrNoSuccessor) {
		b.agent.Log.Warn(
			"cannot move the leadership away before the defragmentation",
			slog.Any("error", err),
		)
	}
}

// waitForMembers waits until every member answers a linearizable read.
func (b *etcdBackup) waitForMembers(ctx context.Context, manager etcd.Manager) error {
	deadline := b.now().Add(memberTimeout)
	for {
		var silent []string
		for _, peer := range manager.Peers {
			url := peer.ClientURL
			if peer.Slot == b.member.slot.Name {
				url = b.url
			}

			if !manager.Healthy(ctx, url) {
				silent = append(silent, "etcd-"+peer.Slot)
			}
		}

		if len(silent) == 0 {
			return nil
		}

		if b.now().After(deadline) {
			return fmt.Errorf(
				"members %v do not answer: no member is defragmented while another one does not work",
				silent,
			)
		}

		if err := b.agent.Wait(ctx, time.Second); err != nil {
			return err
		}
	}
}

// defragmentMember defragments one member and measures it.
func defragmentMember(
	ctx context.Context,
	manager etcd.Manager,
	peer etcd.Peer,
	now func() time.Time,
) (backup.DefragResult, error) {
	out := backup.DefragResult{Member: "etcd-" + peer.Slot}
	before, err := manager.Status(ctx, peer.ClientURL)
	if err != nil {
		return out, err
	}

	start := now()
	if err := manager.Defragment(ctx, peer.ClientURL); err != nil {
		return out, err
	}

	out.Seconds = now().Sub(start).Seconds()
	after, err := manager.Status(ctx, peer.ClientURL)
	out.Before = before.DBSize
	out.After = after.DBSize

	return out, err
}
