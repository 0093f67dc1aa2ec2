// SPDX-License-Identifier: Apache-2.0

package filesum_test

import (
	"crypto/sha256"
	"encoding/hex"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/slipway-k8s/slipway/internal/lib/filesum"
)

func sum(body string) string {
	s := sha256.Sum256([]byte(body))
	return hex.EncodeToString(s[:])
}

func write(t *testing.T, file, body string) {
	t.Helper()
	if err := os.WriteFile(file, []byte(body), 0o600); err != nil {
		t.Fatal(err)
	}
}

// later is a clock by which the files of the test are older than racyWindow.
func later() time.Time { return time.Now().Add(time.Hour) }

// TestSumIsCached falsifies the cache file: Sum must return the wrong sum from it, since it does
// not hash the file again.
func TestSumIsCached(t *testing.T) {
	if runtime.GOOS != "linux" {
		t.Skip("SKIPPED: sums are cached on Linux only")
	}
	dir := t.TempDir()
	file := filepath.Join(dir, "agent")
	write(t, file, "one")
	m := filesum.Cache{File: filepath.Join(dir, "cache", "sums.json"), Now: later}
	if got, err := m.Sum(file); err != nil || got != sum("one") {
		t.Fatalf("got %s, %v", got, err)
	}
	body, err := os.ReadFile(m.File)
	if err != nil {
		t.Fatal(err)
	}
	write(t, m.File, strings.Replace(string(body), sum("one"), sum("lie"), 1))
	if got, err := m.Sum(file); err != nil || got != sum("lie") {
		t.Errorf("the sum was not cached: %s, %v", got, err)
	}
}

// TestChangedFileHasAnotherSum changes a file in several ways that keep its size and modification
// time. Sum must not return the old sum.
func TestChangedFileHasAnotherSum(t *testing.T) {
	changes := map[string]func(t *testing.T, file string){
		"in place":            func(t *testing.T, file string) { t.Helper(); write(t, file, "two") },
		"in place, backdated": func(t *testing.T, file string) { t.Helper(); backdated(t, file, func() { write(t, file, "two") }) },
		"another file, backdated": func(t *testing.T, file string) {
			t.Helper()
			backdated(t, file, func() {
				write(t, file+".new", "two")
				if err := os.Rename(file+".new", file); err != nil {
					t.Fatal(err)
				}
			})
		},
	}
	for name, change := range changes {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			file := filepath.Join(dir, "agent")
			write(t, file, "one")
			m := filesum.Cache{File: filepath.Join(dir, "sums.json"), Now: later}
			if _, err := m.Sum(file); err != nil {
				t.Fatal(err)
			}
			time.Sleep(20 * time.Millisecond) // more than a tick of the file system's clock
			change(t, file)
			if got, err := m.Sum(file); err != nil || got != sum("two") {
				t.Errorf("got %s, %v, want the new sum", got, err)
			}
		})
	}
}

func backdated(t *testing.T, file string, change func()) {
	t.Helper()
	was, err := os.Stat(file)
	if err != nil {
		t.Fatal(err)
	}
	change()
	if err := os.Chtimes(file, was.ModTime(), was.ModTime()); err != nil {
		t.Fatal(err)
	}
}

// TestRecentFileIsNotCached checks that the sum of a file that was written just now is not cached,
// since another write might not change its identity.
func TestRecentFileIsNotCached(t *testing.T) {
	dir := t.TempDir()
	file := filepath.Join(dir, "agent")
	write(t, file, "one")
	m := filesum.Cache{File: filepath.Join(dir, "sums.json"), Now: time.Now}
	if got, err := m.Sum(file); err != nil || got != sum("one") {
		t.Fatalf("got %s, %v", got, err)
	}
	if _, err := os.Stat(m.File); !os.IsNotExist(err) {
		t.Errorf("it is cached: %v", err)
	}
}

// TestBrokenCache checks that a cache file that is broken, missing or not writable causes no error.
func TestBrokenCache(t *testing.T) {
	dir := t.TempDir()
	file := filepath.Join(dir, "agent")
	write(t, file, "one")
	for name, memory := range map[string]string{"none": "", "broken": filepath.Join(dir, "broken"), "null": filepath.Join(dir, "null"), "no folder": filepath.Join(file, "sums.json")} {
		write(t, filepath.Join(dir, "broken"), "{")
		write(t, filepath.Join(dir, "null"), "null")
		if got, err := (filesum.Cache{File: memory, Now: later}).Sum(file); err != nil || got != sum("one") {
			t.Errorf("%s: got %s, %v", name, got, err)
		}
	}
	if _, err := (filesum.Cache{Now: later}).Sum(filepath.Join(dir, "missing")); !os.IsNotExist(err) {
		t.Errorf("a missing file: %v", err)
	}
}
