// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"slices"
	"time"

	"github.com/slipway-k8s/slipway/api/v1alpha1"
	"github.com/slipway-k8s/slipway/internal/lib/store"
	"github.com/slipway-k8s/slipway/internal/machine/backup"
	"github.com/slipway-k8s/slipway/internal/machine/etcd"
	"github.com/slipway-k8s/slipway/internal/machine/node"
)

const (
	// recoveryInterval is how often a machine looks whether etcd has its quorum.
	recoveryInterval = 10 * time.Second
	// urgentRecoveryInterval is that while it has none. A look takes some seconds then, and writes a report.
	urgentRecoveryInterval = 5 * time.Second
	// defaultRecoveryDelay is the default of spec.etcd.quorumLoss.after.
	defaultRecoveryDelay = 10 * time.Minute
)

// recoveryMemory is what an agent remembers while etcd has no quorum. Only one task at a time uses it.
type recoveryMemory struct {
	// asked is set when this machine's own report was read, which an earlier process may have written.
	asked bool
	// own is this machine's last report.
	own etcd.QuorumReport
	// published is the session of the last report that this process has written.
	published string
	// lossSince is since when each look showed that the volumes of a majority are lost; zero if the last did not, or if another member
	// has had data since, on a volume that EC2 may not list yet.
	lossSince time.Time
	// joined is how many slots have had data of the current generation.
	joined int
	// seen are the reports of the other slots' machines.
	seen etcd.ReportWatch
	// tests are the results of this process's tests by the id of the backup.
	tests map[string]backup.Verification
	// reason of the last decision.
	reason string
}

// etcdRecovery recovers etcd after the loss of its quorum: see [etcd.DecideRecovery].
type etcdRecovery struct {
	member *etcdMember
	backup *etcdBackup
	memory *recoveryMemory
	// url of the machine's own member, and program the path of etcd.
	url, program string
	// members returns the members that answer with a quorum; nil if none does.
	members func(context.Context, etcd.Facts) []etcd.Member
	// checkSlots returns an error if the control plane has slots that this machine does not know, or may have.
	checkSlots func(context.Context) error
}

func (m *etcdMember) newRecovery() *etcdRecovery {
	return &etcdRecovery{
		member:  m,
		backup:  newEtcdBackup(m),
		memory:  &m.agent.recovery,
		url:     etcd.ClientURL,
		program: m.agent.doc.BinDir() + "/etcd",
		members: func(ctx context.Context, f etcd.Facts) []etcd.Member { return m.managerOf(f).Members(ctx, "") },

		checkSlots: currentOf(m.agent).checkKnowsSlots,
	}
}

// keepRecovered looks until ctx ends. A machine whose document was written by an earlier version cannot read backups.
func (m *etcdMember) keepRecovered(ctx context.Context) error {
	if m.agent.doc.Store.KMSKeyARN == "" {
		<-ctx.Done()
		return ctx.Err()
	}

	task := periodicTask{"etcd recovery", recoveryInterval, m.newRecovery().look}

	return task.repeat(ctx, m.agent, backupTimeout)
}

// look takes one decision, carries it out, and says when the next one is due.
func (r *etcdRecovery) look(ctx context.Context) error {
	err := r.run(ctx)
	own := r.memory.own
	isLost := !own.LostAt.IsZero()
	r.member.agent.quorumLost.Store(isLost)
	if err != nil || !isLost {
		return err
	}

	return againError{after: untilNextLook(own, r.member.agent.Now())}
}

// untilNextLook returns the time until a machine that reported r looks again: at once after a step, and not later than the time
// at which it will act.
func untilNextLook(r etcd.QuorumReport, now time.Time) time.Duration {
	if r.Step == etcd.RecoverSave || r.Step == etcd.RecoverVerify {
		return progressPause
	}

	if due := r.DueAt.Sub(now); !r.DueAt.IsZero() && due > 0 {
		return min(due, urgentRecoveryInterval)
	}

	return urgentRecoveryInterval
}

// run takes one decision and carries it out.
func (r *etcdRecovery) run(ctx context.Context) error {
	if r.member.volume == "" {
		return nil // this machine has nothing to report: others see whether the volume exists
	}

	// Without reading the machine store, which costs money. A member of an earlier generation is stopped by another task.
	if _, quorum, err := r.member.agent.newEtcdManager().Probe(ctx, r.url); err == nil && quorum {
		return r.noteQuorum(ctx)
	}

	known, err := r.gatherMember(ctx)
	if err != nil {
		return err
	}

	if r.members(ctx, known) != nil {
		return r.noteQuorum(ctx)
	}

	facts, err := r.gather(ctx, known)
	if err != nil {
		return err
	}

	if err := checkOwnReport(facts); err != nil {
		return err
	}

	step := r.decide(ctx, facts)
	r.memory.own.LostData, _, _ = facts.LostMajority()
	if step.Reason != r.memory.reason {
		r.memory.reason = step.Reason
		r.member.agent.Log.Warn(
			"etcd has no quorum",
			slog.String("step", string(step.Type)),
			slog.String("reason", step.Reason),
		)
	}

	if err := r.publish(ctx, step); err != nil {
		return err
	}

	return r.carryOut(ctx, facts, step)
}

