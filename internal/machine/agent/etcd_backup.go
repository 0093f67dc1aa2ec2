// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"syscall"
	"time"

	"github.com/slipway-k8s/slipway/internal/machine/backup"
	"github.com/slipway-k8s/slipway/internal/machine/etcd"
)

const (
	// backupInterval is how often the machine of etcd's leader looks for a request.
	backupInterval = 5 * time.Second
	// maxBackupLook is how often it lists the backups at least; see backupLookInterval.
	maxBackupLook = time.Minute
	// backupTimeout limits everything that one look leads to.
	backupTimeout = time.Hour
	// maxBackupActions limits the actions of one look.
	maxBackupActions = 10
	// maxDeletions limits the backups that are deleted before the next decision: others may be due.
	maxDeletions = 50
	// backupDir is where snapshots are while they are written, tested or restored.
	backupDir = backup.WorkDir
	// maxFailedTests is after how many attempts in a row without a result a backup counts as one that cannot be tested. An attempt
	// may take minutes, and no backup is taken meanwhile.
	maxFailedTests = 3
)

// etcdBackup takes, tests and deletes backups while this machine's member is etcd's leader.
type etcdBackup struct {
	agent   *Agent
	member  *etcdMember
	archive backup.Archive
	catalog *backup.Catalog
	tool    snapshotTool
	// program is the path of etcd, which serves restored data in a test.
	program string
	// url of the machine's own member.
	url string
	// now is the agent's clock.
	now func() time.Time
	// lookedAt is when the backups were listed last.
	lookedAt time.Time
	// doneRequests has the ids of the requests that need nothing more.
	doneRequests map[string]bool
	// failedTests is how many attempts to test a backup have failed in a row without a result, by the backup's id.
	failedTests map[string]int
	// failedTakes are the attempts to take a backup that have failed.
	failedTakes failedTakes
	// lookError is why the last look failed; nil if it did not.
	lookError error
	// unreadable are the ids of the backups that cannot be read, of which the log has told.
	unreadable map[string]bool
}

// newEtcdBackup returns the task of a control-plane machine.
func newEtcdBackup(m *etcdMember) *etcdBackup {
	a := m.agent
	sealer := a.Sealer
	if a.SealerOf != nil {
		sealer = a.SealerOf(a.doc.Store.KMSKeyARN)
	}

	archive := backup.Archive{Store: m.store, Sealer: sealer, Cluster: a.doc.Cluster, Records: recordKeys{a}}

	return &etcdBackup{
		agent:   a,
		member:  m,
		archive: archive,
		catalog: &backup.Catalog{Archive: archive},
		tool:    snapshotTool{run: a.Run, program: a.doc.BinDir() + "/etcdutl"},
		program: a.doc.BinDir() + "/etcd",
		url:     etcd.ClientURL,
		now:     a.Now,

		doneRequests: map[string]bool{},
		failedTests:  map[string]int{},
	}
}

// keepBackups takes, tests and deletes backups until ctx ends. A machine whose document was written by an earlier version
// has no key to encrypt them with, and takes none.
func (m *etcdMember) keepBackups(ctx context.Context) error {
	if m.agent.doc.Store.KMSKeyARN == "" {
		<-ctx.Done()
		return ctx.Err()
	}

	task := periodicTask{"etcd backup", backupInterval, newEtcdBackup(m).run}

	return task.repeat(ctx, m.agent, backupTimeout)
}

// run carries out the request of an operator, or else what [backup.Decide] says, if this machine has the leader.
func (b *etcdBackup) run(ctx context.Context) error {
	status, quorum, err := b.agent.newEtcdManager().Probe(ctx, b.url)
	if err != nil || !quorum || !status.Leader {
		return nil //nolint:nilerr // the machine's report says what is wrong with the member
	}

	if request, err := b.nextRequest(ctx); err != nil || request != nil {
		if err != nil {
			return err
		}

		return b.carryOut(ctx, *request)
	}

	policy, err := backup.NewPolicy(b.agent.doc.Etcd.Backup)
	if err != nil {
		return err
	}

	return b.lookIfDue(ctx, policy)
}

// lookIfDue looks, unless the last look was a short time ago: then it returns the error of that one, so that the task counts as failed
// until a look has succeeded.
func (b *etcdBackup) lookIfDue(ctx context.Context, policy backup.Policy) error {
	if b.now().Sub(b.lookedAt) < backupLookInterval(policy) {
		return b.lookError
	}

	b.lookedAt = b.now()
	b.lookError = b.look(ctx, policy)

	return b.lookError
}

