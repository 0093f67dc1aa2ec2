// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"context"
	"encoding/json"
	"hash/fnv"
	"log/slog"
	"time"

	"github.com/slipway-k8s/slipway/api/v1alpha1"
	"github.com/slipway-k8s/slipway/internal/machine/follow"
	"github.com/slipway-k8s/slipway/internal/machine/node"
	"github.com/slipway-k8s/slipway/internal/machine/report"
)

// newClaim returns this machine's claim of a turn. Workers of a group restart their kubelets at the same time once
// the first one works with the new settings.
func (f *follower) newClaim(current node.Revision) follow.Claim {
	a := f.agent

	return follow.Claim{
		Machine:    a.instance.ID,
		Group:      a.doc.Group,
		Serial:     current.Serial,
		Document:   current.Document,
		InParallel: a.doc.Role != v1alpha1.RoleControlPlane,
	}
}

// takeTurn reports whether the machine may restart components now.
func (f *follower) takeTurn(ctx context.Context, current node.Revision) (bool, error) {
	a := f.agent
	if a.Now().Before(f.claimAfter) {
		return false, nil
	}

	if a.doc.Role == v1alpha1.RoleControlPlane {
		if err := f.notSafe(ctx); err != nil {
			a.setDocumentStatus(report.Revision{
				State:   report.RevisionWaiting,
				Desired: current.Document,
				Cause:   err.Error(),
			})

			return false, nil //nolint:nilerr // it is reported
		}
	}

	turn, reason, err := f.turns.claim(ctx, f.newClaim(current))
	switch {
	case err != nil:
		return false, err
	case turn == follow.TurnRefused:
		return false, f.refuse(ctx, current, reason)
	case turn == follow.TurnWait:
		f.claimAfter = a.Now().Add(pauseBetweenClaims(a.doc.Role, a.instance.ID))
		a.setDocumentStatus(report.Revision{
			State:   report.RevisionWaiting,
			Desired: current.Document,
			Cause:   reason,
		})

		return false, nil
	}

	return true, nil
}

// pauseBetweenClaims returns how long a machine waits until it asks for its turn again. A thousand workers must not ask
// at the same time, so theirs differ.
func pauseBetweenClaims(role v1alpha1.Role, instance string) time.Duration {
	if role == v1alpha1.RoleControlPlane {
		return followInterval
	}

	spread := fnv.New32a()
	_, _ = spread.Write([]byte(instance))

	return 3*time.Second + time.Duration(spread.Sum32()%8000)*time.Millisecond
}

// renewInterval is the time between two renewals of the lock.
const renewInterval = follow.HoldTime / 4

// renewTurn renews the machine's turn until the returned function is called. A failure is not fatal: the other
// machines look for themselves whether everything works before they restart anything.
func (f *follower) renewTurn(ctx context.Context, current node.Revision) (stop func()) {
	ctx, cancel := context.WithCancel(ctx)
	done := make(chan struct{})
	claim := f.newClaim(current)
	go func() {
		defer close(done)
		for f.agent.Wait(ctx, renewInterval) == nil {
			err := f.turns.change(ctx, func(l follow.Lock) follow.Lock {
				if l.Holder != claim.Machine {
					return l
				}

				return l.Take(claim, f.agent.Now())
			})
			if err != nil && ctx.Err() == nil {
				f.agent.Log.Warn("cannot renew the update lock", slog.Any("error", err))
			}
		}
	}()

	return func() {
		cancel()
		<-done
	}
}

// endTurn releases the lock, if this machine holds it, and tells the others how it went.
func (f *follower) endTurn(ctx context.Context, current node.Revision, cause string) error {
	claim := f.newClaim(current)
	err := f.turns.change(ctx, func(l follow.Lock) follow.Lock {
		if l.Holder != claim.Machine {
			return l
		}

		return l.Release(claim, cause)
	})
	f.released = err == nil

	return err
}

// releaseOldTurn releases the lock that an earlier process of the agent held when it was killed after its change.
// Nothing depends on it: a lock that is not released expires.
func (f *follower) releaseOldTurn(ctx context.Context, current node.Revision) {
	state := f.agent.documentState
	if f.released || state.Attempt.Serial == current.Serial {
		return // nothing to release, or the turn goes on
	}

	if state.Serial == 0 && state.Refused.Serial == 0 {
		f.released = true // a new machine
		return
	}

	if err := f.endTurn(ctx, current, state.RefusedCause(current.Serial)); err != nil {
		f.agent.Log.Debug("cannot release the update lock yet", slog.Any("error", err))
	}
}

// checkSafeToRestart returns why no component of the control plane may restart now: every etcd member, API server and
// this machine's node have to work.
func (a *Agent) checkSafeToRestart(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, 20*time.Second)
	defer cancel()
	if err := a.checkRolloutReady(ctx); err != nil {
		return err
	}

	serving, err := readyAPIServers(ctx, a.newAdminClient())
	if err != nil {
		return err
	}

	if serving < len(a.doc.Slots) {
		return newNotReadyError("%d of %d API servers serve", serving, len(a.doc.Slots))
	}

	return nil
}

// pullNewImages pulls the images that former does not have, so that a restart does not wait for them.
func pullNewImages(ctx context.Context, a *Agent, former node.Document) {
	if a.doc.Role != v1alpha1.RoleControlPlane {
		return
	}

	for _, name := range []string{
		node.ComponentAPIServer, node.ComponentControllerManager, node.ComponentScheduler,
	} {
		if a.doc.Images[name] != former.Images[name] {
			pullImages(ctx, a)
			return
		}
	}
}

// watchForNudges watches this machine's Node until ctx ends. When somebody sets the annotation
// [report.DesiredAnnotation], the revisions are read at once. The value is not trusted: it only says when to look.
func (f *follower) watchForNudges(ctx context.Context) {
	a := f.agent
	api := a.newNodeClient()
	if a.doc.Role == v1alpha1.RoleControlPlane {
		api = a.newAdminClient()
	}

	// A watch has no end; the server ends it after some minutes.
	patient := *api.HTTP
	patient.Timeout = 0
	api.HTTP = &patient
	path := "/api/v1/nodes?watch=1&timeoutSeconds=240&fieldSelector=metadata.name%3D" + a.instance.Name

	last := ""
	for {
		err := api.Watch(ctx, path, func(object json.RawMessage) {
			var n Node
			if json.Unmarshal(object, &n) == nil {
				last = f.nudgeIfChanged(last, n.Metadata.Annotations[report.DesiredAnnotation])
			}
		})
		if err != nil && ctx.Err() == nil {
			a.Log.Debug("cannot watch this machine's Node", slog.Any("error", err))
		}

		if a.Wait(ctx, 5*time.Second) != nil {
			return
		}
	}
}

// nudgeIfChanged nudges the follower if the annotation has changed, and returns its value.
func (f *follower) nudgeIfChanged(last, now string) string {
	if now == "" || now == last {
		return last
	}

	select {
	case f.nudges <- struct{}{}:
	default: // it is going to look anyway
	}

	return now
}
