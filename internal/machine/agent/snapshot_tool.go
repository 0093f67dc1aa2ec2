// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os/exec"
	"slices"
	"strconv"
	"strings"
	"syscall"

	"github.com/slipway-k8s/slipway/internal/machine/backup"
)

// snapshotTool runs etcdutl, which is installed with etcd.
type snapshotTool struct {
	run Runner
	// program is the path of etcdutl.
	program string
}

// restoreOptions are the identity of the member that a snapshot is restored for.
type restoreOptions struct {
	// dataDir is created; it must not exist.
	dataDir string
	// name and peerURL of the member, which is the only one of its new cluster.
	name, peerURL string
	// token is etcd's initial-cluster-token. It must be another one than that of the cluster that was backed up.
	token string
	// bumpRevision is added to the revision, so that no client has seen a newer one. Zero: the revision stays.
	bumpRevision uint64
}

// restore restores a snapshot into a new data directory. etcdutl compares the checksum that etcd appended.
func (t snapshotTool) restore(ctx context.Context, snapshot string, o restoreOptions) error {
	args := []string{
		"snapshot", "restore", snapshot, "--data-dir", o.dataDir, "--name", o.name, "--initial-advertise-peer-urls", o.peerURL,
		"--initial-cluster", o.name + "=" + o.peerURL, "--initial-cluster-token", o.token,
	}
	if o.bumpRevision > 0 {
		args = append(args, "--bump-revision", strconv.FormatUint(o.bumpRevision, 10), "--mark-compacted")
	}

	if _, err := t.etcdutl(ctx, args...); err != nil {
		return fmt.Errorf("restore the snapshot: %w", err)
	}

	return nil
}

// leasePanic is what etcdutl before 3.7 prints instead of a hash if a key has a lease, as in each cluster of Kubernetes. The hash is
// then not known.
const leasePanic = "no lessor to attach lease"

// inspect reads what a database contains. It may change the file, but not its contents: a snapshot that was inspected does
// not have its checksum any more.
func (t snapshotTool) inspect(ctx context.Context, db string) (backup.Contents, error) {
	var status struct {
		Revision int64 `json:"revision"`
		Keys     int   `json:"totalKey"`
	}
	if err := t.readJSON(ctx, &status, "snapshot", "status", db); err != nil {
		return backup.Contents{}, err
	}

	var hash struct {
		Hash uint32 `json:"hash"`
	}
	revision := strconv.FormatInt(status.Revision, 10)
	err := t.readJSON(ctx, &hash, "hashkv", db, "--rev", revision)
	if err != nil && !strings.Contains(err.Error(), leasePanic) {
		return backup.Contents{}, err
	}

	return backup.Contents{Revision: status.Revision, HashKV: hash.Hash, Keys: status.Keys}, nil
}

// readJSON decodes the last line of etcdutl's output that is a JSON document; others are log messages.
func (t snapshotTool) readJSON(ctx context.Context, into any, args ...string) error {
	out, err := t.etcdutl(ctx, append(args, "--write-out", "json")...)
	if err != nil {
		return fmt.Errorf("read the database: %w", err)
	}

	found := false
	for line := range strings.Lines(out) {
		if strings.HasPrefix(line, `{"hash"`) {
			found = true
			err = json.Unmarshal([]byte(line), into)
		}
	}

	if !found {
		err = errors.New("etcdutl printed no result")
	}

	if err != nil {
		return fmt.Errorf("read the database with etcdutl %s: %w", args[0], err)
	}

	return nil
}

// isHostFailure reports whether a failed run of etcdutl or etcd says nothing of the data: the program did not start, was killed, as by
// a kernel without memory, or the machine refused it something. etcd has too many messages about damaged data to tell those instead.
func isHostFailure(err error) bool {
	exit, ended := errors.AsType[*exec.ExitError](err)
	if !ended || !exit.Exited() || exit.ExitCode() >= exitNotStarted {
		return true
	}

	causes := []error{
		syscall.ENOSPC, syscall.EDQUOT, syscall.EROFS, syscall.EIO, syscall.EACCES, syscall.EPERM, syscall.ETIMEDOUT,
		syscall.ENOMEM, syscall.EAGAIN, syscall.EMFILE, syscall.ENFILE, syscall.EADDRINUSE, errOutOfMemory, errNoThread,
	}

	return slices.ContainsFunc(causes, func(cause error) bool { return strings.Contains(err.Error(), cause.Error()) })
}

// exitNotStarted is the least exit code of nice and env if they cannot start a program. etcd and etcdutl end with 1, and Go's runtime
// with 2.
const exitNotStarted = 125

// errOutOfMemory is how a Go program ends that gets no memory.
var errOutOfMemory = errors.New("runtime: out of memory")

// errNoThread is how a Go program ends that may not start another thread.
var errNoThread = errors.New("runtime: failed to create new OS thread")

// etcdutl runs the program with a low priority: etcd runs on the same machine.
func (t snapshotTool) etcdutl(ctx context.Context, args ...string) (string, error) {
	return t.run.Run(ctx, "nice", append([]string{"-n", "10", t.program}, args...)...)
}
