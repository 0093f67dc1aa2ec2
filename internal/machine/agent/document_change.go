// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"log/slog"
	"time"

	"github.com/slipway-k8s/slipway/api/v1alpha1"
	"github.com/slipway-k8s/slipway/internal/machine/node"
)

// documentChange is a change of a machine to another document.
type documentChange struct {
	next node.Document
	// pending are the changes that need a new machine, and restarts the components that restart.
	pending  []node.Change
	restarts []string
	// soak is how long the components must work before other machines follow.
	soak time.Duration
	// isPart is set if the rest of the revision follows.
	isPart bool
}

// restartsOf returns the components of a role that the changes restart.
func restartsOf(changes []node.Change, role v1alpha1.Role) []string {
	var out []string
	for _, c := range changes {
		for _, component := range c.Restarts {
			onWorkers := component == node.ComponentKubelet || component == node.ComponentContainerd
			if role == v1alpha1.RoleControlPlane || onWorkers {
				out = append(out, component)
			}
		}
	}

	return out
}

// firstChange returns the part of a change that a machine of the control plane makes before it waits for its turn to restart
// components; nil if there is none, or if nothing restarts. Without a quorum of etcd it gets no turn, and the part may be
// what etcd needs to have a quorum again.
func firstChange(current node.Document, change documentChange) (*documentChange, error) {
	if current.Role != v1alpha1.RoleControlPlane || len(change.restarts) == 0 {
		return nil, nil
	}

	next, err := node.AdvanceFirst(current, change.next)
	if err != nil {
		return nil, err
	}

	differences, err := node.Compare(current, next)
	if err != nil || len(differences) == 0 {
		return nil, err
	}

	return &documentChange{next: next, isPart: true}, nil
}

// finishPart stores the state after a part of a revision was applied. The tasks that begin anew apply the rest.
func (f *follower) finishPart(change documentChange, current node.Revision, sum string) (*documentChangedError, error) {
	a := f.agent
	if err := a.writeDocumentState(a.documentState.CommitFirst(current, sum)); err != nil {
		return nil, err
	}

	a.Log.Info("applied what a new node document changes for etcd's members, before components restart",
		slog.Int64("revision", current.Serial), slog.String("sha256", sum))

	return &documentChangedError{document: change.next}, nil
}
