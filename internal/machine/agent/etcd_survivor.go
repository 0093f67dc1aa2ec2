// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	"github.com/slipway-k8s/slipway/internal/machine/backup"
	"github.com/slipway-k8s/slipway/internal/machine/etcd"
)

const (
	// copyTimeout limits how long etcd may take to read the copy of a member's data.
	copyTimeout = 10 * time.Minute
	// copyPause is the pause between two attempts to reach it.
	copyPause = 500 * time.Millisecond
)

// savedID is the request id of the backup of a survivor's data. It names the end of its log, so that an agent that was killed
// finds the backup, and that one of earlier data does not count.
func savedID(r etcd.QuorumReport) string {
	return fmt.Sprintf("recovery-%d-%s-%d-%d", r.Generation, r.Slot, r.Log.Term, r.Log.Index)
}

// save takes a backup of this machine's data, with all writes in its log. etcd answers nothing without a quorum after it was
// restarted, and its database lacks the end of the log. So another etcd reads a copy of the data, as the only member of its cluster.
func (r *etcdRecovery) save(ctx context.Context) error {
	a := r.member.agent
	own := r.memory.own
	dir, err := prepareWorkDir(a.Root, "recover", 2*treeBytes(a.Root.Path(etcd.DataDir)))
	if err != nil {
		return err
	}

	defer func() { _ = os.RemoveAll(dir) }()

	return r.whileReporting(ctx, func(ctx context.Context) error {
		if err := r.copyData(ctx, filepath.Join(dir, "data")); err != nil {
			return err
		}

		if err := commitLog(filepath.Join(dir, "data/member/wal")); err != nil {
			return err
		}

		known := backup.Metadata{
			Reason:     backup.ReasonRecovery,
			RequestID:  savedID(own),
			Generation: own.Generation,
			RaftTerm:   own.Log.Term,
			TakenAt:    a.Now().UTC(),
		}
		snapshot := filepath.Join(dir, "snapshot.db")
		source, err := r.snapshotCopy(ctx, dir, snapshot)
		if err != nil {
			return err
		}

		known.EtcdVersion = source.Version

		if err := os.RemoveAll(filepath.Join(dir, "data")); err != nil {
			return fmt.Errorf("remove the copy of etcd's data: %w", err)
		}

		_, err = r.backup.store(ctx, snapshot, source, known)

		return err
	})
}

// whileReporting calls do, and repeats this machine's report meanwhile, so that the others wait for it.
func (r *etcdRecovery) whileReporting(ctx context.Context, do func(context.Context) error) error {
	repeatCtx, stop := context.WithCancel(ctx)
	done := make(chan struct{})
	step := etcd.RecoveryStep{Type: r.memory.own.Step, Reason: r.memory.own.Reason}
	go func() {
		defer close(done)
		for r.member.agent.Wait(repeatCtx, recoveryInterval) == nil {
			_ = r.publish(repeatCtx, step) // the next look reports too
		}
	}()

	err := do(ctx)
	stop()
	<-done

	return err
}

// copyData copies the data of the member, which is stopped meanwhile: it does no work without a quorum.
func (r *etcdRecovery) copyData(ctx context.Context, to string) (err error) {
	a := r.member.agent
	a.etcdData.Lock()
	defer a.etcdData.Unlock()
	if a.etcdFenced.Load() {
		return newNotReadyError("another task moves etcd's data")
	}

	a.etcdFenced.Store(true)
	defer a.etcdFenced.Store(false)
	if _, err := a.Run.Run(ctx, "systemctl", "stop", "etcd"); err != nil {
		return fmt.Errorf("stop etcd to copy its data: %w", err)
	}

	defer func() {
		startCtx := context.WithoutCancel(ctx)
		if _, startErr := a.Run.Run(startCtx, "systemctl", "start", "--no-block", "etcd"); startErr != nil {
			err = errors.Join(err, fmt.Errorf("start etcd after its data was copied: %w", startErr))
		}
	}()

	return copyTree(ctx, a.Root.Path(etcd.DataDir+"/member"), filepath.Join(to, "member"))
}

