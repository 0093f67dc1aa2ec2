// SPDX-License-Identifier: Apache-2.0

package backup_test

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/slipway-k8s/slipway/api/v1alpha1"
	"github.com/slipway-k8s/slipway/internal/machine/backup"
)

var noon = time.Date(2026, 11, 22, 12, 0, 0, 0, time.UTC)

func defaultPolicy(t *testing.T) backup.Policy {
	t.Helper()
	p, err := backup.NewPolicy(v1alpha1.EtcdBackup{})
	if err != nil {
		t.Fatal(err)
	}
	return p
}

// taken returns a backup that was taken so long before noon. state is verified, failed, inconclusive or empty.
func taken(ago time.Duration, state string) backup.Backup {
	at := noon.Add(-ago)
	b := backup.Backup{Metadata: backup.Metadata{ID: backup.NewID(at, "x"), TakenAt: at, Reason: backup.ReasonSchedule}}
	if state != "" {
		b.Verification = &backup.Verification{ID: b.ID, OK: state == "verified", Inconclusive: state == "inconclusive"}
	}
	return b
}

func TestDecide(t *testing.T) {
	const h = time.Hour
	asked := taken(3*24*h, "")
	asked.Reason = backup.ReasonRequest
	moved := taken(time.Minute, "")
	moved.Reason = backup.ReasonMove
	disabled := defaultPolicy(t)
	disabled.Disabled = true
	rarelyTested := disabled
	rarelyTested.VerifyEvery = 1_000_000
	hourly := func(n int, first string) []backup.Backup {
		var out []backup.Backup
		for i := range n {
			state := ""
			if i == n-1 {
				state = first
			}
			out = append(out, taken(time.Duration(i)*h+time.Minute, state))
		}
		return out
	}
	old := []backup.Backup{taken(time.Minute, "verified"), taken(h, ""), taken(2*h, ""), taken(3*h, "")}
	for name, c := range map[string]struct {
		policy     backup.Policy
		backups    []backup.Backup
		restoring  string
		incomplete []string
		starting   bool
		want       backup.Action
	}{
		"no backup":         {want: backup.Action{Type: backup.ActionTake, Reason: backup.ReasonSchedule}},
		"etcd is empty yet": {starting: true, want: backup.Action{Type: backup.ActionNone}},
		"an agent that restarts does not wait": {
			starting: true,
			backups:  []backup.Backup{taken(h, "verified")},
			want:     backup.Action{Type: backup.ActionTake, Reason: backup.ReasonSchedule},
		},
		"the newest is too old": {
			backups: []backup.Backup{taken(h, "verified")},
			want:    backup.Action{Type: backup.ActionTake, Reason: backup.ReasonSchedule},
		},
		"one from the future does not count": {
			backups: []backup.Backup{taken(-5*h, "verified"), taken(2*h, "verified")},
			want:    backup.Action{Type: backup.ActionTake, Reason: backup.ReasonSchedule},
		},
		"one from the future is not the newest": {
			backups: []backup.Backup{taken(-5*h, "verified"), taken(time.Minute, "")},
			want:    backup.Action{Type: backup.ActionVerify, IDs: []string{taken(time.Minute, "").ID}},
		},
		"one from the future is not tested": {
			backups: []backup.Backup{taken(-5*h, ""), taken(time.Minute, "verified")},
			want:    backup.Action{Type: backup.ActionNone},
		},
		"one before a move is tested whatever the clock": {
			backups: []backup.Backup{taken(-5*h, "verified"), taken(2*time.Minute, "verified"), moved},
			want:    backup.Action{Type: backup.ActionVerify, IDs: []string{moved.ID}},
		},
		"those from the future are kept besides": {
			policy:  rarelyTested,
			backups: append([]backup.Backup{taken(900*24*h, "verified"), taken(-5*h, "verified"), taken(-6*h, "")}, old[1:]...),
			want:    backup.Action{Type: backup.ActionNone},
		},
		"a clock that is a little ahead": {
			backups: []backup.Backup{taken(-time.Minute, "verified")},
			want:    backup.Action{Type: backup.ActionNone},
		},
		"a quarter after a failed test": {
			backups: []backup.Backup{taken(15*time.Minute, "failed"), taken(h, "verified")},
			want:    backup.Action{Type: backup.ActionTake, Reason: backup.ReasonSchedule},
		},
		"disabled": {policy: disabled, want: backup.Action{Type: backup.ActionNone}},
		"the first is tested": {
			backups: []backup.Backup{taken(time.Minute, "")},
			want:    backup.Action{Type: backup.ActionVerify, IDs: []string{taken(time.Minute, "").ID}},
		},
		"after a test without a result, not sooner": {
			backups: []backup.Backup{taken(15*time.Minute, "inconclusive"), taken(h, "verified")},
			want:    backup.Action{Type: backup.ActionNone},
		},
		"the next one after a test without a result": {
			backups: []backup.Backup{taken(h, "inconclusive"), taken(time.Minute, "")},
			want:    backup.Action{Type: backup.ActionNone},
		},
		"the sixth after a test without a result": {
			backups: hourly(7, "inconclusive"),
			want:    backup.Action{Type: backup.ActionVerify, IDs: []string{taken(time.Minute, "").ID}},
		},
		"the only ones could not be tested, and are kept": {
			backups: []backup.Backup{taken(900*24*h, "inconclusive"), taken(800*24*h, "inconclusive"), taken(time.Minute, "inconclusive")},
			want:    backup.Action{Type: backup.ActionNone},
		},
		"five after a test": {backups: hourly(6, "verified"), want: backup.Action{Type: backup.ActionNone}},
		"six after a test": {
			backups: hourly(7, "verified"),
			want:    backup.Action{Type: backup.ActionVerify, IDs: []string{taken(time.Minute, "").ID}},
		},
		"six hours after a test, of which few are kept": {
			backups: []backup.Backup{taken(6*h+time.Minute, "verified"), taken(2*h, ""), taken(time.Minute, "")},
			want:    backup.Action{Type: backup.ActionVerify, IDs: []string{taken(time.Minute, "").ID}},
		},
		"one before a move": {
			backups: []backup.Backup{taken(2*time.Minute, "verified"), moved},
			want:    backup.Action{Type: backup.ActionVerify, IDs: []string{moved.ID}},
		},
		"one after a failed test": {
			backups: hourly(2, "failed"),
			want:    backup.Action{Type: backup.ActionVerify, IDs: []string{taken(time.Minute, "").ID}},
		},
		"a failed one is kept while it is young": {
			backups: append([]backup.Backup{taken(23*h, "failed")}, old...),
			want:    backup.Action{Type: backup.ActionNone},
		},
		"a failed one is deleted when it is old": {
			backups: append([]backup.Backup{taken(25*h, "failed")}, old...),
			want:    backup.Action{Type: backup.ActionDelete, IDs: []string{taken(25*h, "").ID}},
		},
		"the last of a day is kept": {
			backups: append([]backup.Backup{taken(36*h+time.Minute, ""), taken(37*h, ""), taken(60*h+time.Minute, "")}, old...),
			want:    backup.Action{Type: backup.ActionDelete, IDs: []string{taken(37*h, "").ID}},
		},
		"one that was asked for is kept": {
			backups: append([]backup.Backup{taken(3*24*h-time.Minute, ""), asked}, old...),
			want:    backup.Action{Type: backup.ActionNone},
		},
		"one that is being restored is kept": {
			backups:   append([]backup.Backup{taken(14*24*h, ""), taken(15*24*h, "")}, old...),
			restoring: taken(14*24*h, "").ID,
			want:      backup.Action{Type: backup.ActionDelete, IDs: []string{taken(15*24*h, "").ID}},
		},
		"no day is kept forever": {
			backups: append([]backup.Backup{taken(14*24*h, "")}, old...),
			want:    backup.Action{Type: backup.ActionDelete, IDs: []string{taken(14*24*h, "").ID}},
		},
		"the last ones are kept forever": {
			policy:  disabled,
			backups: []backup.Backup{taken(900*24*h, ""), taken(800*24*h, ""), taken(700*24*h, "verified")},
			want:    backup.Action{Type: backup.ActionNone},
		},
		"the last verified one is kept forever": {
			policy: rarelyTested,
			backups: []backup.Backup{
				taken(900*24*h, "verified"), taken(800*24*h, "verified"), taken(3*h, ""), taken(2*h, ""), taken(h, ""),
			},
			want: backup.Action{Type: backup.ActionDelete, IDs: []string{taken(900*24*h, "").ID}},
		},
		"those that may be in a test do not count as usable": {
			policy: backup.Policy{Interval: 5 * time.Minute, KeepAll: 5 * time.Minute, KeepDaily: 1, VerifyEvery: 1000},
			backups: []backup.Backup{
				taken(10*h, ""), taken(9*h, ""), taken(8*h, ""), taken(7*h, "verified"), taken(6*h, ""), taken(30*time.Minute, ""), taken(time.Minute, ""),
			},
			want: backup.Action{Type: backup.ActionDelete, IDs: []string{taken(10*h, "").ID}},
		},
		"an upload that was abandoned": {
			backups:    old,
			incomplete: []string{backup.NewID(noon.Add(-7*h), "x"), backup.NewID(noon.Add(-5*h), "x"), "x"},
			want:       backup.Action{Type: backup.ActionDelete, IDs: []string{backup.NewID(noon.Add(-7*h), "x")}},
		},
	} {
		t.Run(name, func(t *testing.T) {
			if c.policy == (backup.Policy{}) {
				c.policy = defaultPolicy(t)
			}
			got := backup.Decide(backup.Facts{
				Now: noon, Policy: c.policy, Backups: c.backups, Incomplete: c.incomplete, Starting: c.starting,
				Restoring: c.restoring,
			})
			if diff := cmp.Diff(c.want, got); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}

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

func (m *model) has(id string) bool {
	return slices.ContainsFunc(m.complete, func(b backup.Backup) bool { return b.ID == id })
}

// testResult is how a test of a backup ends.
type testResult int

const (
	passes testResult = iota
	fails
	hasNoResult
)

// drawResult returns how a test ends: mostly well.
func (m *model) drawResult() testResult {
	return rapid.SampledFrom([]testResult{passes, passes, passes, fails, hasNoResult}).Draw(m.T, "test")
}

// act carries out what is decided on a view. killed is how many effects happen before the machine is killed.
func (m *model) act(f backup.Facts, killed int, result testResult) backup.ActionType {
	action := backup.Decide(f)
	usable, verified := m.usable(), m.newestVerified()
	switch action.Type {
	case backup.ActionTake:
		m.taken++
		id := backup.NewID(f.Now, fmt.Sprint("x", m.taken))
		if killed == 0 {
			m.incomplete = append(m.incomplete, id)
			break
		}
		needed := backup.NeedsTest(f, action.Reason)
		taken := backup.Backup{Metadata: backup.Metadata{ID: id, TakenAt: f.Now, Reason: action.Reason}}
		m.complete = append(m.complete, taken)
		f.Backups = append(slices.Clone(f.Backups), taken)
		next := backup.Decide(f)
		if tested := next.Type == backup.ActionVerify; next.Type != backup.ActionTake && needed != tested {
			m.Fatalf("a backup needs a test: %t; it is tested: %t", needed, tested)
		}
	case backup.ActionVerify:
		if i := slices.IndexFunc(m.complete, func(b backup.Backup) bool { return b.ID == action.IDs[0] }); i >= 0 && killed > 0 && m.complete[i].Verification == nil {
			m.complete[i].Verification = &backup.Verification{
				ID: action.IDs[0], OK: result == passes, Inconclusive: result == hasNoResult,
			}
		}
	case backup.ActionDelete:
		for n, id := range action.IDs {
			if n >= killed {
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
	return action.Type
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

// settle lets one machine act until nothing is to be done, and checks what must then be so.
func (m *model) settle() {
	for n := 0; m.act(m.facts(0), 1000, passes) != backup.ActionNone; n++ {
		if n > 20 {
			m.Fatalf("no end: %+v", backup.Decide(m.facts(0)))
		}
	}
	fresh := func(b backup.Backup) bool { return m.now.Sub(b.TakenAt).Abs() < m.policy.Interval }
	if !slices.ContainsFunc(m.complete, fresh) {
		m.Fatalf("no backup is younger than the interval")
	}
	inAll := 0
	for _, b := range m.complete {
		if m.now.Sub(b.TakenAt) < m.policy.KeepAll {
			inAll++
		}
	}
	inTest := int(time.Hour / m.policy.Interval) // those of the last hour do not count as usable
	if most := inAll + m.policy.KeepDaily + 5 + inTest; len(m.complete) > most {
		m.Fatalf("%d backups are kept, want at most %d", len(m.complete), most)
	}
	for _, id := range m.incomplete {
		if id < backup.NewID(m.now.Add(-7*time.Hour), "") {
			m.Fatalf("the rest %s of a killed upload or deletion was kept", id)
		}
	}
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
// that fail, and pauses of up to weeks.
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

func (m *model) play() {
	for range rapid.IntRange(1, 12).Draw(m.T, "steps") {
		pause := rapid.SampledFrom([]time.Duration{time.Minute, m.policy.Interval, 3 * m.policy.Interval, 26 * time.Hour, 20 * 24 * time.Hour}).Draw(m.T, "pause")
		m.now = m.now.Add(pause)
		if pause > time.Minute {
			m.ahead = m.drawError() // of another leader's machine
		}
		view := m.facts(m.ahead + time.Duration(rapid.IntRange(-60, 60).Draw(m.T, "skew"))*time.Second)
		if m.views = append(m.views, view); pause > time.Minute {
			m.views = m.views[len(m.views)-1:] // a machine acts within minutes of its view
		}
		killed := rapid.IntRange(0, 5).Draw(m.T, "killed")
		m.act(m.views[rapid.IntRange(0, len(m.views)-1).Draw(m.T, "view")], killed, m.drawResult())
	}
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