// gatherMember returns the newest generation, the slots that have its data, and the generation of this machine's data.
func (r *etcdRecovery) gatherMember(ctx context.Context) (etcd.Facts, error) {
	m := r.member
	if err := m.requireVolume(); err != nil {
		return etcd.Facts{}, err
	}

	f := etcd.Facts{Slot: m.slot.Name, Volume: m.volume, HasData: m.hasData()}
	f.Slots = slotNames(m.agent)
	var err error
	if f.DataVolume, err = m.dataVolume(); err != nil {
		return f, err
	}

	if f.DataGeneration, err = m.dataGeneration(etcd.DataDir); err != nil {
		return f, err
	}

	if f.Learner, err = m.isLearnerData(); err != nil {
		return f, err
	}

	if f.IsCopy() { // it may lack what the member has acknowledged: it is no data to recover from
		f.HasData = false
		f.DataGeneration = 0
	}

	if f.Generation, err = m.readGeneration(ctx); err != nil {
		return f, err
	}

	if f.Joined, err = m.listJoined(ctx, f.Generation); err != nil {
		return f, err
	}

	f.Marker, err = m.readMarker(ctx)

	return f, err
}

// generationOf returns the number of the current generation.
func generationOf(f etcd.Facts) int {
	if f.Generation == nil {
		return 1
	}

	return f.Generation.Number
}

// noteQuorum tells the others that etcd has a quorum, if this machine or an earlier process reported the contrary.
func (r *etcdRecovery) noteQuorum(ctx context.Context) error {
	if err := r.readOwn(ctx); err != nil {
		return err
	}

	wasLost := !r.memory.own.LostAt.IsZero()
	r.memory.lossSince = time.Time{}
	r.memory.reason = ""
	if !wasLost {
		return nil
	}

	r.memory.newSession()
	r.memory.own.LostAt = time.Time{}
	r.memory.own.Quorum = true

	return r.publish(ctx, etcd.RecoveryStep{Type: etcd.RecoverNothing, Reason: "etcd has a quorum"})
}

// gather returns the facts for a decision.
func (r *etcdRecovery) gather(ctx context.Context, known etcd.Facts) (etcd.RecoveryFacts, error) {
	f := etcd.RecoveryFacts{
		Slot:         known.Slot,
		Generation:   generationOf(known),
		Bootstrapped: known.Generation != nil || len(known.Joined) > 0,
	}
	policy, err := newRecoveryPolicy(r.member.agent.doc.Etcd.QuorumLoss)
	if err != nil {
		return f, err
	}

	f.Policy = policy
	if g := known.Generation; g != nil && len(known.Joined) == 0 { // other members join after it
		f.Restoring = g.Slot
	}

	if err := r.readOwn(ctx); err != nil {
		return f, err
	}

	if err := r.renewSession(ctx); err != nil {
		return f, err
	}

	r.describeOwn(known)
	slots, err := r.listSlots(ctx, known)
	if err != nil {
		return f, err
	}

	if f.Slots, err = r.gatherSlots(ctx, slots); err != nil {
		return f, err
	}

	r.noteJoined(known)
	r.noteTimes(&f)

	return f, r.addBackups(ctx, &f, known.Generation)
}

// newRecoveryPolicy returns the policy of a node document. Without settings, operators recover etcd.
func newRecoveryPolicy(q v1alpha1.EtcdQuorumLoss) (etcd.RecoveryPolicy, error) {
	out := etcd.RecoveryPolicy{Automatic: q.Recovery == v1alpha1.RecoveryAutomatic, After: defaultRecoveryDelay}
	if q.After == "" {
		return out, nil
	}

	var err error
	if out.After, err = time.ParseDuration(q.After); err != nil || out.After <= 0 {
		return out, fmt.Errorf("spec.etcd.quorumLoss.after: %q is not a valid duration", q.After)
	}

	return out, nil
}

// noteJoined lets the time begin anew for which the loss of a majority was seen, if another member has had data since the last look: EC2 may
// list its volume later than the machine store has the record.
func (r *etcdRecovery) noteJoined(known etcd.Facts) {
	if len(known.Joined) != r.memory.joined {
		r.memory.joined = len(known.Joined)
		r.memory.lossSince = time.Time{}
	}
}

// noteTimes adds for how long the quorum is missing and the volumes are lost.
func (r *etcdRecovery) noteTimes(f *etcd.RecoveryFacts) {
	now := r.member.agent.Now()
	f.LostFor = now.Sub(r.memory.own.LostAt)
	isLost, _, _ := f.LostMajority()
	if !isLost {
		r.memory.lossSince = time.Time{}
		return
	}

	if r.memory.lossSince.IsZero() {
		r.memory.lossSince = now
	}

	f.SeenFor = now.Sub(r.memory.lossSince)
}

