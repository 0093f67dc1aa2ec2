// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"hash/fnv"
	"log/slog"
	"strings"
	"sync/atomic"
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

// takeTurn asks for the machine's turn. It may restart components if the result is TurnTake or TurnFree.
func (f *follower) takeTurn(ctx context.Context, current node.Revision) (follow.Turn, error) {
	a := f.agent
	if a.Now().Before(f.claimAfter) {
		return follow.TurnWait, nil
	}

	if a.doc.Role == v1alpha1.RoleControlPlane {
		if err := f.notSafe(ctx); err != nil {
			f.reportWaiting(current, err.Error())
			return follow.TurnWait, nil
		}
	}

	turn, reason, err := f.turns.claim(ctx, f.newClaim(current))
	switch {
	case err != nil:
		return follow.TurnWait, err
	case turn == follow.TurnRefused:
		return turn, f.refuseAsOthers(ctx, current, reason)
	case turn == follow.TurnWait:
		f.claimAfter = a.Now().Add(pauseBetweenClaims(a.doc.Role, a.instance.ID))
		f.reportWaiting(current, reason)
	}

	return turn, nil
}

// reportWaiting reports why the machine does not apply a revision yet.
func (f *follower) reportWaiting(current node.Revision, reason string) {
	f.reportState(current, report.RevisionWaiting, reason)
}

// pauseBetweenClaims returns how long a machine waits until it asks for its turn again. A thousand workers must not ask
// at the same time, so theirs differ.
func pauseBetweenClaims(role v1alpha1.Role, instance string) time.Duration {
	if role == v1alpha1.RoleControlPlane {
		return followInterval
	}

	spread := fnv.New32a()
	_, _ = spread.Write([]byte(instance))

	return 5*time.Second + time.Duration(spread.Sum32()%10000)*time.Millisecond
}

// renewInterval is the time between two renewals of the lock.
const renewInterval = follow.HoldTime / 4

// keptTurn is a turn that is renewed until stop is called.
type keptTurn struct {
	stop func()
	lost atomic.Bool
}

// check returns an error if another machine may have the turn now.
func (t *keptTurn) check() error {
	if t.lost.Load() {
		return errors.New("the machine lost its turn while it restarted components")
	}

	return nil
}

// keepTurn renews the machine's turn until it is stopped. A turn that cannot be renewed for as long as it lasts is lost.
func (f *follower) keepTurn(ctx context.Context, current node.Revision, isNeeded bool) *keptTurn {
	out := &keptTurn{stop: func() {}}
	if !isNeeded {
		return out
	}

	ctx, cancel := context.WithCancel(ctx)
	done := make(chan struct{})
	claim := f.newClaim(current)
	renewed := f.agent.Now()
	go func() {
		defer close(done)
		for f.agent.Wait(ctx, renewInterval) == nil {
			isHeld := false
			err := f.turns.change(ctx, func(l follow.Lock) follow.Lock {
				isHeld = l.Holds(claim.Machine)
				return l.Renew(claim, f.agent.Now())
			})

			switch {
			case ctx.Err() != nil:
				return
			case err == nil && isHeld:
				renewed = f.agent.Now()
			case err == nil || f.agent.Now().Sub(renewed) >= follow.HoldTime:
				out.lost.Store(true)
			default:
				f.agent.Log.Warn("cannot renew the update lock", slog.Any("error", err))
			}
		}
	}()

	out.stop = func() {
		cancel()
		<-done
	}

	return out
}

// endTurn tells the other machines how it went, and releases the lock. An empty cause is a success, which counts only
// if the machine went first.
func (f *follower) endTurn(ctx context.Context, current node.Revision, cause string) error {
	claim := f.newClaim(current)
	err := f.turns.change(ctx, func(l follow.Lock) follow.Lock {
		if l.Holder != claim.Machine && cause == "" {
			return l.Drop(claim.Machine)
		}

		return l.Release(claim, cause)
	})
	f.released = err == nil

	return err
}

// dropTurn releases the lock, if this machine holds it, and says nothing about the revision.
func (f *follower) dropTurn(ctx context.Context) error {
	machine := f.agent.instance.ID
	err := f.turns.change(ctx, func(l follow.Lock) follow.Lock { return l.Drop(machine) })
	f.released = err == nil

	return err
}

// releaseOldTurn releases the lock that an earlier process of the agent held when it was killed after its change.
// Nothing depends on it: a lock that is not released expires. How it went is known only of the revision that the state
// has a result for.
func (f *follower) releaseOldTurn(ctx context.Context, current node.Revision) {
	state := f.agent.documentState
	if f.released || state.Attempt.Serial == current.Serial {
		return // nothing to release, or the turn continues
	}

	if state.Serial == 0 && state.Refused.Serial == 0 {
		f.released = true // a new machine
		return
	}

	cause := state.RefusedCause(current.Serial)
	hasResult := state.Serial == current.Serial || cause != ""
	var err error
	if hasResult && !strings.HasPrefix(cause, follow.RefusedByOther) {
		err = f.endTurn(ctx, current, cause)
	} else {
		err = f.dropTurn(ctx)
	}

	if err != nil {
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

const (
	// pullTimeout limits one attempt to pull an image.
	pullTimeout = 3 * time.Minute
	// pullAttempts is how often a pull is tried.
	pullAttempts = 3
)

// pullNewImages pulls the images that components run from and that former does not have: a component whose image cannot
// be pulled would not start again.
func pullNewImages(ctx context.Context, a *Agent, former node.Document) error {
	names := []string{"pause"}
	if a.doc.Role == v1alpha1.RoleControlPlane {
		names = append(names, node.ComponentAPIServer, node.ComponentControllerManager, node.ComponentScheduler)
	}

	for _, name := range names {
		ref := a.doc.Images[name]
		if ref == former.Images[name] {
			continue
		}

		if err := a.pullImageRepeatedly(ctx, ref); err != nil {
			return fmt.Errorf("pull image %s: %w", ref, err)
		}
	}

	return nil
}

// pullImageRepeatedly pulls an image and tries it again if it fails.
func (a *Agent) pullImageRepeatedly(ctx context.Context, ref string) error {
	var err error
	for range pullAttempts {
		attempt, cancel := context.WithTimeout(ctx, pullTimeout)
		err = a.pullImage(attempt, ref)
		cancel()
		if err == nil || ctx.Err() != nil {
			return err
		}

		if waitErr := a.Wait(ctx, 5*time.Second); waitErr != nil {
			return waitErr
		}
	}

	return err
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
