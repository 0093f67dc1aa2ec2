// SPDX-License-Identifier: Apache-2.0

package state_test

import (
	"errors"
	"testing"

	"github.com/slipway-k8s/slipway/internal/region/state"
)

var errDiskFull = errors.New("no space left on device")

// memory is a backend that counts saves and fails the first ones.
type memory struct {
	failures int
	saved    []int
}

func (m *memory) Load(string, any) error { return nil }

func (m *memory) Save(_ string, v any) error {
	if m.failures > 0 {
		m.failures--
		return errDiskFull
	}

	n, _ := v.(*int)
	m.saved = append(m.saved, *n)

	return nil
}

// TestFailedSaveIsRetried: a change whose save failed must not be forgotten, or a restart would lose it.
func TestFailedSaveIsRetried(t *testing.T) {
	t.Parallel()
	n := 0
	m := &memory{failures: 2}
	s := &state.Store{Name: "x", Backend: m, State: &n}
	if err := s.Update(func() error { n = 7; return nil }); !errors.Is(err, errDiskFull) {
		t.Fatalf("the save failed, but Update returned %v", err)
	}

	s.View(func() {}) // retries and fails, without an error
	if err := s.WithLock(func() error { return nil }); err != nil {
		t.Fatal(err)
	}

	if len(m.saved) != 1 || m.saved[0] != 7 {
		t.Errorf("saved %v, want the change of the first call, once", m.saved)
	}
}

// TestFailedSaveNotifiesOnce: load balancing tells EC2 of a change, and EC2 then reads load balancing. If each
// read reported the change again while the disk is full, the two would call each other without end.
func TestFailedSaveNotifiesOnce(t *testing.T) {
	t.Parallel()
	n := 0
	notified := 0
	s := &state.Store{
		Name:     "x",
		Backend:  &memory{failures: 3},
		State:    &n,
		OnChange: func() { notified++ },
	}
	if err := s.Update(func() error { n = 7; return nil }); !errors.Is(err, errDiskFull) {
		t.Fatalf("the save failed, but Update returned %v", err)
	}

	for range 3 { // the last one saves
		s.View(func() {})
	}

	if notified != 1 {
		t.Errorf("one change caused %d notices", notified)
	}
}

func TestStoreSavesOnlyChanges(t *testing.T) {
	t.Parallel()
	n := 0
	m := &memory{}
	notified := 0
	due := false
	s := &state.Store{Name: "x", Backend: m, State: &n, OnChange: func() { notified++ }}
	s.ApplyDueTransitions = func() {
		if due {
			due = false
			n += 100
			s.MarkChanged()
		}
	}

	failed := errors.New("refused")
	for _, step := range []struct {
		name          string
		do            func() error
		saves, notice int
		err           error
	}{
		{"View", func() error { s.View(func() {}); return nil }, 0, 0, nil},
		{"Update that fails", func() error { return s.Update(func() error { return failed }) }, 0, 0, failed},
		{"WithLock without a mark", func() error { return s.WithLock(func() error { return nil }) }, 0, 0, nil},
		{"Update", func() error { return s.Update(func() error { n++; return nil }) }, 1, 1, nil},
		{"failure after a mark", func() error {
			return s.WithLock(func() error { s.MarkChanged(); return failed })
		}, 2, 2, failed},
		{"Lock with a due transition", func() error {
			s.Lock()
			defer s.Unlock()
			due = true

			return nil
		}, 2, 2, nil},
		{"View with a due transition", func() error { s.View(func() {}); return nil }, 3, 3, nil},
	} {
		if err := step.do(); !errors.Is(err, step.err) {
			t.Errorf("%s: error %v, want %v", step.name, err, step.err)
		}

		if len(m.saved) != step.saves || notified != step.notice {
			t.Errorf("%s: %d saves and %d notices, want %d and %d", step.name, len(m.saved), notified, step.saves, step.notice)
		}
	}

	if n != 101 {
		t.Errorf("the state is %d, want 101", n)
	}
}
