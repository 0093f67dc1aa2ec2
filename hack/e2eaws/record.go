// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"syscall"
	"time"

	"github.com/slipway-k8s/slipway/internal/lib/diag"
	"github.com/slipway-k8s/slipway/internal/lib/privatefile"
)

// runTag is the key of the tag with the id of the run.
const runTag = "slipway-e2e-run"

// lockWait is how long a sweep waits for commands of the run that outlive it: an apply of Slipway ends by itself.
const lockWait = 10 * time.Minute

// runID is the id of a run. It begins with e2e-, so that it is also the name of the cluster.
type runID string

// newRunID returns an id with the time of its run, for people, and a random part.
func newRunID(now time.Time) runID {
	var random [2]byte
	_, _ = rand.Read(random[:]) // it does not fail

	return runID("e2e-" + now.UTC().Format("0102-1504") + "-" + hex.EncodeToString(random[:]))
}

// isValid reports whether the id is one that newRunID returns. No other cluster or bucket is ever swept.
func (id runID) isValid() bool {
	return regexp.MustCompile(`^e2e-\d{4}-\d{4}-[0-9a-f]{4}$`).MatchString(string(id))
}

func (id runID) clusterName() string { return string(id) }

func (id runID) bucketName() string { return "slipway-" + string(id) }

// runRecord is what must survive a run that is killed. It is written before anything is created.
type runRecord struct {
	// ID of the run.
	ID runID `json:"id"`
	// Account, Region and Endpoint are where it creates resources. Endpoint is empty for AWS itself.
	Account  string `json:"account"`
	Region   string `json:"region"`
	Endpoint string `json:"endpoint"`
	// Started is when the run began.
	Started time.Time `json:"started"`
	// Clean is set when a sweep has found nothing left.
	Clean bool `json:"clean"`
}

// runDirectory is the directory of one run on this computer: its record, the output of its commands and its report.
type runDirectory struct {
	path   string
	record runRecord
	// lock is locked as long as the run or one of its commands is alive: commands inherit it.
	lock *os.File
}

const recordFile = "run.json"

// createRunDirectory writes the record of a new run.
func (h harness) createRunDirectory(id runID) (runDirectory, error) {
	d := runDirectory{path: filepath.Join(h.settings.directory, string(id))}
	d.record = runRecord{
		ID:       id,
		Account:  h.account.id,
		Region:   h.settings.region,
		Endpoint: h.account.endpoint,
		Started:  h.now().UTC(),
	}

	if err := os.MkdirAll(d.path, 0o700); err != nil {
		return d, fmt.Errorf("create the directory of run %s: %w", id, err)
	}

	if err := d.acquireLock(); err != nil {
		return d, err
	}

	return d, d.writeRecord()
}

// openRunDirectory reads the record of an earlier run, without its lock.
func openRunDirectory(path string) (runDirectory, error) {
	d := runDirectory{path: path}
	text, err := os.ReadFile(filepath.Join(path, recordFile))
	if err == nil {
		err = json.Unmarshal(text, &d.record)
	}

	if err == nil && !d.record.ID.isValid() {
		err = fmt.Errorf("%q is not the id of a run", d.record.ID)
	}

	if err != nil {
		return d, fmt.Errorf("read the record of a run in %s: %w", path, err)
	}

	return d, nil
}

func (d *runDirectory) writeRecord() error {
	text, err := json.MarshalIndent(d.record, "", "  ")
	if err != nil {
		return fmt.Errorf("write the record of run %s: %w", d.record.ID, err)
	}

	return privatefile.Write(filepath.Join(d.path, recordFile), append(text, '\n'))
}

// markClean records that nothing is left of the run.
func (d *runDirectory) markClean() error {
	d.record.Clean = true
	return d.writeRecord()
}

// errRunning is returned for the lock of a run that is alive.
var errRunning = errors.New("the run or one of its commands is still running")

// acquireLock locks the run, or returns errRunning.
func (d *runDirectory) acquireLock() error {
	file, err := os.OpenFile(filepath.Join(d.path, "lock"), os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return fmt.Errorf("lock run %s: %w", d.record.ID, err)
	}

	err = syscall.Flock(int(file.Fd()), syscall.LOCK_EX|syscall.LOCK_NB)
	if errors.Is(err, syscall.EWOULDBLOCK) {
		err = errRunning
	}

	if err != nil {
		_ = file.Close()
		return fmt.Errorf("lock run %s: %w", d.record.ID, err)
	}

	d.lock = file

	return nil
}

// waitForLock locks a run. It waits while a command of a run that was killed is still running.
func (h harness) waitForLock(ctx context.Context, d *runDirectory) error {
	deadline := h.now().Add(lockWait)
	for announced := false; ; announced = true {
		err := d.acquireLock()
		if err == nil || !errors.Is(err, errRunning) {
			return err
		}

		if h.now().After(deadline) {
			return diag.WithHint(err, "end it, then sweep: make e2e-aws SWEEP="+string(d.record.ID))
		}

		if !announced {
			h.printLine("run %s: waiting for a command of it that is still running", d.record.ID)
		}

		if err := pauseFor(ctx, time.Second); err != nil {
			return fmt.Errorf("wait for run %s to end: %w", d.record.ID, err)
		}
	}
}

// pauseFor waits for a duration, or returns the cause of the end of ctx.
func pauseFor(ctx context.Context, d time.Duration) error {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}
