// SPDX-License-Identifier: Apache-2.0

package backup_test

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/slipway-k8s/slipway/internal/machine/backup"
)

// model is an archive with machines that act on views of it that may be old.
type model struct {
	*rapid.T
	plain      *testing.T // of a history without chance
	policy     backup.Policy
	now        time.Time
	complete   []backup.Backup
	incomplete []string
	views      []backup.Facts // the older ones first
	taken      int
	ahead      time.Duration // of the clock of the leader's machine; negative: behind
	generation int           // of the data; 0 before the first restoration
	restored   string        // the backup that the generation was restored from
	broken     backup.Step   // what fails on all machines without an effect; no type: nothing
}

// fails reports whether an action on a backup fails on all machines.
func (m *model) fails(action backup.ActionType, id string) bool {
	return action == m.broken.Type && (m.broken.ID == "" || m.broken.ID == id)
}

// Fatalf ends the test.
func (m *model) Fatalf(format string, args ...any) {
	if m.plain != nil {
		m.plain.Fatalf(format, args...)
	}
	m.T.Fatalf(format, args...)
}

func (m *model) facts(skew time.Duration) backup.Facts {
	return backup.Facts{
		Now: m.now.Add(skew), Policy: m.policy, Backups: slices.Clone(m.complete), Incomplete: slices.Clone(m.incomplete),
		Generation: m.generation, Restored: m.restored,
	}
}

func (m *model) usable() int {
	n := 0
	for _, b := range m.complete {
		if !b.Broken() {
			n++
		}
	}
	return n
}

func (m *model) newestVerified() string {
	newest := backup.Backup{}
	for _, b := range m.complete {
		if b.Verified() && (b.TakenAt.After(newest.TakenAt) || b.TakenAt.Equal(newest.TakenAt) && b.ID > newest.ID) {
			newest = b
		}
	}
	return newest.ID
}

// hasOwn reports whether a backup of the present data can be restored.
func (m *model) hasOwn() bool {
	return slices.ContainsFunc(m.complete, func(b backup.Backup) bool { return b.Generation == m.generation && !b.Broken() })
}

// restore lets an operator restore a backup. All members have its data at once, and no machine acts on what it knew before.
func (m *model) restore() {
	usable := slices.DeleteFunc(slices.Clone(m.complete), backup.Backup.Broken)
	if len(usable) == 0 {
		return
	}
	m.restored = rapid.SampledFrom(usable).Draw(m.T, "restored").ID
	m.generation = max(m.generation, 1) + 1
	m.views = nil
}

func (m *model) has(id string) bool {
	return slices.ContainsFunc(m.complete, func(b backup.Backup) bool { return b.ID == id })
}

// testResult is how a test of a backup ends.
type testResult int

const (
	passes testResult = iota
	fails
	hasNoResult
	comparesNoHash
)

// drawResult returns how a test ends: mostly well.
func (m *model) drawResult() testResult {
	return rapid.SampledFrom([]testResult{passes, passes, passes, fails, hasNoResult, comparesNoHash}).Draw(m.T, "test")
}

// act carries out what is decided on a view. killed is how many effects happen before the machine is killed. It returns the step, and
// whether it failed.
func (m *model) act(f backup.Facts, killed int, result testResult) (step backup.Step, failed bool) {
	action := backup.Decide(f)
	step.Type = action.Type
	usable, verified := m.usable(), m.newestVerified()
	switch action.Type {
	case backup.ActionTake:
		if m.fails(action.Type, "") {
			return step, true
		}
		m.taken++
		id := backup.NewID(f.Now, fmt.Sprintf("x%04d", m.taken))
		if killed == 0 {
			m.incomplete = append(m.incomplete, id)
			break
		}
		needed := backup.NeedsTest(f, action.Reason)
		taken := backup.Backup{
			Metadata: backup.Metadata{ID: id, TakenAt: f.Now, Reason: action.Reason, Generation: f.Generation},
			IsSigned: true,
		}
		m.complete = append(m.complete, taken)
		f.Backups = append(slices.Clone(f.Backups), taken)
		f.Failed = []backup.Step{{Type: backup.ActionDelete}}
		next := backup.Decide(f)
		if tested := next.Type == backup.ActionVerify && next.IDs[0] == id; next.Type != backup.ActionTake && needed != tested {
			m.Fatalf("a backup needs a test: %t; it is tested: %t", needed, tested)
		}
	case backup.ActionVerify:
		if step.ID = action.IDs[0]; m.fails(action.Type, step.ID) {
			return step, true
		}
		if i := slices.IndexFunc(m.complete, func(b backup.Backup) bool { return b.ID == action.IDs[0] }); i >= 0 && killed > 0 && m.complete[i].Verification == nil {
			m.complete[i].Verification = &backup.Verification{
				ID: action.IDs[0], OK: result == passes || result == comparesNoHash, HashCompared: result == passes,
				Inconclusive: result == hasNoResult,
			}
		}
	case backup.ActionDelete:
		if slices.Contains(action.IDs, m.restored) && !m.hasOwn() {
			m.Fatalf("the backup %s that was restored was deleted, and there is none of the restored data", m.restored)
		}
		for n, id := range action.IDs {
			if n >= killed {
				break
			}
			if m.fails(action.Type, id) {
				step.ID = id
				failed = true
				break
			}
			m.delete(f, id, n == killed-1 && killed < 5)
		}
		if m.usable() < min(usable, 3) {
			m.Fatalf("%d usable backups are left of %d", m.usable(), usable)
		}
		if verified != "" && !m.has(verified) {
			m.Fatalf("the newest verified backup %s was deleted", verified)
		}
	case backup.ActionNone:
	}
	return step, failed
}