// addBackups adds the newest backup that can be restored, and the one of this machine's data.
func (r *etcdRecovery) addBackups(ctx context.Context, f *etcd.RecoveryFacts, g *etcd.Generation) error {
	if isLost, _, _ := f.LostMajority(); !isLost {
		return nil
	}

	listing, err := r.backup.catalog.List(ctx)
	if err != nil {
		return err
	}

	r.memory.useOwnTests(listing.Backups)
	f.Backup = newestRecoverable(listing.Backups, g)
	at := slices.IndexFunc(listing.Backups, func(b backup.Backup) bool {
		return b.IsSigned && b.RequestID == savedID(r.memory.own)
	})
	if at < 0 {
		return nil
	}

	saved := listing.Backups[at]
	f.Saved = &etcd.SavedData{ID: saved.ID}
	if saved.Broken() {
		f.Saved.Problem = saved.Verification.Error
	}

	return nil
}

// newestRecoverable returns the newest backup that can be restored: see [backup.NewestOfGeneration].
func newestRecoverable(backups []backup.Backup, g *etcd.Generation) *etcd.RecoveryBackup {
	newest := backup.NewestOfGeneration(backups, g)
	if newest == nil {
		return nil
	}

	return &etcd.RecoveryBackup{
		ID:       newest.ID,
		Position: newest.Position(),
		Verified: newest.Verified(),
		TakenAt:  newest.TakenAt,
	}
}

// useOwnTests replaces verifications by the results of this process's own tests, and removes those that no machine of the cluster has
// signed. A record that exists is not written again, so the result may be nowhere else.
func (m *recoveryMemory) useOwnTests(backups []backup.Backup) {
	for i := range backups {
		b := &backups[i]
		if own, isTested := m.tests[b.ID]; isTested {
			b.Verification = &own
			b.IsTestSigned = true
		}
	}

	backup.IgnoreUnsignedTests(backups)
}

// carryOut carries out one step.
func (r *etcdRecovery) carryOut(ctx context.Context, f etcd.RecoveryFacts, step etcd.RecoveryStep) error {
	switch step.Type {
	case etcd.RecoverSave:
		return r.save(ctx)
	case etcd.RecoverVerify:
		return r.verify(ctx, step.Backup)
	case etcd.RecoverBegin:
		return r.begin(ctx, f, step)
	case etcd.RecoverNothing, etcd.RecoverWait, etcd.RecoverManual:
	}

	return nil
}

// verify tests a backup.
func (r *etcdRecovery) verify(ctx context.Context, id string) error {
	found, err := r.findBackup(ctx, id)
	if err != nil {
		return err
	}

	dir, err := prepareWorkDir(r.member.agent.Root, "recover", testCopies*found.DBSize)
	if err != nil {
		return err
	}

	defer func() { _ = os.RemoveAll(dir) }()

	return r.whileReporting(ctx, func(ctx context.Context) error {
		result, err := r.backup.verifyIn(ctx, found.Metadata, dir)
		if err != nil {
			return err
		}

		if r.memory.tests == nil {
			r.memory.tests = map[string]backup.Verification{}
		}

		r.memory.tests[found.ID] = result

		return nil
	})
}

func (r *etcdRecovery) findBackup(ctx context.Context, id string) (backup.Backup, error) {
	listing, err := r.backup.catalog.List(ctx)
	if err != nil {
		return backup.Backup{}, err
	}

	found, ok := listing.Find(id)
	if !ok {
		return found, fmt.Errorf("recover etcd from backup %s: %s", id, listing.DescribeMissing(id))
	}

	return found, nil
}

// begin begins a generation, unless another machine or an operator was faster. The machines then restore the backup as they do
// after 'slipway etcd restore'.
func (r *etcdRecovery) begin(ctx context.Context, f etcd.RecoveryFacts, step etcd.RecoveryStep) error {
	a := r.member.agent
	found, err := r.findBackup(ctx, step.Backup)
	if err != nil {
		return err
	}

	g := etcd.Generation{
		Number:    f.Generation + 1,
		Token:     rand.Text(),
		Backup:    found.ID,
		Bytes:     found.DBSize,
		Slot:      f.Slot,
		CreatedAt: a.Now().UTC(),
		By:        "machine " + a.instance.ID,
		Recovery: &etcd.Recovery{
			LostAt:   r.memory.own.LostAt,
			Lost:     step.Lost,
			Survivor: step.Survivor,
			Revision: found.Revision,
			TakenAt:  found.TakenAt,
		},
	}
	room := r.member.volumeRoom(asideDir, restoredDir)
	if r.member.hasData() {
		room = room.settingAside()
	}

	if err := room.make(g.CheckRoom); err != nil { // afterwards it would be too late to let another machine restore
		return err
	}

	key := node.EtcdGenerationKey(a.doc.Cluster, g.Number)
	body, err := a.signRecord(key, g)
	if err != nil {
		return err
	}

	_, err = r.member.store.Create(ctx, key, body)
	if errors.Is(err, store.ErrConflict) {
		return nil
	}

	if err != nil {
		return err
	}

	a.Log.Warn("recovering etcd", slog.String("backup", g.Backup), slog.Int("generation", g.Number),
		slog.String("lost", g.Recovery.DescribeLoss()))

	return nil
}