// backupLookInterval returns how often the backups are listed: often enough that a backup is at most a quarter of its
// interval late.
func backupLookInterval(p backup.Policy) time.Duration { return min(p.Interval/4, maxBackupLook) } //nolint:mnd // a quarter

// look decides and acts until nothing is to be done. A step that fails keeps no other one from being carried out.
func (b *etcdBackup) look(ctx context.Context, policy backup.Policy) error {
	var failed []backup.Step
	var errs []error
	if err := b.failedTakes.pausedBy(b.now(), policy); err != nil {
		failed = append(failed, backup.Step{Type: backup.ActionTake})
		errs = append(errs, err)
	}

	for range maxBackupActions {
		listing, facts, err := b.gather(ctx, policy)
		if err != nil {
			return errors.Join(append(errs, err)...)
		}

		facts.Failed = failed
		action, err := b.decide(ctx, facts)
		step := backup.Step{Type: action.Type}
		if err == nil && action.Type == backup.ActionNone {
			if facts.Starting && len(listing.Backups) == 0 {
				b.lookedAt = time.Time{} // the first one is taken as soon as the API server is ready
			}

			break
		}

		if err == nil {
			step.ID, err = b.act(ctx, action, listing)
		}

		if err != nil {
			failed = append(failed, step)
			errs = append(errs, err)
		}

		if ctx.Err() != nil {
			break
		}
	}

	return errors.Join(errs...)
}

// gather lists the backups, and returns them and the facts for a decision.
func (b *etcdBackup) gather(ctx context.Context, policy backup.Policy) (backup.Listing, backup.Facts, error) {
	listing, err := b.catalog.List(ctx)
	if err != nil {
		return listing, backup.Facts{}, err
	}

	b.agent.metrics.noteBackups(listing.Backups)
	b.noteUnreadable(listing.Unreadable)
	maps.DeleteFunc(b.failedTests, func(id string, _ int) bool {
		_, exists := listing.Find(id)
		return !exists
	})

	generation, err := b.member.dataGeneration(etcd.DataDir)

	return listing, backup.Facts{
		Now:        b.now(),
		Policy:     policy,
		Backups:    listing.Backups,
		Incomplete: listing.Incomplete,
		Starting:   !b.agent.apiOpen.Load(),
		Generation: generation,
	}, err
}

// noteUnreadable logs each backup that cannot be read, once. It does not count, and is not deleted.
func (b *etcdBackup) noteUnreadable(backups []backup.Unreadable) {
	if b.unreadable == nil {
		b.unreadable = map[string]bool{}
	}

	for _, u := range backups {
		if !b.unreadable[u.ID] {
			b.unreadable[u.ID] = true
			b.agent.Log.Warn(
				"cannot read backup of etcd",
				slog.String("backup", u.ID),
				slog.String("error", u.Reason),
			)
		}
	}
}

// decide decides. Restorations are read only if a backup would be deleted; an error is then one of that step.
func (b *etcdBackup) decide(ctx context.Context, f backup.Facts) (backup.Action, error) {
	action := backup.Decide(f)
	if action.Type != backup.ActionDelete {
		return action, nil
	}

	var err error
	if f.Restored, f.Restoring, err = b.member.restoredBackup(ctx); err != nil {
		return action, err
	}

	return backup.Decide(f), nil
}

// restoredBackup returns the id of the backup of the newest generation, empty if there is none, and whether a slot is left whose
// member has not had its data. Until then a machine may need it, also one whose restoration was begun again.
func (m *etcdMember) restoredBackup(ctx context.Context) (id string, isRestoring bool, err error) {
	g, err := m.readGeneration(ctx)
	if err != nil || g == nil {
		return "", false, err
	}

	restored, err := m.listJoined(ctx, g)
	isMissing := func(slot string) bool { return !slices.Contains(restored, slot) }

	return g.Backup, slices.ContainsFunc(slotNames(m.agent), isMissing), err
}

