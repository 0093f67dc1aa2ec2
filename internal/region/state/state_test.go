// SPDX-License-Identifier: Apache-2.0

package state_test

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/slipway-k8s/slipway/internal/region/state"
)

func TestSaveThenLoad(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "a", "x.json")
	got := map[string]int{"kept": 1}
	if err := state.LoadFile(path, &got); err != nil || got["kept"] != 1 {
		t.Fatalf("loading what is not there: %v, %v", got, err)
	}
	want := map[string]int{"a": 1}
	if err := state.SaveFile(path, want); err != nil {
		t.Fatal(err)
	}
	got = nil
	if err := state.LoadFile(path, &got); err != nil {
		t.Fatal(err)
	}
	if d := cmp.Diff(want, got); d != "" {
		t.Error(d)
	}
	info, err := os.Stat(path)
	if err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("the file's mode is %v, %v", info.Mode(), err)
	}
	entries, err := os.ReadDir(filepath.Dir(path))
	if err != nil || len(entries) != 1 {
		t.Errorf("files left behind: %v, %v", entries, err)
	}
}

func TestLoadSaysWhichFileIsBroken(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "x.json")
	if err := os.WriteFile(path, []byte("{"), 0o600); err != nil {
		t.Fatal(err)
	}
	var v any
	if err := state.LoadFile(path, &v); err == nil {
		t.Error("a broken file loads")
	}
}
