// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/slipway-k8s/slipway/api/v1alpha1"
	"github.com/slipway-k8s/slipway/internal/lib/store"
	"github.com/slipway-k8s/slipway/internal/machine/etcd"
	"github.com/slipway-k8s/slipway/internal/machine/follow"
	"github.com/slipway-k8s/slipway/internal/machine/node"
	"github.com/slipway-k8s/slipway/internal/machine/report"
)

const (
	// revisionInterval is the time between two reads of the revisions, if nobody asks for one.
	revisionInterval = time.Minute
	// followInterval is the time between two looks at what there is to do.
	followInterval = 2 * time.Second
	// revisionTimeout limits one read of the revisions or of a document.
	revisionTimeout = 30 * time.Second
)

// ChangingReader reads objects of the machine store that change.
type ChangingReader interface {
	// ReadIfChanged returns an object and its ETag, or a nil body if it still has this ETag. The error wraps
	// store.ErrNotFound if the object does not exist.
	ReadIfChanged(ctx context.Context, url, etag string) (body []byte, newETag string, err error)
}

// documentChangedError ends the tasks of an agent, because its document has changed. It is no failure.
type documentChangedError struct {
	document node.Document
}

// Error says what happened.
func (documentChangedError) Error() string { return "the node document has changed" }

// documentStatus is what a machine reports of its document.
type documentStatus struct {
	report.Revision

	// effective is the SHA-256 of the document that the machine has.
	effective string
	// otherAddons is set if the followed revision has other add-ons than the machine's document.
	otherAddons bool
}

// setDocumentStatus reports s, with what the state says of the revision.
func (a *Agent) setDocumentStatus(s report.Revision) {
	state := a.documentState
	s.Serial = state.Serial
	s.Followed = state.FollowedDocument()
	for _, c := range state.Pending {
		s.Pending = append(s.Pending, c.Setting)
	}

	// Until the followed document is compared, what needs a new machine may contain add-ons.
	status := &documentStatus{
		Revision:    s,
		effective:   state.EffectiveDocument(),
		otherAddons: len(state.Pending) > 0,
	}
	if before := a.documentStatus.Load(); before != nil {
		status.otherAddons = before.otherAddons
	}

	a.documentStatus.Store(status)
}

// turns is the lock by which machines take turns.
type turns interface {
	claim(ctx context.Context, c follow.Claim) (follow.Turn, string, error)
	change(ctx context.Context, how func(follow.Lock) follow.Lock) error
}

// follower follows the revisions of the machine's node document: it applies what needs no new machine, and reports
// the rest.
type follower struct {
	agent *Agent
	turns turns
	// control restarts components; tests replace it.
	control func(from, to *Agent) componentControl
	// notSafe returns why no component of the control plane may restart now; nil if one may.
	notSafe func(ctx context.Context) error
	// members returns a client for etcd, and etcdURL is where it reaches the machine's own member.
	members func() etcd.Manager
	etcdURL string
	// nudges tell that the revisions have changed.
	nudges chan struct{}

	etag      string
	revisions node.Revisions
	readAfter time.Time
	desired   desiredDocument
	// claimAfter is when the machine asks for its turn again.
	claimAfter time.Time
	// soak is how long the first worker of a group must work with a new document before others apply it.
	soak time.Duration
	// ignoredSince is since when the machine follows no revision; zero if it does.
	ignoredSince time.Time
	// isMissing is set while the revisions cannot be read, although the machine has followed one.
	isMissing bool
	// released is set once the lock was released that an earlier process of the agent may have held.
	released bool
	lastErr  string
	// leave is how far the machine has left the control plane, whose size has become smaller.
	leave leaveState
}

// desiredDocument is a downloaded document.
type desiredDocument struct {
	sum      string
	document node.Document
	// unknown is why this agent cannot read it; nil if it can.
	unknown error
}

