// SPDX-License-Identifier: Apache-2.0

package nft_test

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"testing"
)

// TestKilledWhileReplacing: a complete new copy is used if the agent was killed between the removal of the former one and the rename.
// An agent without nft could not let itself reach the metadata service.
func TestKilledWhileReplacing(t *testing.T) {
	t.Parallel()
	m := newMachine(t)
	if _, err := m.program().Run(t.Context(), "list", "tables"); err != nil {
		t.Fatal(err)
	}
	dir := filepath.Join(m.root, copyDir)
	if err := os.Rename(dir, dir+".new"); err != nil {
		t.Fatal(err)
	}
	m.has, m.registry = false, false
	if !m.program().IsPresent(t.Context()) {
		t.Error("the new copy is not used")
	}
	if _, err := m.program().Run(t.Context(), "list", "tables"); err != nil {
		t.Error(err)
	}
}

// TestKilledWhileCopying kills the agent before and after each effect. The next process has nft, and never mounts the image
// twice.
func TestKilledWhileCopying(t *testing.T) {
	t.Parallel()
	attempts := 0
	for _, after := range []bool{false, true} {
		for k := 1; ; k++ {
			m := newMachine(t)
			m.killAt, m.after = k, after
			if _, err := m.program().Run(t.Context(), "list", "tables"); err == nil {
				break
			}
			attempts++
			m.killAt = 0
			if _, err := m.program().Run(t.Context(), "list", "tables"); err != nil {
				t.Errorf("killed at effect %d (after it: %t): %v", k, after, err)
			}
			if got := m.lines[len(m.lines)-1]; got != runCopyLine {
				t.Errorf("killed at effect %d (after it: %t): ran %s", k, after, got)
			}
			if m.mounts > 1 { // one that a copy was made of stays until the machine boots
				t.Errorf("killed at effect %d (after it: %t): the image is mounted %d times", k, after, m.mounts)
			}
		}
	}
	if attempts < 10 {
		t.Errorf("only %d kills", attempts)
	}
}

// TestHalfACopyIsNone: a machine that ended while the copy was written makes another one.
func TestHalfACopyIsNone(t *testing.T) {
	t.Parallel()
	whole := newMachine(t)
	if _, err := whole.program().Run(t.Context(), "list", "tables"); err != nil {
		t.Fatal(err)
	}
	names := whole.copied()
	for missing := range names {
		m := newMachine(t)
		for _, dir := range []string{copyDir, copyDir + ".new"} {
			for _, name := range slices.Delete(slices.Clone(names), missing, missing+1) {
				body, err := os.ReadFile(filepath.Join(whole.root, copyDir, name))
				file := filepath.Join(m.root, dir, name)
				err = errors.Join(err, os.MkdirAll(filepath.Dir(file), 0o755), os.WriteFile(file, body, 0o600))
				if err != nil {
					t.Fatal(err)
				}
			}
		}
		if m.program().IsPresent(t.Context()) {
			t.Errorf("without %s the copy is used", names[missing])
		}
		if _, err := m.program().Run(t.Context(), "list", "tables"); err != nil || !slices.Equal(m.copied(), names) {
			t.Errorf("without %s: %v, the copy has %q", names[missing], err, m.copied())
		}
		if _, err := os.Stat(filepath.Join(m.root, copyDir+".new")); !errors.Is(err, fs.ErrNotExist) {
			t.Errorf("the partial copy is left: %v", err)
		}
	}
}
