// SPDX-License-Identifier: Apache-2.0

package rollingupdate

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"

	"github.com/slipway-k8s/slipway/internal/cluster/rollout"
	"github.com/slipway-k8s/slipway/internal/lib/diag"
)

// maxFormerVersions is how many launch template versions are searched for the document that machines follow.
const maxFormerVersions = 20

// adoptFollowed makes the launch template versions whose documents the machines follow the last good ones: machines that
// were not replaced since have applied later documents themselves, and serve with them.
func (u *updater) adoptFollowed(ctx context.Context, o rollout.Observation) error {
	if u.documents == nil {
		return nil
	}

	for _, g := range o.Groups {
		document := followedDocument(o, g)
		if document == "" {
			continue
		}

		version, err := u.versionOf(ctx, g, document)
		if err != nil {
			return err
		}

		if version != "" {
			u.good.versions[groupKey(g.Name, g.Slot)] = version
		}
	}

	return u.good.write(ctx)
}

// followedDocument returns the document that all serving machines of a group follow that were launched from an earlier
// template; empty if there are none, or if they follow several.
func followedDocument(o rollout.Observation, g rollout.Group) string {
	document := ""
	for _, m := range o.Machines {
		if m.Group != g.Name || m.Slot != g.Slot || m.Version == g.Version || m.Started || !m.IsServing() {
			continue
		}

		if m.Followed == "" || document != "" && document != m.Followed {
			return ""
		}

		document = m.Followed
	}

	return document
}

// versionOf returns the newest launch template version of a group with a document that is not older than the last good
// one; empty if there is none.
func (u *updater) versionOf(ctx context.Context, g rollout.Group, document string) (string, error) {
	newest, errNewest := strconv.Atoi(g.Version)
	oldest, errOldest := strconv.Atoi(u.good.versions[groupKey(g.Name, g.Slot)])
	if errNewest != nil || errOldest != nil {
		return "", nil //nolint:nilerr // versions without a number are not searched
	}

	for v := newest; v > max(oldest, newest-maxFormerVersions); v-- {
		found, err := u.documents.ReadDocument(ctx, g, strconv.Itoa(v))
		if err != nil {
			return "", err
		}

		if found == document {
			return strconv.Itoa(v), nil
		}
	}

	return "", nil
}

// observeApproved observes again under the lock. If others have changed the groups, or if further machines would be
// replaced than were approved, it fails.
func (u *updater) observeApproved(
	ctx context.Context,
	first rollout.Observation,
	options rollout.Options,
) (rollout.Observation, error) {
	now, err := u.observer.observe(ctx)
	if err != nil {
		return now, err
	}

	u.addMemory(&now)
	if change := describeChange(first, now, options); change != "" {
		return now, diag.WithHint(
			errors.New("the plan has changed since it was approved: "+change),
			"nothing was changed: rerun the command to see the present plan",
		)
	}

	return now, nil
}

// describeChange tells how a plan differs from the approved one; empty if it does not. Machines that have ended meanwhile
// are no difference.
func describeChange(first, now rollout.Observation, options rollout.Options) string {
	for _, g := range now.Groups {
		for _, was := range first.Groups {
			if was.Name == g.Name && was.Slot == g.Slot && was.Version != g.Version {
				return fmt.Sprintf("group %s had launch template version %s and has %s",
					groupKey(g.Name, g.Slot), was.Version, g.Version)
			}
		}
	}

	if !now.APIReady {
		return ""
	}

	approved := rollout.Plan(first, options)
	for _, a := range rollout.Plan(now, options) {
		if !slices.ContainsFunc(approved, func(b rollout.Action) bool { return a.Machine.ID == b.Machine.ID }) {
			return fmt.Sprintf("machine %s of %s would be replaced as well: %s", a.Machine.ID, a.Machine.Group, a.Reason)
		}
	}

	return ""
}
