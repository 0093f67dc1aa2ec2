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
		delete(b.failedTests, m.ID)
	}

	if !hasNoResult || ctx.Err() != nil {
		return err
	}

	b.failedTests[m.ID]++
	attempts := b.failedTests[m.ID]
	if attempts < maxFailedTests {
		return err
	}

	v := backup.Verification{
		ID:           m.ID,
		VerifiedAt:   b.now().UTC(),
		Machine:      b.agent.instance.ID,
		Error:        fmt.Sprintf("%d attempts in a row failed, the last one: %s", attempts, failure),
		Inconclusive: true,
	}
	b.agent.Log.Warn(
		"cannot test backup of etcd",
		slog.String("backup", m.ID),
		slog.String("error", v.Error),
	)

	if err := b.archive.WriteVerification(ctx, v); err != nil {
		return err
	}

	delete(b.failedTests, m.ID)

	return nil
}

// testFailedError is why the programs of a test have no result: it says nothing of the backup.
type testFailedError struct{ cause error }

func (e testFailedError) Error() string { return e.cause.Error() }

func (e testFailedError) Unwrap() error { return e.cause }

// startTimeout is how long an etcd with restored data may take to start.
const startTimeout = 90 * time.Second

// testCopies is how many copies of the database the directory of a test has at most.
const testCopies = 3

// verifyIn is one attempt of verify, in an empty directory that has space for [testCopies] of the database.
func (b *etcdBackup) verifyIn(ctx context.Context, m backup.Metadata, dir string) (backup.Verification, error) {
	start := b.now()
	result, err := b.testRestore(ctx, m, dir)
	if err != nil {
		return backup.Verification{}, err
	}

	v := backup.Verification{
		ID:           m.ID,
		VerifiedAt:   b.now().UTC(),
		Machine:      b.agent.instance.ID,
		OK:           result.problem == "",
		HashCompared: result.problem == "" && result.hashCompared,
		Error:        result.problem,
		Restored:     result.restored,
		TookSeconds:  int(b.now().Sub(start).Seconds()),
	}
	if err := b.archive.WriteVerification(ctx, v); err != nil {
		return v, err
	}

	b.agent.Log.Info("tested backup of etcd", slog.String("backup", m.ID), slog.Bool("ok", v.OK),
		slog.Bool("hashCompared", v.HashCompared), slog.String("error", v.Error))

	return v, nil
}

// testResult is what a test of a backup found.
type testResult struct {
	// restored are the contents of the restored database.
	restored backup.Contents
	// hashCompared is set if a hash of all keys and values was compared, and not their number alone.
	hashCompared bool
	// problem says what is wrong with the backup; empty: nothing.
	problem string
}

// compare returns the result with restored contents, which are compared with those that are wanted.
func (r testResult) compare(restored, want backup.Contents) testResult {
	r.restored = restored
	r.hashCompared = r.hashCompared || restored.ComparesHash(want)
	if !restored.Matches(want) {
		r.problem = describeDifference(restored, want)
	}

	return r
}

// testRestore restores a backup below dir.
func (b *etcdBackup) testRestore(ctx context.Context, m backup.Metadata, dir string) (testResult, error) {
	snapshot := filepath.Join(dir, "snapshot.db")
	if err := b.download(ctx, m, snapshot); err != nil {
		if errors.Is(err, backup.ErrDamaged) || errors.Is(err, store.ErrDecryption) {
			return testResult{problem: err.Error()}, nil
		}

		return testResult{}, err
	}

	result, err := b.testSnapshot(ctx, m, dir)
	if err != nil && ctx.Err() == nil {
		err = testFailedError{fmt.Errorf("test backup %s: %w", m.ID, err)}
	}

	return result, err
}

// testSnapshot restores the snapshot of a backup, which is in dir, and compares what was restored.
func (b *etcdBackup) testSnapshot(ctx context.Context, m backup.Metadata, dir string) (testResult, error) {
	snapshot := filepath.Join(dir, "snapshot.db")
	data := filepath.Join(dir, "data")
	err := b.tool.restore(ctx, snapshot, restoreOptions{
		dataDir: data,
		name:    "test",
		peerURL: "http://127.0.0.1:1", // nobody connects to it
		token:   rand.Text(),
	})
	if ctx.Err() != nil {
		return testResult{}, ctx.Err()
	}

	if err != nil && isHostFailure(err) {
		return testResult{}, err
	}

	if err != nil {
		return testResult{problem: err.Error()}, nil //nolint:nilerr // it is the result of the test
	}

	restored, err := b.tool.inspect(ctx, filepath.Join(data, "member/snap/db"))
	if err != nil {
		return testResult{}, err
	}

	result := testResult{}.compare(restored, m.Contents)
	if result.problem != "" {
		return result, nil
	}

	return b.serveRestored(ctx, m, dir, result)
}

// serveRestored lets an etcd serve restored data, and compares what it says with what the member said. It returns the result so far with
// that. etcdutl counts other keys than an etcd that runs: after a restoration with a raised revision it counts one more.
func (b *etcdBackup) serveRestored(ctx context.Context, m backup.Metadata, dir string, result testResult) (testResult, error) {
	serveCtx, cancel := context.WithTimeout(ctx, serveTimeout(m.DBSize))
	defer cancel()
	err := serveCopy(serveCtx, b.agent, b.program, dir, func(ctx context.Context, manager etcd.Manager, url string) error {
		said, err := manager.KeyValuesAt(ctx, url, m.Revision)
		result.restored = contentsOf(said, m.Revision)

		return err
	})

	ended, rejected := errors.AsType[copyEndedError](err)

	switch {
	case rejected && ctx.Err() == nil && !isHostFailure(ended.cause):
		result.problem = err.Error()
		return result, nil

	case err != nil:
		return result, err
	case m.Said.Revision == 0:
		return result, nil
	}

	result = result.compare(result.restored, m.Said)
	if result.problem != "" {
		result.problem = "served by etcd: " + result.problem
	}

	return result, nil
}

// hashBytesPerSecond is how much of a database etcd reads and hashes in a second at least. One of 500 MiB took 2 s.
const hashBytesPerSecond = 16 << 20

// hashTimeout returns how long an etcd may take to hash a database of this size. A small one may take 30 seconds, next to writes.
func hashTimeout(bytes int64) time.Duration {
	return 30*time.Second + time.Duration(bytes/hashBytesPerSecond)*time.Second
}

// serveTimeout returns how long an etcd may take to read a restored database of this size, and to hash it.
func serveTimeout(bytes int64) time.Duration {
	return startTimeout + hashTimeout(bytes)
}

// describeDifference says how restored contents differ from those that were backed up.
func describeDifference(restored, want backup.Contents) string {
	return fmt.Sprintf("the restored database has revision %d, hash %08x and %d keys instead of %d, %08x and %d",
		restored.Revision, restored.HashKV, restored.Keys, want.Revision, want.HashKV, want.Keys)
}
