// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"bytes"
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/slipway-k8s/slipway/api/v1alpha1"
	"github.com/slipway-k8s/slipway/internal/machine/addon"
	"github.com/slipway-k8s/slipway/internal/machine/node"
	"github.com/slipway-k8s/slipway/internal/machine/report"
)

// reportFollowed reports that the machine follows the current revision.
func (f *follower) reportFollowed(current node.Revision) {
	f.ignoredSince = time.Time{}
	state := report.RevisionCurrent
	if len(f.agent.documentState.Pending) > 0 {
		state = report.RevisionPending
	}

	f.reportState(current, state, "")
}

// reportState reports how far the machine follows a revision, and why it does not have it.
func (f *follower) reportState(current node.Revision, state report.RevisionState, cause string) {
	f.agent.setDocumentStatus(report.Revision{
		State:         state,
		Desired:       current.Document,
		DesiredSerial: current.Serial,
		Cause:         cause,
	})
}

// noteAddons notes whether the followed revision has other add-ons than the machine's document, because they need a
// new machine.
func (f *follower) noteAddons(ctx context.Context, current node.Revision) {
	a := f.agent
	status := *a.documentStatus.Load()
	status.otherAddons = false
	if len(a.documentState.Pending) > 0 && a.doc.Role == v1alpha1.RoleControlPlane {
		desired, err := f.readDesired(ctx, current)
		status.otherAddons = err != nil || desired.unknown != nil || !haveSameAddons(desired.document, a.doc)
	}

	a.documentStatus.Store(&status)
}

// haveSameAddons reports whether two documents have the same add-ons.
func haveSameAddons(x, y node.Document) bool {
	left, leftErr := addon.Render(addonValues(x))
	right, rightErr := addon.Render(addonValues(y))

	return leftErr == nil && rightErr == nil && slices.EqualFunc(left, right, func(a, b addon.Object) bool {
		return a.Path == b.Path && bytes.Equal(a.Body, b.Body)
	})
}

// reportIgnored reports why the machine does not follow the current revision.
func (f *follower) reportIgnored(current node.Revision, cause string) {
	f.noteIgnored(current, cause)
	state := report.RevisionUnknown
	if f.agent.documentState.Refused.Serial == current.Serial {
		state = report.RevisionRefused
		f.warn(fmt.Sprintf("revision %d was not applied: %s", current.Serial, cause),
			"correct the manifest and run slipway apply, or fix the cause and run slipway rolling-update cluster with "+
				"--retry-refused; the machine keeps its former settings until then")
	}

	f.reportState(current, state, cause)
}

// reportMissingRevisions warns if revisions that the machine has followed do not exist any more, or if the machine may not
// read them: S3 gives the same answer for both. A machine that boots before the first apply has ended knows none.
func (f *follower) reportMissingRevisions(cause error) {
	if f.agent.documentState.Serial == 0 {
		return
	}

	f.isMissing = true
	f.warn("the revisions of node documents cannot be read: "+cause.Error(),
		"rerun slipway apply, which writes them and the permissions of the machine's role; the machine keeps its settings")
}

// ignoredPatience is how long a machine may follow no revision until it warns: while apply runs, new machines have newer
// documents than the revisions.
const ignoredPatience = 5 * time.Minute

// noteIgnored warns if the machine has followed no revision for long.
func (f *follower) noteIgnored(current node.Revision, cause string) {
	now := f.agent.Now()
	if f.ignoredSince.IsZero() {
		f.ignoredSince = now
	}

	if now.Sub(f.ignoredSince) >= ignoredPatience {
		f.warn(fmt.Sprintf("revision %d is not followed: %s", current.Serial, cause),
			"rerun slipway apply; if that does not help, replace the machine with slipway rolling-update --force")
	}
}

func (f *follower) warn(cause, next string) {
	f.agent.conditions.Set(report.Condition{
		Component: report.NodeDocument,
		State:     report.Warning,
		Cause:     cause,
		Next:      next,
	}, f.agent.Now())
}
