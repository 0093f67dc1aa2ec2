// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"context"
	"fmt"
	"log/slog"
	"time"

	"github.com/slipway-k8s/slipway/internal/machine/backup"
)

const (
	// minTakePause and maxTakePause limit the longest pause after failed attempts to take a backup, which is a quarter of the interval.
	// Each attempt may upload the whole database, and a versioned bucket keeps what was deleted.
	minTakePause = 5 * time.Minute
	maxTakePause = 15 * time.Minute
	// discardTimeout limits the deletion of what was uploaded of a backup that could not be completed.
	discardTimeout = 30 * time.Second
)

// failedTakes are the attempts in a row to take a scheduled backup that have failed.
type failedTakes struct {
	count int
	// last is the error of the last attempt, and at when that ended.
	last error
	at   time.Time
}

// add counts an attempt that has failed.
func (f *failedTakes) add(err error, now time.Time) {
	f.count++
	f.last = err
	f.at = now
}

// pausedBy returns the error of the last attempt while it is too early for another one; else nil.
func (f *failedTakes) pausedBy(now time.Time, p backup.Policy) error {
	pause := f.pause(p)
	if f.count == 0 || now.Sub(f.at).Abs() >= pause {
		return nil
	}

	return fmt.Errorf(
		"the next backup is tried %s after %d failed attempts: %w",
		pause,
		f.count,
		f.last,
	)
}

// pause returns how long after the last attempt the next one is: until the next look after the first one, then twice as long each time.
func (f *failedTakes) pause(p backup.Policy) time.Duration {
	longest := min(max(p.Interval/4, minTakePause), maxTakePause) //nolint:mnd // a quarter
	pause := backupLookInterval(p)
	for range f.count - 1 {
		pause = min(2*pause, longest)
	}

	return pause
}

// discard deletes what was uploaded of a backup that could not be completed. What it leaves is deleted later, as an abandoned upload.
func (b *etcdBackup) discard(ctx context.Context, id string) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), discardTimeout)
	defer cancel()
	if err := b.archive.Discard(ctx, id); err != nil {
		b.agent.Log.Warn(
			"cannot delete what was uploaded of a backup of etcd",
			slog.String("backup", id),
			slog.Any("error", err),
		)
	}
}