// copyTree copies directories and files, which only root can read then.
func copyTree(ctx context.Context, from, to string) error {
	err := filepath.WalkDir(from, func(path string, entry fs.DirEntry, err error) error {
		if err = errors.Join(err, ctx.Err()); err != nil {
			return err
		}

		name, err := filepath.Rel(from, path)
		if err != nil {
			return err
		}

		target := filepath.Join(to, name)

		switch {
		case entry.IsDir():
			return os.MkdirAll(target, 0o700)
		case entry.Type().IsRegular():
			return copyFile(path, target)
		default:
			return nil
		}
	})
	if err != nil {
		return fmt.Errorf("copy etcd's data: %w", err)
	}

	return nil
}

func copyFile(from, to string) error {
	in, err := os.Open(from)
	if err != nil {
		return err
	}

	defer func() { _ = in.Close() }()
	out, err := os.OpenFile(to, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}

	_, err = io.Copy(out, in)

	return errors.Join(err, out.Close())
}

// commitLog makes all entries of a copied log count: see [etcd.NewCommitMark].
func commitLog(dir string) error {
	mark, err := etcd.NewCommitMark(os.DirFS(dir))
	if err != nil {
		return err
	}

	out, err := os.OpenFile(filepath.Join(dir, mark.File), os.O_WRONLY, 0)
	if err != nil {
		return fmt.Errorf("write to the copy of etcd's log: %w", err)
	}

	_, err = out.WriteAt(mark.Record, mark.Offset)
	if err == nil {
		err = out.Truncate(mark.Offset + int64(len(mark.Record)))
	}

	if err = errors.Join(err, out.Close()); err != nil {
		return fmt.Errorf("write to the copy of etcd's log: %w", err)
	}

	return nil
}

// snapshotCopy lets an etcd read the copy of the data in dir, and writes a snapshot of it to a file.
func (r *etcdRecovery) snapshotCopy(ctx context.Context, dir, snapshot string) (source etcd.SnapshotSource, err error) {
	err = serveCopy(ctx, r.member.agent, r.program, dir, func(ctx context.Context, m etcd.Manager, url string) error {
		source, err = writeSnapshotOf(ctx, m, url, snapshot)
		return err
	})

	return source, err
}

// copyEndedError is the failure of an etcd that ended before it served a copy of data.
type copyEndedError struct {
	cause error
}

func (e copyEndedError) Error() string { return "read the copy of etcd's data: " + e.cause.Error() }

func (e copyEndedError) Unwrap() error { return e.cause }

// serveCopy calls do while an etcd serves the data in the directory data of dir. It serves on sockets in dir, which only root can
// reach, and is killed afterwards.
func serveCopy(
	ctx context.Context,
	a *Agent,
	program, dir string,
	do func(ctx context.Context, m etcd.Manager, url string) error,
) error {
	ctx, cancel := context.WithTimeout(ctx, copyTimeout)
	defer cancel()
	etcdCtx, kill := context.WithCancel(ctx)
	ended := make(chan struct{})
	var failure error // of etcd, once it has ended
	go func() {
		defer close(ended)
		_, failure = a.Run.Run(etcdCtx, "env", append([]string{"--chdir=" + dir}, copyCommand(program)...)...)
	}()

	defer func() {
		kill()
		<-ended
	}()

	url := "unix://" + filepath.Join(dir, "client")
	manager := etcd.Manager{}
	for !manager.Healthy(ctx, url) {
		select {
		case <-ended:
			if failure == nil {
				failure = errors.New("etcd ended without an error")
			}

			return copyEndedError{failure}

		default:
		}

		if err := a.Wait(ctx, copyPause); err != nil {
			return fmt.Errorf("wait for etcd to read the copy of its data: %w", err)
		}
	}

	return do(ctx, manager, url)
}

// copyCommand returns the command of an etcd that is the only member of its cluster, with the data in the directory data.
func copyCommand(program string) []string {
	return []string{
		"nice", "-n", "10", program,
		"--name=copy",
		"--data-dir=data",
		"--force-new-cluster",
		"--listen-client-urls=unix://client",
		"--listen-peer-urls=unix://peer",
		"--advertise-client-urls=http://127.0.0.1:1", // nobody connects to it
		"--initial-advertise-peer-urls=http://127.0.0.1:1",
		"--initial-cluster=copy=http://127.0.0.1:1",
		"--quota-backend-bytes=8589934592",
		"--enable-grpc-gateway=false",
		"--unsafe-no-fsync", // the copy is deleted
		"--log-level=error",
	}
}
