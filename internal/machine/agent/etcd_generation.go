// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/slipway-k8s/slipway/internal/lib/store"
	"github.com/slipway-k8s/slipway/internal/machine/etcd"
	"github.com/slipway-k8s/slipway/internal/machine/node"
)

const (
	// generationInterval is how often a machine looks for a restoration that was requested.
	generationInterval = 10 * time.Second
	// urgentGenerationInterval is that while etcd has no quorum: nothing works until it is restored.
	urgentGenerationInterval = 2 * time.Second
	// generationReadTimeout limits the read at the start of a member that has data: it must start while S3 is unavailable.
	generationReadTimeout = 15 * time.Second
	// formerTimeout is how long after an election members with older data may need to answer.
	formerTimeout = 5 * time.Second
	// generationFile is in the data directory, so that it is set aside with the data. etcd ignores it.
	generationFile = "slipway-generation"
	// restoredDir has a restored database until it is used. It becomes etcd.DataDir by one rename.
	restoredDir = etcd.DataMount + "/restored"
	// asideDir has the data of the last earlier generation.
	asideDir = etcd.DataMount + "/before-restore"
)

// dataGeneration returns the generation of the data in a directory of the volume; 0 if it has none, and 1 for data that
// was never restored.
func (m *etcdMember) dataGeneration(dir string) (int, error) {
	root := m.agent.Root
	if has, err := root.Has(dir + "/member"); err != nil || !has {
		return 0, err
	}

	body, err := root.Read(dir + "/" + generationFile)
	if errors.Is(err, fs.ErrNotExist) {
		return 1, nil
	}

	if err != nil {
		return 0, err
	}

	n, err := strconv.Atoi(strings.TrimSpace(string(body)))
	if err != nil || n < 2 {
		return 0, fmt.Errorf("read %s/%s: %q is not the number of a generation", dir, generationFile, body)
	}

	return n, nil
}

// gatherGeneration adds what is known of restorations. For a member with data a failure to read is not an error: it must
// be able to start while S3 is unavailable, and [etcdMember.watchGeneration] stops it later.
func (m *etcdMember) gatherGeneration(ctx context.Context, f *etcd.Facts) error {
	var err error
	if f.DataGeneration, err = m.dataGeneration(etcd.DataDir); err != nil {
		return err
	}

	readCtx, cancel := context.WithTimeout(ctx, generationReadTimeout)
	defer cancel()
	f.Generation, err = m.readGeneration(readCtx)
	if err != nil && f.HasData && ctx.Err() == nil {
		m.agent.Log.Warn("cannot read whether etcd was restored; starting with the data of the volume",
			slog.Any("error", err))

		return nil
	}

	if err != nil || f.Generation == nil {
		return err
	}

	prepared, err := m.dataGeneration(restoredDir)
	f.Prepared = err == nil && prepared == f.Generation.Number

	return nil
}

// readRestored returns the slots whose member has had data of a generation.
func (m *etcdMember) readRestored(ctx context.Context, number int) (node.RestoredSlots, error) {
	return node.ReadRestoredSlots(ctx, m.store, m.agent.doc.Cluster, number, m.agent.doc.Trust.KubernetesCA)
}

// gatherJoined adds the slots whose member has had data.
func gatherJoined(ctx context.Context, m *etcdMember, f *etcd.Facts) error {
	g := f.Generation
	if g == nil {
		var err error
		f.Joined, err = m.listJoined(ctx, nil)

		return err
	}

	restored, err := m.readRestored(ctx, g.Number)
	f.Joined = restored.Signed
	if slices.Contains(restored.Unsigned, g.Slot) {
		f.Unsigned = node.EtcdRestoredKey(m.agent.doc.Cluster, g.Number, g.Slot)
	}

	return err
}

// recordRestored records that this slot's member has data of a generation. A record without a signature stays: machines may not replace
// it, and the slot's own record says the same.
func (m *etcdMember) recordRestored(ctx context.Context, number int) error {
	key := node.EtcdRestoredKey(m.agent.doc.Cluster, number, m.slot.Name)
	body, err := m.agent.signRecord(key, joinedRecord{Volume: m.volume, Generation: number})
	if err != nil {
		return err
	}

	_, err = m.store.Create(ctx, key, body)
	if errors.Is(err, store.ErrConflict) {
		return nil
	}

	return err
}