func newFollower(a *Agent) *follower {
	return &follower{
		agent:   a,
		turns:   newUpdateLock(a),
		control: newMachineControl,
		notSafe: a.checkSafeToRestart,
		members: a.newEtcdManager,
		etcdURL: etcd.ClientURL,
		nudges:  make(chan struct{}, 1),
		soak:    canarySoak,
	}
}

// run follows the revisions until ctx ends. It returns a documentChangedError when the machine has another document:
// all tasks then have to begin anew.
func (f *follower) run(ctx context.Context) error {
	watchCtx, stop := context.WithCancel(ctx)
	watched := make(chan struct{})
	go func() {
		defer close(watched)
		f.watchForNudges(watchCtx)
	}()

	// It reads the agent's document, which changes when all tasks have ended.
	defer func() {
		stop()
		<-watched
	}()

	for {
		next, err := f.step(ctx)
		switch {
		case next != nil:
			return *next
		case ctx.Err() != nil:
			return ctx.Err()
		case isUnrestored(err), errors.Is(err, errSlotReturned):
			return err
		case err == nil:
			f.lastErr = ""
		case err.Error() != f.lastErr:
			f.lastErr = err.Error()
			f.agent.Log.Warn("cannot follow the node document; will retry", slog.Any("error", err))
		}

		if err := f.agent.Wait(ctx, followInterval); err != nil {
			return err
		}
	}
}

func isUnrestored(err error) bool {
	_, ok := errors.AsType[unrestoredError](err)

	return ok
}

// step takes one step. The result is nil unless the machine's document has changed.
func (f *follower) step(ctx context.Context) (*documentChangedError, error) {
	if err := f.readRevisions(ctx); err != nil {
		return nil, err
	}

	a := f.agent
	current, published := f.revisions.Groups[a.doc.Group]
	if !published {
		a.setDocumentStatus(report.Revision{State: report.RevisionUnknown})
		return nil, nil
	}

	if settled := a.documentState.Settle(); settled.Attempt.Serial != a.documentState.Attempt.Serial {
		if err := a.writeDocumentState(settled); err != nil {
			return nil, err
		}
	}

	f.releaseOldTurn(ctx, current)

	step, reason := a.documentState.Decide(current)
	if f.leave.began() && step != follow.StepApply {
		return nil, errSlotReturned
	}

	switch step {
	case follow.StepRecord:
		return nil, f.finish(ctx, a.documentState.Record(current), current)
	case follow.StepApply:
		return f.applyRevision(ctx, current)
	case follow.StepRefuse:
		return nil, f.refuse(ctx, current, reason)
	case follow.StepIgnore:
		f.reportIgnored(current, reason)
		return nil, nil
	default:
		f.reportFollowed(current)
		f.noteAddons(ctx, current)

		return nil, nil
	}
}

// readRevisions reads and verifies the revisions if they are due.
func (f *follower) readRevisions(ctx context.Context) error {
	a := f.agent
	nudged := false
	select {
	case <-f.nudges:
		nudged = true
	default:
	}

	if !nudged && a.Now().Before(f.readAfter) {
		return nil
	}

	url, err := node.SiblingURL(a.Boot.Document.URL, a.doc.Cluster, node.RevisionsKey(a.doc.Cluster, a.doc.Role))
	f.readAfter = a.Now().Add(revisionInterval)
	if err != nil || a.Changing == nil {
		return nil // a document from elsewhere has no revisions
	}

	ctx, cancel := context.WithTimeout(ctx, revisionTimeout)
	defer cancel()
	body, etag, err := a.Changing.ReadIfChanged(ctx, url, f.etag)
	switch {
	case errors.Is(err, store.ErrNotFound):
		f.etag = ""
		f.revisions = node.Revisions{}
		f.reportMissingRevisions(err)

		return nil

	case err != nil:
		return err
	case body == nil:
		return nil
	}

	revisions, err := node.VerifyRevisions(body, a.doc.Trust.KubernetesCA, a.doc.Cluster, a.doc.Role)
	if err != nil {
		f.warn(err.Error(), "rerun slipway apply, which signs the revisions again")
		return err
	}

	f.etag = etag
	f.revisions = revisions
	if f.isMissing {
		f.agent.conditions.Clear(report.NodeDocument)
		f.isMissing = false
	}

	return nil
}