// act carries out one action. It returns an error with the id of the backup that it is about; empty for one to take.
func (b *etcdBackup) act(ctx context.Context, action backup.Action, listing backup.Listing) (id string, err error) {
	switch action.Type {
	case backup.ActionTake:
		_, err := b.take(ctx, backup.Metadata{Reason: action.Reason})
		if err != nil {
			b.failedTakes.add(err, b.now())
		}

		return "", err

	case backup.ActionVerify:
		found, _ := listing.Find(action.IDs[0])
		return action.IDs[0], b.verify(ctx, found.Metadata)

	case backup.ActionDelete:
		for _, id := range action.IDs[:min(len(action.IDs), maxDeletions)] {
			if err := b.archive.Delete(ctx, id); err != nil {
				return id, err
			}

			b.agent.Log.Info("deleted backup of etcd", slog.String("backup", id))
		}

	case backup.ActionNone:
	}

	return "", nil
}

// take takes a backup. why has its reason and the id of its request.
func (b *etcdBackup) take(ctx context.Context, why backup.Metadata) (backup.Metadata, error) {
	dir, err := b.newWorkDir(ctx)
	if err != nil {
		return why, err
	}

	defer func() { _ = os.RemoveAll(dir) }()
	manager := b.agent.newEtcdManager()
	snapshot := filepath.Join(dir, "snapshot.db")
	var source etcd.SnapshotSource
	why.RaftTerm, err = withinOneTerm(ctx, func(ctx context.Context) (uint64, error) {
		status, err := manager.Status(ctx, b.url)
		return status.RaftTerm, err
	}, func(ctx context.Context) (err error) {
		_ = os.Remove(snapshot) // of an earlier term
		why.TakenAt = b.now().UTC()
		source, err = writeSnapshotOf(ctx, manager, b.url, snapshot)

		return err
	})
	if err != nil {
		return why, err
	}

	if why.Generation, err = b.member.dataGeneration(etcd.DataDir); err != nil {
		return why, err
	}

	why.EtcdVersion = source.Version

	return b.store(ctx, snapshot, source, why)
}

// maxTerms is how often a snapshot is repeated because the term changed meanwhile.
const maxTerms = 5

// withinOneTerm calls do until etcd's term is the same before and after, and returns the term. Without it, a backup could not be
// compared with others.
func withinOneTerm(
	ctx context.Context,
	term func(context.Context) (uint64, error),
	do func(context.Context) error,
) (uint64, error) {
	before, err := term(ctx)
	if err != nil {
		return 0, err
	}

	for range maxTerms {
		if err := do(ctx); err != nil {
			return 0, err
		}

		after, err := term(ctx)
		if err != nil || after == before {
			return after, err
		}

		before = after
	}

	return 0, fmt.Errorf(
		"take a snapshot of etcd: the term changed during each of %d snapshots: elections follow one another; see the network "+
			"and the disks of its members",
		maxTerms,
	)
}

// store stores a snapshot in a file as a backup. known has what the snapshot does not tell. If it fails, nothing that was uploaded is left.
func (b *etcdBackup) store(
	ctx context.Context,
	snapshot string,
	source etcd.SnapshotSource,
	known backup.Metadata,
) (backup.Metadata, error) {
	id := backup.NewID(known.TakenAt, rand.Text()[:6])
	out, err := b.upload(ctx, id, snapshot)
	if err == nil {
		out.Contents, err = b.tool.inspect(ctx, snapshot) // after the upload: it changes the file
	}

	if err == nil {
		out, err = b.complete(ctx, out, source, known)
	}

	if err != nil {
		b.discard(ctx, id)
		return out, err
	}

	b.failedTakes = failedTakes{}
	b.agent.Log.Info("took backup of etcd", slog.String("backup", out.ID), slog.Int64("revision", out.Revision),
		slog.Int64("bytes", out.DBSize))

	return out, nil
}

// complete adds to the metadata of an uploaded snapshot what it does not tell, and writes them.
func (b *etcdBackup) complete(
	ctx context.Context,
	out backup.Metadata,
	source etcd.SnapshotSource,
	known backup.Metadata,
) (backup.Metadata, error) {
	a := b.agent
	if b.needsTest(ctx, known.Reason) {
		out.Said = b.askMember(ctx, out)
	}

	out.ClusterID = a.doc.ClusterID
	out.EtcdClusterID = strconv.FormatUint(source.ClusterID, 16)
	out.MemberID = strconv.FormatUint(source.MemberID, 16)
	out.Member = b.member.slot.Member
	out.Machine = a.instance.ID
	out.TakenAt = known.TakenAt
	out.Reason = known.Reason
	out.Generation = known.Generation
	out.RaftTerm = known.RaftTerm
	out.RequestID = known.RequestID
	out.EtcdVersion = known.EtcdVersion
	out.KubernetesVersion = a.doc.KubernetesVersion

	return out, b.archive.Commit(ctx, out)
}