// checkRestoredHere returns a notReadyError if the slot's data of a generation was restored on another volume: see
// [etcd.Generation.CheckVolume]. A record without a signature, as agents of earlier versions write them, counts here too.
func checkRestoredHere(ctx context.Context, m *etcdMember, g etcd.Generation) error {
	key := node.EtcdRestoredKey(m.agent.doc.Cluster, g.Number, m.slot.Name)
	var record joinedRecord
	err := m.agent.readRecord(ctx, m.store, key, &record)
	if node.IsUntrusted(err) {
		return checkUnsignedRestored(ctx, m, key)
	}

	if err != nil {
		return err
	}

	if err := g.CheckVolume(m.slot.Name, record.Volume, m.volume); err != nil {
		return newNotReadyError("%s", err)
	}

	return nil
}

// checkUnsignedRestored is checkRestoredHere for a record without a valid signature.
func checkUnsignedRestored(ctx context.Context, m *etcdMember, key string) error {
	record, err := readJSONObject[joinedRecord](ctx, m.store, key)
	if err != nil {
		return err
	}

	if record.Volume != m.volume {
		return newNotReadyError("this machine has volume %s, and not %s, on which the backup was restored by another record; %s; if no other "+
			"machine is in its place, begin again: slipway etcd restore --again", m.volume, record.Volume, etcd.DescribeUnsigned(key))
	}

	return nil
}

// setAside stops etcd and moves its data to asideDir, in place of older data there. If the volume has no room for the data
// of the generation besides, etcd is stopped and the data stays where it is: it is of before the restoration in any case.
func (m *etcdMember) setAside(ctx context.Context, g etcd.Generation) error {
	why := "etcd was restored from a backup"
	if err := m.stopForGood(ctx, why); err != nil {
		return err
	}

	if err := m.volumeRoom(asideDir, restoredDir, etcd.LearnerAsideDir).settingAside().make(g.CheckRoom); err != nil {
		return err
	}

	return m.moveAside(asideDir, why)
}

// eachFile calls visit for the regular files below a directory. What cannot be read does not count.
func eachFile(dir string, visit func(fs.FileInfo)) {
	_ = filepath.WalkDir(dir, func(_ string, entry fs.DirEntry, err error) error {
		if err != nil {
			return nil //nolint:nilerr // see above
		}

		if info, err := entry.Info(); err == nil && info.Mode().IsRegular() {
			visit(info)
		}

		return nil
	})
}

// treeBytes returns the size of the files of a directory; 0 if it does not exist.
func treeBytes(dir string) int64 {
	total := int64(0)
	eachFile(dir, func(info fs.FileInfo) { total += info.Size() })

	return total
}

// stopForGood stops etcd. Until the data directory was moved, no task of the agent starts it again.
func (m *etcdMember) stopForGood(ctx context.Context, why string) error {
	m.agent.etcdFenced.Store(true)
	if _, err := m.agent.Run.Run(ctx, "systemctl", "stop", "etcd"); err != nil {
		return fmt.Errorf("stop etcd to set its data aside (%s): %w", why, err)
	}

	return nil
}

// moveAside moves the data of etcd, which was stopped, to a directory of the volume, in place of older data there. The task of
// [etcdMember.keepGeneration] lets the member join again.
func (m *etcdMember) moveAside(dir, why string) error {
	a := m.agent
	for _, older := range []string{dir, etcd.LearnerAsideDir} {
		if err := os.RemoveAll(a.Root.Path(older)); err != nil {
			return fmt.Errorf("remove older data: %w", err)
		}
	}

	if err := os.Rename(a.Root.Path(etcd.DataDir), a.Root.Path(dir)); err != nil {
		return fmt.Errorf("set etcd's data aside: %w", err)
	}

	a.Log.Warn("set etcd's data aside", slog.String("directory", dir), slog.String("reason", why))

	return a.Root.MakeDir(etcd.DataDir, 0o700, etcdUID)
}