// delete deletes a backup; halfway leaves its parts.
func (m *model) delete(f backup.Facts, id string, halfway bool) {
	if i := slices.IndexFunc(m.complete, func(b backup.Backup) bool { return b.ID == id }); i >= 0 {
		if age := f.Now.Sub(m.complete[i].TakenAt); age < m.policy.KeepAll {
			m.Fatalf("deleted a backup of %s", age)
		}
		m.complete = slices.Delete(m.complete, i, i+1)
		if halfway {
			m.incomplete = append(m.incomplete, id)
		}
	}
	if !halfway {
		m.incomplete = slices.DeleteFunc(m.incomplete, func(i string) bool { return i == id })
	}
}

// actUntilDone lets one machine act until nothing is to be done, as a look of an agent does. If no backup can be deleted, it ends after
// as many actions as a look has: then nothing else is left to be done.
func (m *model) actUntilDone() {
	deniesAll := m.broken == backup.Step{Type: backup.ActionDelete}
	most := 20
	if deniesAll {
		most = 10
	}
	var all []backup.Step
	for range most {
		f := m.facts(0)
		f.Failed = all

		step, failed := m.act(f, 1000, passes)
		if step.Type == backup.ActionNone {
			return
		}
		if failed {
			all = append(all, step)
		}
	}
	f := m.facts(0)
	if deniesAll {
		f.Failed = []backup.Step{m.broken}
	}
	if left := backup.Decide(f); !deniesAll || left.Type != backup.ActionNone {
		m.Fatalf("no end: %+v", left)
	}
}

// settle lets one machine act until nothing is to be done, and checks what must then be so: also if no test can run, no backup can be
// taken, or one cannot be tested or deleted, no other one is kept than the policy says.
func (m *model) settle() {
	m.actUntilDone()
	for _, id := range m.incomplete {
		if id < backup.NewID(m.now.Add(-7*time.Hour), "") && !m.fails(backup.ActionDelete, id) {
			m.Fatalf("the rest %s of a killed upload or deletion was kept", id)
		}
	}
	if m.broken.Type == backup.ActionTake {
		return // those that have expired are kept, and no other one is added
	}
	fresh := func(b backup.Backup) bool {
		return b.Generation == m.generation && m.now.Sub(b.TakenAt).Abs() < m.policy.Interval
	}
	if !slices.ContainsFunc(m.complete, fresh) {
		m.Fatalf("no backup of the present data is younger than the interval")
	}
	inAll := 0
	for _, b := range m.complete {
		if m.now.Sub(b.TakenAt) < m.policy.KeepAll {
			inAll++
		}
	}
	inTest := int(time.Hour / m.policy.Interval) // those of the last hour do not count as usable
	if most := inAll + m.policy.KeepDaily + 5 + inTest + m.undeletable(); len(m.complete) > most {
		m.Fatalf("%d backups are kept, want at most %d", len(m.complete), most)
	}
}

// undeletable returns how many complete backups cannot be deleted.
func (m *model) undeletable() int {
	if m.broken == (backup.Step{Type: backup.ActionDelete}) {
		return len(m.complete)
	}
	if m.broken.Type == backup.ActionDelete && m.has(m.broken.ID) {
		return 1
	}
	return 0
}