// applyRevision applies what it can of a revision, when it is this machine's turn.
func (f *follower) applyRevision(ctx context.Context, current node.Revision) (*documentChangedError, error) {
	a := f.agent
	desired, err := f.readDesired(ctx, current)
	if err != nil {
		return nil, err
	}

	if desired.unknown != nil {
		return nil, f.finish(ctx, a.documentState.Commit(current, a.documentState.Effective,
			[]node.Change{{Setting: "agent", Class: node.ClassReplace}}), current)
	}

	if f.isLeaving(desired.document) {
		return nil, f.leaveControlPlane(ctx, current, desired.document)
	}

	if f.leave.began() {
		return nil, errSlotReturned
	}

	next, pending, err := node.Advance(a.doc, desired.document)
	if err != nil {
		return nil, f.refuse(ctx, current, err.Error())
	}

	changes, err := node.Compare(a.doc, next)
	if err != nil {
		return nil, err
	}

	if len(changes) == 0 {
		sum, err := a.storeEffectiveDocument(a.doc)
		if err != nil {
			return nil, err
		}

		return nil, f.finish(ctx, a.documentState.Commit(current, sum, pending), current)
	}

	if readAPIStop(a).lasts(a.Now()) { // a change would start it, or fail without it
		f.reportWaiting(current, "the API server is stopped while etcd moves")
		return nil, nil
	}

	change := documentChange{next: next, pending: pending, restarts: restartsOf(changes, a.doc.Role)}
	first, err := firstChange(a.doc, change)
	if err != nil {
		return nil, f.refuse(ctx, current, err.Error())
	}

	if first != nil {
		return f.changeTo(ctx, *first, current)
	}

	return f.changeInTurn(ctx, change, current)
}

// changeInTurn makes a change at once if it restarts nothing, otherwise when it is this machine's turn.
func (f *follower) changeInTurn(
	ctx context.Context,
	change documentChange,
	current node.Revision,
) (*documentChangedError, error) {
	a := f.agent
	if len(change.restarts) > 0 {
		f.reportWaiting(current, "images are being pulled")
		if err := pullNewImages(ctx, a.withDocument(change.next), a.doc); err != nil {
			return nil, f.refuse(ctx, current, err.Error())
		}

		turn, err := f.takeTurn(ctx, current)
		if turn != follow.TurnTake && turn != follow.TurnFree {
			return nil, err
		}

		if turn == follow.TurnTake && a.doc.Role != v1alpha1.RoleControlPlane {
			change.soak = f.soak
		}
	}

	return f.changeTo(ctx, change, current)
}

// readDesired downloads the document of a revision.
func (f *follower) readDesired(ctx context.Context, current node.Revision) (desiredDocument, error) {
	a := f.agent
	if f.desired.sum == current.Document {
		return f.desired, nil
	}

	key := node.DocumentKey(a.doc.Cluster, a.doc.Role, a.doc.Group, current.Document)
	url, err := node.SiblingURL(a.Boot.Document.URL, a.doc.Cluster, key)
	if err != nil {
		return desiredDocument{}, err
	}

	ctx, cancel := context.WithTimeout(ctx, revisionTimeout)
	defer cancel()
	doc, err := a.downloadDocument(ctx, node.Download{URL: url, SHA256: current.Document})
	out := desiredDocument{sum: current.Document, document: doc}
	if _, permanent := errors.AsType[permanentError](err); permanent {
		out.unknown = err
	} else if err != nil {
		return desiredDocument{}, fmt.Errorf("read revision %d of the node document: %w", current.Serial, err)
	}

	f.desired = out

	return out, nil
}