// stepAside sets the data aside in a directory because it is not that of the majority. The mark tells an agent that is killed before the
// end to continue: etcd must not start with this data again.
func (m *etcdMember) stepAside(ctx context.Context, dir, why string) error {
	m.agent.etcdData.Lock()
	defer m.agent.etcdData.Unlock()
	if _, err := m.agent.Root.Write(File{Path: stepAsideMark, Body: []byte(dir), Mode: 0o600}); err != nil {
		return fmt.Errorf("mark the data of etcd to be set aside: %w", err)
	}

	return m.finishStepAside(ctx, why)
}

// finishStepAside sets the data aside if it is marked, and removes the mark. The member must join with another id: the leader knows what
// that of the data has confirmed.
func (m *etcdMember) finishStepAside(ctx context.Context, why string) error {
	root := m.agent.Root
	if !root.Exists(stepAsideMark) {
		return nil
	}

	dir := corruptDir
	if body, err := root.Read(stepAsideMark); err != nil {
		return err
	} else if string(body) == etcd.LearnerAsideDir {
		dir = etcd.LearnerAsideDir
	}

	if m.hasData() {
		if err := m.stopForGood(ctx, why); err != nil {
			return err
		}

		if err := root.Remove(addedFile); err != nil {
			return err
		}

		if err := m.moveAside(dir, why); err != nil {
			return err
		}
	}

	if err := os.Remove(root.Path(stepAsideMark)); err != nil {
		return fmt.Errorf("remove the mark of data that was set aside: %w", err)
	}

	return nil
}

// restoreBackup restores the backup of a generation. It can be killed after any step: the restored database is complete
// when it has its generationFile, the record in the store prevents a second restoration, and the rename makes it
// the member's data.
func (m *etcdMember) restoreBackup(ctx context.Context, f etcd.Facts) error {
	a := m.agent
	if !f.Prepared {
		if err := m.prepareRestored(ctx, *f.Generation); err != nil {
			return err
		}
	}

	if err := m.awaitFormer(ctx, f); err != nil {
		return err
	}

	if err := m.recordRestored(ctx, f.Generation.Number); err != nil {
		return err
	}

	if err := checkRestoredHere(ctx, m, *f.Generation); err != nil {
		return err
	}

	if err := os.RemoveAll(a.Root.Path(etcd.DataDir)); err != nil { // an empty directory
		return fmt.Errorf("use the restored database: %w", err)
	}

	if err := os.Rename(a.Root.Path(restoredDir), a.Root.Path(etcd.DataDir)); err != nil {
		return fmt.Errorf("use the restored database: %w", err)
	}

	return nil
}

// awaitFormer returns a notReadyError if members with older data answer with a quorum. They may have lost their leader when this
// machine's member stopped, so it asks for as long as they need to elect another one. Machines that recover a lost quorum know that no
// member works.
func (m *etcdMember) awaitFormer(ctx context.Context, f etcd.Facts) error {
	manager := m.formerManager(f)
	if f.Generation.Recovery != nil || len(manager.Peers) == 0 {
		return nil
	}

	election := time.Duration(m.agent.doc.Etcd.ElectionTimeoutMS) * time.Millisecond
	for range int((2*election + formerTimeout) / time.Second) {
		if members := manager.Members(ctx, f.Slot); members != nil {
			return newNotReadyError("%s", etcd.DescribeFormer(members))
		}

		if err := m.agent.Wait(ctx, time.Second); err != nil {
			return err
		}
	}

	return nil
}

// prepareRestored downloads the backup of a generation and restores it into restoredDir.
func (m *etcdMember) prepareRestored(ctx context.Context, g etcd.Generation) error {
	a := m.agent
	b := newEtcdBackup(m)
	listing, err := b.catalog.List(ctx)
	if err != nil {
		return err
	}

	found, ok := listing.Find(g.Backup)
	if !ok {
		return fmt.Errorf(
			"restore backup %s: %s: restore another one",
			g.Backup,
			listing.DescribeMissing(g.Backup),
		)
	}

	dir, err := prepareWorkDir(a.Root, "restore", found.DBSize)
	if err != nil {
		return err
	}

	defer func() { _ = os.RemoveAll(dir) }()
	snapshot := filepath.Join(dir, "snapshot.db")
	if err := b.download(ctx, found.Metadata, snapshot); err != nil {
		return err
	}

	if err := m.volumeRoom(restoredDir).make(g.CheckRoom); err != nil {
		return err
	}

	target := a.Root.Path(restoredDir)
	if err := os.RemoveAll(target); err != nil {
		return fmt.Errorf("remove an unfinished restoration: %w", err)
	}

	err = b.tool.restore(ctx, snapshot, restoreOptions{
		dataDir:      target,
		name:         m.slot.Member,
		peerURL:      m.slot.PeerURL,
		token:        g.Token,
		bumpRevision: etcd.BumpRevision,
	})
	if err != nil {
		return err
	}

	return finishRestored(target, g.Number)
}