// checkTests checks that leaders with right clocks test backups, whatever was taken before, and keep one that was tested.
func (m *model) checkTests() {
	isRight := func(b backup.Backup) bool { return b.Verified() && m.now.Sub(b.TakenAt) > -m.policy.Interval }
	if !slices.ContainsFunc(m.complete, isRight) {
		m.Fatalf("no backup was verified but those from the future")
	}
	begin := m.now
	rounds := m.policy.VerifyEvery + 2 // the time of a backup from the future may come meanwhile
	if slices.ContainsFunc(m.complete, func(b backup.Backup) bool { return b.Untestable() && b.TakenAt.After(begin) }) {
		rounds += m.policy.VerifyEvery // and the next test is as long after it as after another one
	}
	for range rounds {
		m.now = m.now.Add(m.policy.Interval)
		m.settle()
	}
	if !slices.ContainsFunc(m.complete, func(b backup.Backup) bool { return isRight(b) && b.TakenAt.After(begin) }) {
		m.Fatalf("no backup of %d was tested", m.policy.VerifyEvery)
	}
}

// drawError returns by how much the clock of a leader's machine is wrong: mostly not at all, and up to a year.
func (m *model) drawError() time.Duration {
	const year = 365 * 24 * time.Hour
	return rapid.SampledFrom([]time.Duration{
		0, 0, 0, 0, m.policy.Interval, -m.policy.Interval, 26 * time.Hour, -26 * time.Hour, year, -year,
	}).Draw(m.T, "ahead")
}

// TestDecideModel plays random histories: machines with clocks that are up to a year wrong and old views, kills between any two effects, tests
// that fail or cannot run, backups that cannot be taken, one or all that cannot be deleted, and pauses of up to weeks.
func TestDecideModel(t *testing.T) {
	histories := 0
	rapid.Check(t, func(t *rapid.T) {
		for range 100 { // histories of one check
			histories++
			m := &model{T: t, now: noon, policy: backup.Policy{
				Interval:    time.Duration(rapid.IntRange(5, 240).Draw(t, "interval")) * time.Minute,
				KeepDaily:   rapid.IntRange(1, 20).Draw(t, "keepDaily"),
				VerifyEvery: rapid.IntRange(1, 10).Draw(t, "verifyEvery"),
			}}
			m.policy.KeepAll = m.policy.Interval * time.Duration(rapid.IntRange(1, 30).Draw(t, "keepAll"))
			m.play()
		}
	})
	t.Logf("COUNT %d histories of backups", histories)
}

// playBroken lets machines act for up to 100 intervals while a type of step fails, or the test or the deletion of one backup, and ends that.
func (m *model) playBroken() {
	m.broken.Type = rapid.SampledFrom([]backup.ActionType{
		"", "", backup.ActionVerify, backup.ActionTake, backup.ActionDelete,
	}).Draw(m.T, "broken")
	if m.broken.Type == "" {
		return
	}
	ids := slices.Clone(m.incomplete)
	for _, b := range m.complete {
		ids = append(ids, b.ID)
	}
	if m.broken.Type != backup.ActionTake && len(ids) > 0 {
		m.broken.ID = rapid.SampledFrom(ids).Draw(m.T, "one")
	}
	if m.broken.Type != backup.ActionTake && rapid.Bool().Draw(m.T, "all") {
		m.broken.ID = ""
	}
	most := 100
	if m.broken == (backup.Step{Type: backup.ActionDelete}) {
		most = 20 // nothing leaves the archive meanwhile
	}
	for range rapid.IntRange(1, most).Draw(m.T, "intervals") {
		m.now = m.now.Add(m.policy.Interval)
		m.settle()
	}
	m.broken = backup.Step{}
}

func (m *model) play() {
	for range rapid.IntRange(1, 12).Draw(m.T, "steps") {
		pause := rapid.SampledFrom([]time.Duration{time.Minute, m.policy.Interval, 3 * m.policy.Interval, 26 * time.Hour, 20 * 24 * time.Hour}).Draw(m.T, "pause")
		m.now = m.now.Add(pause)
		if pause > time.Minute {
			m.ahead = m.drawError() // of another leader's machine
		}
		if rapid.IntRange(0, 9).Draw(m.T, "restores") == 0 {
			m.restore()
		}
		view := m.facts(m.ahead + time.Duration(rapid.IntRange(-60, 60).Draw(m.T, "skew"))*time.Second)
		if m.views = append(m.views, view); pause > time.Minute {
			m.views = m.views[len(m.views)-1:] // a machine acts within minutes of its view
		}
		killed := rapid.IntRange(0, 5).Draw(m.T, "killed")
		m.act(m.views[rapid.IntRange(0, len(m.views)-1).Draw(m.T, "view")], killed, m.drawResult())
	}
	m.playBroken()
	m.settle()
	rounds := 2 // the newest one may have failed its test, and be of a clock that was an interval ahead
	if slices.ContainsFunc(m.complete, backup.Backup.Untestable) {
		rounds += m.policy.VerifyEvery // the next test is as long after a test without a result as after another one
	}
	for range rounds {
		m.now = m.now.Add(m.policy.Interval)
		m.settle()
	}
	m.checkTests()
}
