// SPDX-License-Identifier: Apache-2.0

// Package follow decides how a running machine follows the revisions of its group's node document.
//
// State is what a machine remembers across restarts of its agent: the revision that it followed last, one that it is
// applying, and one that it refused. [State.Decide] returns what to do with the revision that is current now. [Lock]
// is the record by which the machines of a cluster take turns, and [Lock.Decide] whose turn it is.
//
// The package is pure: it reads no store and changes no machine.
package follow

import (
	"cmp"
	"fmt"

	"github.com/slipway-k8s/slipway/internal/machine/node"
)

// maxAttempts is how often a machine begins to apply a revision. An agent that was killed in between begins again.
const maxAttempts = 3

// State is what a machine remembers of the revisions.
type State struct {
	// Instance is the id of the EC2 instance. The state on a disk that was copied from another instance is ignored.
	Instance string `json:"instance"`
	// Boot is the SHA-256 of the document in the machine's user data.
	Boot string `json:"boot"`
	// Serial of the newest revision that the machine followed; zero: none.
	Serial int64 `json:"serial,omitempty"`
	// Followed is the SHA-256 of that revision's document; empty: Boot.
	Followed string `json:"followed,omitempty"`
	// Effective is the SHA-256 of the document that the machine has; empty: Boot. It differs from Followed while a
	// part of that needs a new machine.
	Effective string `json:"effective,omitempty"`
	// Begun is the serial of a later revision than Serial, of which the machine has a part: what comes before its turn to
	// restart components. Zero: none.
	Begun int64 `json:"begun,omitempty"`
	// Pending are the changes of Followed that need a new machine.
	Pending []node.Change `json:"pending,omitempty"`
	// Attempt is the revision that the machine was applying when the state was written; zero: none.
	Attempt Attempt `json:"attempt,omitzero"`
	// Refused is the revision that the machine could not apply; zero: none.
	Refused Refusal `json:"refused,omitzero"`
}

// Attempt is a revision that a machine has begun to apply.
type Attempt struct {
	// Serial of the revision.
	Serial int64 `json:"serial"`
	// Count is how often it was begun.
	Count int `json:"count"`
	// Restarts are the components that it restarts. An agent that was stopped meanwhile restarts them, because they
	// may run with the revision's files although these were restored.
	Restarts []string `json:"restarts,omitempty"`
}

// Refusal is a revision that a machine could not apply. The machine has its former document.
type Refusal struct {
	// Serial of the revision.
	Serial int64 `json:"serial"`
	// Document is the SHA-256 of the revision's document.
	Document string `json:"document"`
	// Cause why it was refused.
	Cause string `json:"cause"`
}

// FollowedDocument returns the SHA-256 of the operator's document that the machine follows.
func (s State) FollowedDocument() string { return cmp.Or(s.Followed, s.Boot) }

// EffectiveDocument returns the SHA-256 of the document that the machine has.
func (s State) EffectiveDocument() string { return cmp.Or(s.Effective, s.Boot) }

// IsOf reports whether the state was written by the instance with this boot document.
func (s State) IsOf(instance, boot string) bool { return s.Instance == instance && s.Boot == boot }

// Step is what to do with the current revision.
type Step string

// The steps.
const (
	// StepNothing: the machine follows the revision, or knows a newer document.
	StepNothing Step = "nothing"
	// StepRecord: the revision has the document that the machine follows; only its serial is new.
	StepRecord Step = "record"
	// StepApply: the revision is to be applied.
	StepApply Step = "apply"
	// StepRefuse: the revision is not to be applied, for a reason that the state does not have yet.
	StepRefuse Step = "refuse"
	// StepIgnore: the revision is not followed, for the returned reason.
	StepIgnore Step = "ignore"
)

// Decide returns what to do with the current revision of the machine's group, and why it is not followed.
func (s State) Decide(current node.Revision) (Step, string) {
	followed := s.FollowedDocument()
	isFollowed := current.Document == followed && s.Begun == 0

	switch {
	case current.Serial < s.Serial:
		return StepIgnore, fmt.Sprintf("revision %d is older than revision %d, which this machine followed",
			current.Serial, s.Serial)
	case isFollowed && current.Serial == s.Serial:
		return StepNothing, ""
	case isFollowed:
		return StepRecord, ""
	case !current.Knows(followed):
		return StepIgnore, fmt.Sprintf("revision %d does not know the document of this machine, which is newer",
			current.Serial)
	case s.Refused.Serial == current.Serial:
		return StepIgnore, s.Refused.Cause
	case s.Attempt.Serial == current.Serial && s.Attempt.Count >= maxAttempts:
		return StepRefuse, fmt.Sprintf("the agent was stopped %d times while it applied revision %d",
			s.Attempt.Count, current.Serial)
	default:
		return StepApply, ""
	}
}

// Begin returns the state while a revision is being applied. It has to be stored before the machine is changed: an
// agent that starts with it restores the effective document first.
func (s State) Begin(r node.Revision, restarts []string) State {
	count := 1
	if s.Attempt.Serial == r.Serial {
		count = s.Attempt.Count + 1
	}

	s.Attempt = Attempt{Serial: r.Serial, Count: count, Restarts: restarts}

	return s
}

// CommitFirst returns the state after a part of a revision was applied, which leaves an effective document that was stored
// before. The revision is not followed yet.
func (s State) CommitFirst(r node.Revision, effective string) State {
	s.Effective = effective
	s.Begun = r.Serial
	s.Attempt = Attempt{}

	return s
}

// Commit returns the state after a revision was applied, except for the pending changes. The effective document has
// to be stored before.
func (s State) Commit(r node.Revision, effective string, pending []node.Change) State {
	return State{
		Instance:  s.Instance,
		Boot:      s.Boot,
		Serial:    r.Serial,
		Followed:  r.Document,
		Effective: effective,
		Pending:   pending,
	}
}

// Record returns the state for a revision with the document that the machine follows already.
func (s State) Record(r node.Revision) State {
	s.Serial = r.Serial
	s.Followed = r.Document
	s.Attempt = Attempt{}
	s.Refused = Refusal{}

	return s
}

// Refuse returns the state after a revision was not applied.
func (s State) Refuse(r node.Revision, cause string) State {
	s.Attempt = Attempt{}
	s.Refused = Refusal{Serial: r.Serial, Document: r.Document, Cause: cause}

	return s
}

// RefuseUnrestored returns the state after a revision was not applied and the former document was not restored either:
// the next process of the agent has to converge the machine.
func (s State) RefuseUnrestored(r node.Revision, cause string) State {
	attempt := s.Attempt
	s = s.Refuse(r, cause)
	s.Attempt = attempt

	return s
}

// Settle returns the state after an agent has converged the machine to its effective document.
func (s State) Settle() State {
	if s.Attempt.Serial == s.Refused.Serial {
		s.Attempt = Attempt{}
	}

	return s
}

// RefusedCause returns why the revision was refused; empty if it was not.
func (s State) RefusedCause(serial int64) string {
	if s.Refused.Serial != serial {
		return ""
	}

	return s.Refused.Cause
}