// finishRestored gives a restored database to etcd's user, and marks it as complete.
func finishRestored(dir string, number int) error {
	err := filepath.WalkDir(dir, func(p string, _ fs.DirEntry, err error) error {
		return errors.Join(err, os.Lchown(p, etcdUID, etcdUID)) //nolint:gosec // only root can write to the directory
	})
	if err != nil {
		return fmt.Errorf("give the restored database to etcd: %w", err)
	}

	return writeGeneration(dir, number)
}

// writeGeneration writes the number of the generation of a data directory, and waits until it is on the disk.
func writeGeneration(dir string, number int) error {
	out, err := createOwnFile(filepath.Join(dir, generationFile))
	if err != nil {
		return fmt.Errorf("mark the data of generation %d: %w", number, err)
	}

	_, err = out.WriteString(strconv.Itoa(number) + "\n")
	if err = errors.Join(err, out.Chown(etcdUID, etcdUID), out.Sync(), out.Close()); err != nil {
		return fmt.Errorf("mark the data of generation %d: %w", number, err)
	}

	return nil
}

// isRestored reports whether there is a newer generation than have. It reads one object as long as there is none, since S3 charges for
// lists.
func (m *etcdMember) isRestored(ctx context.Context, have int) (bool, error) {
	_, err := m.store.Get(ctx, node.EtcdGenerationKey(m.agent.doc.Cluster, have+1))
	if errors.Is(err, store.ErrNotFound) {
		return false, nil
	}

	if err != nil {
		return false, err
	}

	g, err := m.readGeneration(ctx)

	return g != nil && g.Number > have, err
}

// watchGeneration restarts the member with the data of a newer generation, if one was requested.
func (m *etcdMember) watchGeneration(ctx context.Context) error {
	a := m.agent
	a.etcdData.Lock()
	defer a.etcdData.Unlock()
	have, err := m.dataGeneration(etcd.DataDir)
	if err != nil {
		return err
	}

	if have > 0 && !a.etcdFenced.Load() {
		isNewer, err := m.isRestored(ctx, have)
		if err != nil || !isNewer {
			return err
		}
	}

	if have == 0 && !a.etcdFenced.Load() {
		return nil // the volume is not mounted, or its data was lost: other tasks report it
	}

	if err := a.convergeEtcd(ctx, m); err != nil {
		return err
	}

	if err := m.readFormerKeys(ctx); err != nil {
		return err
	}

	a.etcdFenced.Store(false)
	a.Log.Warn("etcd runs with other data than before; restarting the API server")
	former := newFormerAPIServer(a)
	if err := a.writeStaticPods(); err != nil { // with another annotation, so that the kubelet restarts the API server
		return err
	}

	return former.end(ctx)
}

// lookForGeneration is [etcdMember.watchGeneration], which it repeats sooner while etcd has no quorum. What a restoration waits for is
// logged, and in the machine's report on the missing quorum.
func (m *etcdMember) lookForGeneration(ctx context.Context) error {
	err := m.watchGeneration(ctx)
	waits, isWaiting := errors.AsType[notReadyError](err)
	before := m.restorationWaits.Load()

	switch {
	case !isWaiting:
		m.restorationWaits.Store(nil)
	case before == nil || *before != waits.reason:
		m.restorationWaits.Store(&waits.reason)
		m.agent.Log.Info("the restoration of etcd waits", slog.String("reason", waits.reason))
	}

	if err != nil {
		return err
	}

	if m.agent.quorumLost.Load() {
		return againError{after: urgentGenerationInterval}
	}

	return nil
}

// keepGeneration watches for restorations until ctx ends.
func (m *etcdMember) keepGeneration(ctx context.Context) error {
	task := periodicTask{"etcd restoration", generationInterval, m.lookForGeneration}

	return task.repeat(ctx, m.agent, backupTimeout)
}
