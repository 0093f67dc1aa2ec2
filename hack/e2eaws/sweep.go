// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"time"

	"github.com/slipway-k8s/slipway/internal/lib/diag"
	"github.com/slipway-k8s/slipway/internal/lib/plainerror"
)

// settleLimit is how long resources may still be listed after 'slipway delete cluster' before they count as left: AWS
// answers with what was true a moment ago.
const settleLimit = time.Minute

// sweepResources removes everything that still has the id of the run, and proves that nothing is left. deleted is set if 'slipway
// delete cluster' has succeeded: then it should have left only the state store.
func (r *run) sweepResources(ctx context.Context, deleted bool) error {
	s := &sweepReport{LeftByDelete: []string{}, Scheduled: []string{}}
	r.report.Sweep = s
	found, err := r.listSettled(ctx)
	if err != nil {
		r.printError(err) // removeResources lists again, and reports what it could not list
	}

	if len(found) > 0 && deleted {
		for _, left := range found {
			s.LeftByDelete = append(s.LeftByDelete, r.program.mask.hideSecrets(left.String()))
		}
	}

	if len(found) > 0 {
		r.deleteAgain(ctx)
	}

	s.Left = []string{}
	for _, line := range r.inventory.removeResources(ctx) {
		s.Left = append(s.Left, r.program.mask.hideSecrets(line))
	}

	scheduled, err := r.inventory.listScheduled(ctx)
	if err != nil {
		return fmt.Errorf("list the keys that are deleted later: %w", plainerror.Wrap(err))
	}

	s.Scheduled = append(s.Scheduled, scheduled...)
	r.askTagIndex(ctx, s)
	if !s.isClean() {
		return fmt.Errorf("%d resources are left", len(s.Left))
	}

	return nil
}

// listSettled returns the resources of the cluster that are still listed after a while.
func (r *run) listSettled(ctx context.Context) ([]resource, error) {
	deadline := r.now().Add(settleLimit)
	for {
		all, err := r.inventory.listResources(ctx)
		found := clusterResources(all)
		if err != nil || len(found) == 0 || !r.created || r.now().After(deadline) {
			return found, err
		}

		if err := pauseFor(ctx, maxRemovePause); err != nil {
			return found, err
		}
	}
}

// deleteAgain deletes the cluster of a run that was killed or whose deletion failed. All its commands have ended, so a
// lock of the cluster is theirs.
func (r *run) deleteAgain(ctx context.Context) {
	var unlock stepReport
	if _, err := r.runSlipway(ctx, &unlock, []int{0}, "unlock", r.id.clusterName(), "--yes"); err != nil {
		r.printLine("no lock was released: %s", firstLine(err.Error()))
	}

	again := r.deleteStep()
	again.name = "delete-again"
	r.runStep(ctx, again)
	r.broken = ""
}

// askTagIndex adds what the Resource Groups Tagging API says.
func (r *run) askTagIndex(ctx context.Context, s *sweepReport) {
	index := tagIndex{account: r.account, client: &http.Client{Timeout: time.Minute}, now: r.now}
	answer, err := index.findResources(ctx, r.id, r.inventory.allKinds())
	if err != nil {
		s.TagIndex = r.program.mask.hideSecrets("not asked: " + plainerror.Text(err.Error()))
		return
	}

	s.TagIndex = fmt.Sprintf("it lists no resource of an unknown kind, and %d that their services no longer have", answer.known)
	if len(answer.unknown) > 0 {
		s.TagIndex = fmt.Sprintf("it lists %d resources of unknown kinds, see what is left", len(answer.unknown))
	}

	for _, arn := range answer.unknown {
		s.Left = append(s.Left, r.program.mask.hideSecrets(arn+": of a kind that the sweep does not know; delete it by hand"))
	}
}

// sweepKilledRuns sweeps the earlier runs of this computer in the same place that have not ended with a sweep.
func (h harness) sweepKilledRuns(ctx context.Context) error {
	paths, err := filepath.Glob(filepath.Join(h.settings.directory, "*", recordFile))
	if err != nil {
		return fmt.Errorf("list the runs in %s: %w", h.settings.directory, err)
	}

	for _, path := range paths {
		d, err := openRunDirectory(filepath.Dir(path))
		if err != nil {
			return err
		}

		if d.record.Clean || !h.isPlaceOf(d.record) {
			continue
		}

		err = d.acquireLock()
		if errors.Is(err, errRunning) {
			h.printLine("run %s is still running: it is not swept", d.record.ID)
			continue
		}

		if err == nil {
			err = h.sweepDirectory(ctx, d)
		}

		if err != nil {
			return diag.WithHint(err, "no new run was started: delete what is left, then make e2e-aws SWEEP="+string(d.record.ID))
		}
	}

	return nil
}

// isPlaceOf reports whether a run has created its resources where this process would.
func (h harness) isPlaceOf(record runRecord) bool {
	return record.Account == h.account.id && record.Region == h.settings.region && record.Endpoint == h.account.endpoint
}

// sweepNamedRun sweeps one run, also one of another computer, of which this one has no record.
func (h harness) sweepNamedRun(ctx context.Context, id runID) error {
	path := filepath.Join(h.settings.directory, string(id))
	d, err := openRunDirectory(path)
	if errors.Is(err, os.ErrNotExist) {
		h.printLine("run %s has no record in %s: it is swept by its id", id, h.settings.directory)
		d, err = h.createRunDirectory(id)
		if err != nil {
			return err
		}

		return h.sweepDirectory(ctx, d)
	}

	if err != nil {
		return err
	}

	if !h.isPlaceOf(d.record) {
		return diag.WithHint(
			fmt.Errorf("run %s is of another account, region or endpoint: %s at %q", id, d.record.Region, d.record.Endpoint),
			"set "+variableRegion+" and AWS_ENDPOINT_URL as in "+filepath.Join(path, recordFile),
		)
	}

	if err := h.waitForLock(ctx, &d); err != nil {
		return err
	}

	return h.sweepDirectory(ctx, d)
}

// sweepDirectory sweeps a run whose lock is held. An interrupt ends it.
func (h harness) sweepDirectory(ctx context.Context, d runDirectory) error {
	h.printLine("sweeping run %s of %s", d.record.ID, d.record.Started.Format(time.RFC3339))
	r, err := h.openRun(ctx, d)
	if err != nil {
		return err
	}

	limited, stop := context.WithTimeoutCause(ctx, deletionLimit, errTimeLimit)
	defer stop()
	err = r.sweepResources(limited, false)
	if writeErr := r.report.writeSweep(d.path); writeErr != nil {
		return writeErr
	}

	if err == nil {
		h.printLine("run %s: nothing is left", d.record.ID)
		return d.markClean()
	}

	for _, line := range r.report.Sweep.Left {
		h.printLine("left: %s", line)
	}

	return fmt.Errorf("sweep run %s: %w", d.record.ID, err)
}
