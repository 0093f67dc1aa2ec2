// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"context"
	"strconv"
	"strings"
	"time"

	"github.com/slipway-k8s/slipway/internal/machine/etcd"
)

// failingMember counts how often the process of a member that does not answer has ended.
type failingMember struct {
	// since is when the member was first seen not to answer; zero while it answers.
	since time.Time
	// before is systemd's count of restarts at that time.
	before int
}

// runUnstartable decides for a member that does not answer: see [etcd.DecideUnstartable].
func (w *etcdMaintenance) runUnstartable(ctx context.Context, manager etcd.Manager) error {
	count, known := readExits(ctx, w.agent.Run, "etcd")
	if !known {
		return nil
	}

	now := w.now()
	if w.failing.since.IsZero() || count < w.failing.before { // systemd counts from 0 after the unit was started by request
		w.failing = failingMember{since: now, before: count}
	}

	exits := etcd.Exits{Count: count - w.failing.before, Since: w.failing.since}
	if exits.Count < etcd.UnstartableExits {
		return nil // the others need not be asked yet
	}

	survey, err := manager.SurveyOthers(ctx, w.member.slot.Name)
	if err != nil {
		return nil //nolint:nilerr // without a quorum nothing can be done here; validate says so
	}

	facts, err := w.gather(survey)
	if err != nil {
		return err
	}

	return w.act(ctx, manager, etcd.DecideUnstartable(facts, exits, etcd.CompareMembers(survey)))
}

// readExits returns how often systemd has restarted a unit because its process exited.
func readExits(ctx context.Context, run Runner, unit string) (exits int, known bool) {
	out, err := run.Run(ctx, "systemctl", "show", unit, "--property=NRestarts", "--value")
	if err != nil {
		return 0, false
	}

	exits, err = strconv.Atoi(strings.TrimSpace(out))

	return exits, err == nil
}