// needsTest reports whether a backup that is being taken will be tested. Only a test needs what the member says of itself, and
// for that etcd reads and hashes all of its data next to its writes. No member serves the data of a survivor.
func (b *etcdBackup) needsTest(ctx context.Context, reason string) bool {
	if reason == backup.ReasonRecovery {
		return false
	}

	policy, err := backup.NewPolicy(b.agent.doc.Etcd.Backup)
	if err != nil {
		return true
	}

	listing, err := b.catalog.List(ctx)

	return err != nil || backup.NeedsTest(backup.Facts{Now: b.now(), Policy: policy, Backups: listing.Backups}, reason)
}

// askMember returns what the member says of itself at the revision of a snapshot. The snapshot is of use without that, as when
// somebody compacts the member at this moment: then its test compares no hash, unless etcdutl has one, and the next one is tested too.
func (b *etcdBackup) askMember(ctx context.Context, taken backup.Metadata) backup.Contents {
	ctx, cancel := context.WithTimeout(ctx, hashTimeout(taken.DBSize))
	defer cancel()
	said, err := b.agent.newEtcdManager().KeyValuesAt(ctx, b.url, taken.Revision)
	if err != nil {
		b.agent.Log.Warn("cannot compare a backup with its member", slog.Any("error", err))
		return backup.Contents{}
	}

	return contentsOf(said, taken.Revision)
}

func contentsOf(said etcd.KeyValues, revision int64) backup.Contents {
	return backup.Contents{
		Revision:        revision,
		HashKV:          said.Hash,
		Keys:            said.Keys,
		CompactRevision: said.CompactRevision,
	}
}

// writeSnapshotOf writes a snapshot of the member at url to a file.
func writeSnapshotOf(ctx context.Context, m etcd.Manager, url, path string) (source etcd.SnapshotSource, err error) {
	out, err := os.OpenFile(path, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o600)
	if err != nil {
		return source, fmt.Errorf("write a snapshot of etcd: %w", err)
	}

	source, err = m.Snapshot(ctx, url, out)

	return source, errors.Join(err, out.Close())
}

// upload uploads a snapshot from a file.
func (b *etcdBackup) upload(ctx context.Context, id, path string) (backup.Metadata, error) {
	in, err := os.Open(path)
	if err != nil {
		return backup.Metadata{}, fmt.Errorf("upload backup %s: %w", id, err)
	}

	defer func() { _ = in.Close() }()

	return b.archive.Upload(ctx, id, in)
}

// download decrypts a backup into a file.
func (b *etcdBackup) download(ctx context.Context, m backup.Metadata, path string) error {
	out, err := os.OpenFile(path, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o600)
	if err != nil {
		return fmt.Errorf("download backup %s: %w", m.ID, err)
	}

	return errors.Join(b.archive.Download(ctx, m, out), out.Close())
}

// newWorkDir returns a new directory for files with plain data of etcd, in place of those of an earlier process that was
// killed. Its disk must have space for a copy of the database.
func (b *etcdBackup) newWorkDir(ctx context.Context) (string, error) {
	status, err := b.agent.newEtcdManager().Status(ctx, b.url)
	if err != nil {
		return "", err
	}

	return prepareWorkDir(b.agent.Root, "take", status.DBSize)
}

// prepareWorkDir returns an empty directory of this name in backupDir, whose disk has space for so many bytes.
func prepareWorkDir(root *HostFS, name string, bytes int64) (string, error) {
	dir := filepath.Join(root.Path(backupDir), name)
	if err := os.RemoveAll(dir); err != nil {
		return "", fmt.Errorf("clear %s: %w", backupDir, err)
	}

	if err := os.MkdirAll(dir, 0o700); err != nil {
		return "", fmt.Errorf("create %s: %w", backupDir, err)
	}

	var disk syscall.Statfs_t
	if err := syscall.Statfs(dir, &disk); err != nil {
		return "", fmt.Errorf("read the free space of %s: %w", backupDir, err)
	}

	return dir, backup.CheckDisk(int64(disk.Bavail)*disk.Bsize, bytes)
}
