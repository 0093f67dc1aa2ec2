// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"time"

	"github.com/slipway-k8s/slipway/internal/lib/store"
	"github.com/slipway-k8s/slipway/internal/machine/backup"
	"github.com/slipway-k8s/slipway/internal/machine/etcd"
)

// verify restores a backup into a temporary directory, compares what was restored with the metadata, and stores the
// result. A failure that says nothing of the backup, such as a full disk, is an error instead, and the test is repeated. When the
// programs of a test have failed several times in a row, that is stored as the result: the next test is that of a later backup.
func (b *etcdBackup) verify(ctx context.Context, m backup.Metadata) error {
	dir, err := prepareWorkDir(b.agent.Root, "take", testCopies*m.DBSize)
	if err != nil {
		return err
	}

	defer func() { _ = os.RemoveAll(dir) }()

	_, err = b.verifyIn(ctx, m, dir)
	failure, hasNoResult := errors.AsType[testFailedError](err)
	if err == nil {
		b.failedTests = 0
	}

	if !hasNoResult || ctx.Err() != nil {
		return err
	}

	b.failedTests++
	if b.failedTests < maxFailedTests {
		return err
	}

	v := backup.Verification{
		ID:           m.ID,
		VerifiedAt:   b.now().UTC(),
		Machine:      b.agent.instance.ID,
		Error:        fmt.Sprintf("%d attempts in a row failed, the last one: %s", b.failedTests, failure),
		Inconclusive: true,
	}
	b.agent.Log.Warn("cannot test backup of etcd", slog.String("backup", m.ID), slog.String("error", v.Error))

	return b.archive.WriteVerification(ctx, v)
}

// testFailedError is why the programs of a test have no result: it says nothing of the backup.
type testFailedError struct{ cause error }

func (e testFailedError) Error() string { return e.cause.Error() }

func (e testFailedError) Unwrap() error { return e.cause }

// testCopies is how many copies of the database the directory of a test has at most.
const testCopies = 3

// verifyIn is one attempt of verify, in an empty directory that has space for [testCopies] of the database.
func (b *etcdBackup) verifyIn(ctx context.Context, m backup.Metadata, dir string) (backup.Verification, error) {
	start := b.now()
	restored, problem, err := b.testRestore(ctx, m, dir)
	if err != nil {
		return backup.Verification{}, err
	}

	v := backup.Verification{
		ID:          m.ID,
		VerifiedAt:  b.now().UTC(),
		Machine:     b.agent.instance.ID,
		OK:          problem == "",
		Error:       problem,
		Restored:    restored,
		TookSeconds: int(b.now().Sub(start).Seconds()),
	}
	if err := b.archive.WriteVerification(ctx, v); err != nil {
		return v, err
	}

	b.agent.Log.Info("tested backup of etcd", slog.String("backup", m.ID), slog.Bool("ok", v.OK),
		slog.String("error", v.Error))

	return v, nil
}

// testRestore restores a backup below dir. problem says what is wrong with the backup; empty: nothing.
func (b *etcdBackup) testRestore(
	ctx context.Context,
	m backup.Metadata,
	dir string,
) (restored backup.Contents, problem string, err error) {
	snapshot := filepath.Join(dir, "snapshot.db")
	if err := b.download(ctx, m, snapshot); err != nil {
		if errors.Is(err, backup.ErrDamaged) || errors.Is(err, store.ErrDecryption) {
			return restored, err.Error(), nil
		}

		return restored, "", err
	}

	restored, problem, err = b.testSnapshot(ctx, m, dir)
	if err != nil && ctx.Err() == nil {
		err = testFailedError{fmt.Errorf("test backup %s: %w", m.ID, err)}
	}

	return restored, problem, err
}

// testSnapshot restores the snapshot of a backup, which is in dir, and compares what was restored.
func (b *etcdBackup) testSnapshot(
	ctx context.Context,
	m backup.Metadata,
	dir string,
) (restored backup.Contents, problem string, err error) {
	snapshot := filepath.Join(dir, "snapshot.db")
	data := filepath.Join(dir, "data")
	err = b.tool.restore(ctx, snapshot, restoreOptions{
		dataDir: data,
		name:    "test",
		peerURL: "http://127.0.0.1:1", // nobody connects to it
		token:   rand.Text(),
	})
	if ctx.Err() != nil {
		return restored, "", ctx.Err()
	}

	if err != nil && isHostFailure(err) {
		return restored, "", err
	}

	if err != nil {
		return restored, err.Error(), nil //nolint:nilerr // it is the result of the test
	}

	restored, err = b.tool.inspect(ctx, filepath.Join(data, "member/snap/db"))
	if err != nil || !restored.Matches(m.Contents) {
		return restored, describeDifference(restored, m.Contents), err
	}

	return b.serveRestored(ctx, m, dir)
}

// serveRestored lets an etcd serve restored data, and compares what it says with what the member said. etcdutl counts other keys than an
// etcd that runs: after a restoration with a raised revision it counts one more.
func (b *etcdBackup) serveRestored(
	ctx context.Context,
	m backup.Metadata,
	dir string,
) (restored backup.Contents, problem string, err error) {
	serveCtx, cancel := context.WithTimeout(ctx, serveTimeout(m.DBSize))
	defer cancel()
	err = serveCopy(serveCtx, b.agent, b.program, dir, func(ctx context.Context, manager etcd.Manager, url string) error {
		said, err := manager.KeyValuesAt(ctx, url, m.Revision)
		restored = contentsOf(said, m.Revision)

		return err
	})

	ended, rejected := errors.AsType[copyEndedError](err)

	switch {
	case rejected && ctx.Err() == nil && !isHostFailure(ended.cause):
		return restored, err.Error(), nil
	case err != nil:
		return restored, "", err
	case m.Said.Revision > 0 && !restored.Matches(m.Said):
		return restored, "served by etcd: " + describeDifference(restored, m.Said), nil
	}

	return restored, "", nil
}

// serveTimeout returns how long an etcd may take to read a restored database of this size, and to hash it. One of 500 MiB took 2 s.
func serveTimeout(bytes int64) time.Duration {
	const bytesPerSecond = 16 << 20

	return 2*time.Minute + time.Duration(bytes/bytesPerSecond)*time.Second
}

// describeDifference says how restored contents differ from those that were backed up.
func describeDifference(restored, want backup.Contents) string {
	return fmt.Sprintf("the restored database has revision %d, hash %08x and %d keys instead of %d, %08x and %d",
		restored.Revision, restored.HashKV, restored.Keys, want.Revision, want.HashKV, want.Keys)
}
