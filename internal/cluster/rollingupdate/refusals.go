// SPDX-License-Identifier: Apache-2.0

package rollingupdate

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/slipway-k8s/slipway/internal/cluster/rollout"
	"github.com/slipway-k8s/slipway/internal/lib/diag"
)

// A machine that could not apply its group's node document has refused it and works as before. New machines would boot
// with this document, so an update stops, unless it is forced. If the cause was temporary, such as a registry that did
// not answer, the machines can try again.

// findRefusal describes a machine of the groups (empty: all) that has refused its group's node document; empty if there
// is none.
func findRefusal(o rollout.Observation, groups []string) string {
	for _, m := range o.Machines {
		if m.RefusedDocument == "" || len(groups) > 0 && !slices.Contains(groups, m.Group) {
			continue
		}

		return fmt.Sprintf("machine %s could not apply the node document that new machines of group %s get: %s",
			m.ID, m.Group, m.RefusedDocument)
	}

	return ""
}

// ignoresRefusals reports whether machines are replaced although others have refused the document: on request, and when
// the groups return to former documents.
func (u *updater) ignoresRefusals() bool {
	return u.request.Force || u.request.Rollback || len(u.versions) > 0
}

// checkRefusals returns an error if a machine has refused the document of its group.
func (u *updater) checkRefusals(o rollout.Observation) error {
	refusal := findRefusal(o, u.request.Groups)
	if refusal == "" || u.ignoresRefusals() {
		return nil
	}

	return diag.WithHint(
		errors.New(refusal),
		"correct the manifest and run slipway apply "+u.request.Name+"; or fix the cause and add --retry-refused; or return "+
			"to the former settings with --rollback; with --force machines are replaced nevertheless",
	)
}

// refusals are the machines that have refused their document, by group.
func (u *updater) refusals(o rollout.Observation) map[string][]string {
	out := map[string][]string{}
	for _, m := range o.Machines {
		if m.RefusedDocument != "" && (len(u.request.Groups) == 0 || slices.Contains(u.request.Groups, m.Group)) {
			out[m.Group] = append(out[m.Group], m.ID)
		}
	}

	return out
}

// retryRefused lets machines that have refused their document try it again, if the request asks for it, and returns what
// is observed when they have.
func (u *updater) retryRefused(
	ctx context.Context,
	first rollout.Observation,
	underLock func(context.Context, func(context.Context) error) error,
) (rollout.Observation, error) {
	refused := u.refusals(first)
	if !u.request.RetryRefused || len(refused) == 0 {
		return first, nil
	}

	var groups []string
	for group, machines := range refused {
		groups = append(groups, group)
		u.notify("machines of group %s that try their node document again: %s", group, strings.Join(machines, ", "))
	}

	slices.Sort(groups)
	u.notify("%s", findRefusal(first, u.request.Groups))
	if err := u.request.ApproveRetry(groups); err != nil {
		return first, err
	}

	err := underLock(ctx, func(work context.Context) error {
		serials, err := u.documents.Retry(work, groups)
		if err != nil {
			return err
		}

		return u.awaitSerials(work, serials)
	})
	if err != nil {
		return first, err
	}

	return u.observeFirst(ctx, u.awaitFollowers)
}

// awaitSerials waits until the machines that have refused a document have seen the revisions with these serials, by
// group. Machines that do not see them in time are treated as they are.
func (u *updater) awaitSerials(ctx context.Context, serials map[string]int64) error {
	start := u.now()
	for u.now().Sub(start) < unawareTime {
		o, err := u.observer.observe(ctx)
		if err != nil {
			return err
		}

		if !slices.ContainsFunc(o.Machines, func(m rollout.Machine) bool {
			return m.RefusedDocument != "" && m.RefusedSerial < serials[m.Group]
		}) {
			return nil
		}

		if err := sleep(ctx, u.pause()); err != nil {
			return err
		}
	}

	return nil
}
