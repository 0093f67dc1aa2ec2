// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"context"
	"errors"
	"log/slog"
	"os"
	"strconv"
	"strings"

	"github.com/slipway-k8s/slipway/internal/machine/etcd"
)

// learnerMark is the file that marks the data of a member that has not been promoted yet.
const learnerMark = etcd.DataDir + "/" + etcd.LearnerFile

// addedFile has the id of the learner that a machine has added last, so that only this one starts with it. It is on the volume, next to
// the data.
const addedFile = etcd.DataMount + "/added-learner"

// recordAdded records which learner this machine has added, and waits until it is on the disk.
func recordAdded(root *HostFS, id uint64) error {
	_, err := root.Write(File{
		Path:    addedFile,
		Body:    []byte(strconv.FormatUint(id, 16) + "\n"),
		Mode:    0o600,
		Shared:  true, // it is not to be restored on another volume
		Durable: true,
	})

	return err
}

// readAdded returns the id of the learner that was added for this volume; 0 if there is none, or if it is not known.
func readAdded(root *HostFS) uint64 {
	body, err := root.Read(addedFile)
	if err != nil {
		return 0
	}

	id, err := strconv.ParseUint(strings.TrimSpace(string(body)), 16, 64)
	if err != nil {
		return 0
	}

	return id
}

// startNew starts etcd without data as a founder, which has a vote from the beginning.
func (m *etcdMember) startNew(ctx context.Context, marker etcd.BootstrapMarker) error {
	if err := m.agent.Root.Remove(learnerMark); err != nil {
		return err
	}

	return m.startEtcd(ctx, etcd.StartOptions{
		Members:        m.founders(marker),
		Token:          marker.Token,
		NewCluster:     true,
		AllowEmptyData: true,
	})
}

// startJoining starts etcd without data. It gets the data of the current generation from the others.
func (m *etcdMember) startJoining(ctx context.Context, f etcd.Facts) error {
	if f.Absent {
		if err := m.writeAbsent(ctx, f.Slot, false); err != nil {
			return err
		}
	}

	options := etcd.StartOptions{Members: m.currentCluster(f.Members), AllowEmptyData: true}
	if f.Marker != nil {
		options.Token = f.Marker.Token
	}

	if g := f.Generation; g != nil {
		options.Token = g.Token
		if err := writeGeneration(m.agent.Root.Path(etcd.DataDir), g.Number); err != nil {
			return err
		}
	}

	if err := m.markLearner(); err != nil {
		return err
	}

	return m.startEtcd(ctx, options)
}

// markLearner marks an empty data directory as that of a member without a vote, and waits until the mark is on the disk. A mark
// that is lost nevertheless makes the data count as a voter's: machines then wait for it.
func (m *etcdMember) markLearner() error {
	// Shared: an agent that restores its files must not write it again after the promotion.
	_, err := m.agent.Root.Write(File{Path: learnerMark, Mode: 0o600, UID: etcdUID, Shared: true, Durable: true})

	return err
}

// notePromotion removes the mark, and the data of an earlier attempt that was set aside, once the member at url reports that it is a voter:
// then it has the promotion in its own log.
func (m *etcdMember) notePromotion(ctx context.Context, manager etcd.Manager, url string) error {
	if !m.agent.Root.Exists(learnerMark) {
		return nil
	}

	if s, err := manager.Status(ctx, url); err != nil || s.Learner {
		return nil //nolint:nilerr // the machine's report says what is wrong with the member
	}

	if err := m.agent.Root.RemoveAll(etcd.LearnerAsideDir); err != nil {
		return err
	}

	return m.agent.Root.Remove(learnerMark)
}

// isLearnerData reports whether the data is that of a member that has not been promoted. The mark may be there still after the
// promotion, if the agent or the machine ended in between: the log of the member decides.
func (m *etcdMember) isLearnerData() (bool, error) {
	marked, err := m.agent.Root.Has(learnerMark)
	if err != nil || !marked {
		return false, err
	}

	return etcd.HasNoVote(os.DirFS(m.agent.Root.Path(etcd.DataDir + "/member/wal"))), nil
}

// clearLearner removes a learner that is stuck while another slot waits to join.
func (w *etcdResize) clearLearner(ctx context.Context, manager etcd.Manager, survey etcd.Survey) error {
	if w.stuckLearner(survey).Type != etcd.ResizeRemove {
		return nil
	}

	err := w.checkChanges(ctx)
	if errors.As(err, new(notReadyError)) {
		w.agent.Log.Info("the stuck etcd learner is not removed yet", slog.Any("error", err))
		return nil
	}

	if err != nil {
		return err
	}

	// Its machine may promote it at any time: look again immediately before.
	survey, err = manager.Survey(ctx, w.url)
	if err != nil {
		return nil //nolint:nilerr // without a quorum nothing can be done here; validate says so
	}

	if step := w.stuckLearner(survey); step.Type == etcd.ResizeRemove {
		return w.remove(ctx, manager, step)
	}

	return nil
}

// stuckLearner returns the decision about the learner after a look at the members.
func (w *etcdResize) stuckLearner(survey etcd.Survey) etcd.Resize {
	w.learner = w.learner.Observe(survey.Members, w.agent.Now())

	return etcd.DecideLearner(etcd.ResizeFacts{
		Slot:    w.member.slot.Name,
		Slots:   slotNames(w.agent),
		Members: survey.Members,
	}, w.learner)
}