// changeTo changes the machine to a document.
func (f *follower) changeTo(
	ctx context.Context,
	change documentChange,
	current node.Revision,
) (*documentChangedError, error) {
	a := f.agent
	to := a.withDocument(change.next)
	sum, err := a.storeEffectiveDocument(change.next)
	if err != nil {
		return nil, err
	}

	if err := a.writeDocumentState(a.documentState.Begin(current, change.restarts)); err != nil {
		return nil, err
	}

	f.reportState(current, report.RevisionApplying, "")
	turn := f.keepTurn(ctx, current, len(change.restarts) > 0)
	t := transition{from: a, to: to, control: f.control, soak: change.soak, mayGoOn: turn.check}
	err = t.run(ctx)
	turn.stop()

	switch {
	case ctx.Err() != nil:
		return nil, ctx.Err() // the next process restores the former document first
	case err != nil:
		return nil, f.refuseFailed(ctx, current, err)
	}

	if change.isPart {
		return f.finishPart(change, current, sum)
	}

	a.Report.Done("document")
	a.Log.Info("applied a new node document", slog.Int64("revision", current.Serial), slog.String("sha256", sum))
	err = f.finish(ctx, a.documentState.Commit(current, sum, change.pending), current)
	if a.documentState.Serial != current.Serial {
		return nil, err
	}

	// The machine has its new document. If its turn could not be ended, the next tasks do it.

	return &documentChangedError{document: change.next}, nil
}

// unrestoredError ends the agent, because neither a new document nor the former one could be applied completely. The next
// process converges the machine to the former one.
type unrestoredError struct{ cause error }

// Error returns the cause.
func (e unrestoredError) Error() string { return e.cause.Error() }

// Unwrap returns the cause.
func (e unrestoredError) Unwrap() error { return e.cause }

// refuseFailed refuses a revision that could not be applied. If the former document was not restored, the result is an
// unrestoredError.
func (f *follower) refuseFailed(ctx context.Context, current node.Revision, failure error) error {
	if _, ok := errors.AsType[rolledBackError](failure); ok {
		return f.refuse(ctx, current, failure.Error())
	}

	cause := failure.Error()
	if err := f.agent.writeDocumentState(f.agent.documentState.RefuseUnrestored(current, cause)); err != nil {
		return unrestoredError{errors.Join(failure, err)}
	}

	f.agent.Report.Failed("document", failure)
	f.reportIgnored(current, cause)

	return unrestoredError{errors.Join(failure, f.endTurn(ctx, current, cause))}
}

// finish stores the state after a revision was followed, and ends the machine's turn.
func (f *follower) finish(ctx context.Context, s follow.State, current node.Revision) error {
	if err := f.agent.writeDocumentState(s); err != nil {
		return err
	}

	f.agent.conditions.Clear(report.NodeDocument)
	f.reportFollowed(current)

	return f.endTurn(ctx, current, "")
}

// refuseAsOthers stores that another machine could not apply a revision.
func (f *follower) refuseAsOthers(ctx context.Context, current node.Revision, cause string) error {
	if err := f.agent.writeDocumentState(f.agent.documentState.Refuse(current, cause)); err != nil {
		return err
	}

	f.reportIgnored(current, cause)

	return f.dropTurn(ctx)
}

// refuse stores that this machine cannot apply a revision, tells the other machines, and reports it.
func (f *follower) refuse(ctx context.Context, current node.Revision, cause string) error {
	if err := f.agent.writeDocumentState(f.agent.documentState.Refuse(current, cause)); err != nil {
		return err
	}

	f.agent.Report.Failed("document", fmt.Errorf("revision %d was not applied: %s", current.Serial, cause))
	f.reportIgnored(current, cause)

	return f.endTurn(ctx, current, cause)
}
