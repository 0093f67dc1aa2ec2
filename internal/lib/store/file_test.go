// SPDX-License-Identifier: Apache-2.0

package store_test

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"

	"filippo.io/age"

	"github.com/slipway-k8s/slipway/internal/lib/diag"
	"github.com/slipway-k8s/slipway/internal/lib/store"
	"github.com/slipway-k8s/slipway/internal/lib/store/storetest"
)

func TestFileConforms(t *testing.T) {
	storetest.Run(t, func(t *testing.T) store.Store {
		t.Helper()
		return store.NewFileStore(filepath.Join(t.TempDir(), "state"))
	})
}

// otherProcess is set in the processes that TestFileBetweenProcesses starts.
const otherProcess = "SLIPWAY_TEST_STORE"

func TestFileBetweenProcesses(t *testing.T) {
	if dir := os.Getenv(otherProcess); dir != "" {
		countUp(t, store.NewFileStore(dir))
		return
	}
	dir := t.TempDir()
	s := store.NewFileStore(dir)
	if _, err := s.Put(t.Context(), "n", []byte("0")); err != nil {
		t.Fatal(err)
	}
	var wg sync.WaitGroup
	const processes = 4
	for range processes {
		wg.Go(func() {
			cmd := exec.CommandContext(t.Context(), os.Args[0], "-test.run=^TestFileBetweenProcesses$")
			cmd.Env = append(os.Environ(), otherProcess+"="+dir)
			if out, err := cmd.CombinedOutput(); err != nil {
				t.Errorf("%v\n%s", err, out)
			}
		})
	}
	wg.Wait()
	o, err := s.Get(t.Context(), "n")
	if err != nil || string(o.Body) != strconv.Itoa(processes*counts) {
		t.Errorf("counted to %q (%v), want %d: an update was lost between processes", o.Body, err, processes*counts)
	}
}

const counts = 25

func countUp(t *testing.T, s store.Store) {
	t.Helper()
	for range counts {
		for {
			o, err := s.Get(t.Context(), "n")
			if err != nil {
				t.Fatal(err)
			}
			n, _ := strconv.Atoi(string(o.Body))
			_, err = s.Update(t.Context(), "n", []byte(strconv.Itoa(n+1)), o.ETag)
			if err == nil {
				break
			}
			if !errors.Is(err, store.ErrConflict) {
				t.Fatal(err)
			}
		}
	}
}

func TestFileDoesNotFollowLinksOut(t *testing.T) {
	outside, dir := t.TempDir(), t.TempDir()
	if err := os.WriteFile(filepath.Join(outside, "secret"), []byte("x"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(outside, filepath.Join(dir, "link")); err != nil {
		t.Fatal(err)
	}
	s := store.NewFileStore(dir)
	if o, err := s.Get(t.Context(), "link/secret"); err == nil {
		t.Errorf("read %q through a link out of the store", o.Body)
	}
	if _, err := s.Put(t.Context(), "link/new", nil); err == nil {
		t.Error("wrote through a link out of the store")
	}
}

func TestFileLeavesNoTemporaryFiles(t *testing.T) {
	dir := t.TempDir()
	s := store.NewFileStore(dir)
	_, _ = s.Create(t.Context(), "k", []byte("1"))
	_, _ = s.Create(t.Context(), "k", []byte("2")) // refused
	_, _ = s.Update(t.Context(), "k", nil, "wrong")
	_, _ = s.Put(t.Context(), "k", []byte("3"))
	entries, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range entries {
		if e.Name() != "k" && e.Name() != ".slipway-lock" {
			t.Errorf("left %s behind", e.Name())
		}
		if info, err := e.Info(); err != nil || info.Mode().Perm() != 0o600 {
			t.Errorf("%s has mode %v, want 0600 (%v)", e.Name(), info.Mode(), err)
		}
	}
}

func newAge(t *testing.T) store.Sealer {
	t.Helper()
	id, err := age.GenerateX25519Identity()
	if err != nil {
		t.Fatal(err)
	}
	return store.NewAgeSealer(id)
}

func TestAgeSealerConforms(t *testing.T) { storetest.RunSealer(t, newAge(t), newAge(t)) }

func initialise(t *testing.T, url string, opts store.Options) {
	t.Helper()
	steps, err := store.PlanInit(t.Context(), url, opts)
	if err != nil {
		t.Fatal(err)
	}
	if err := store.RunInitSteps(t.Context(), steps, func(store.InitStep) {}); err != nil {
		t.Fatal(err)
	}
}

func TestOpenFile(t *testing.T) {
	dir := t.TempDir()
	url, key := "file://"+dir+"/state", dir+"/keys/state.key"
	t.Run("not initialized", func(t *testing.T) {
		_, _, err := store.Open(t.Context(), url, store.Options{})
		if !errors.Is(err, store.ErrNotFound) || len(diag.Hints(err)) == 0 || !strings.Contains(diag.Hints(err)[0], "slipway state init") {
			t.Errorf("got %v with hints %v", err, diag.Hints(err))
		}
		if _, err := os.Stat(dir + "/state"); err == nil {
			t.Error("opening a store created its folder")
		}
	})
	t.Run("init needs a key", func(t *testing.T) {
		if _, err := store.PlanInit(t.Context(), url, store.Options{}); err == nil {
			t.Error("created a store without a key")
		}
	})
	initialise(t, url, store.Options{KeyFile: key})
	initialise(t, url, store.Options{KeyFile: key}) // nothing to do
	_, sealer, err := store.Open(t.Context(), url, store.Options{KeyFile: key})
	if err != nil {
		t.Fatal(err)
	}
	storetest.RunSealer(t, sealer, newAge(t))
	t.Run("without the key all but secrets is open", func(t *testing.T) {
		s, sealer, err := store.Open(t.Context(), url, store.Options{})
		if err != nil {
			t.Fatal(err)
		}
		if _, err := s.List(t.Context(), ""); err != nil {
			t.Error(err)
		}
		if _, err := sealer.Seal(t.Context(), nil, nil); err == nil || len(diag.Hints(err)) == 0 {
			t.Errorf("sealed without a key, or gave no hint: %v", err)
		}
	})
	t.Run("a wrong key is rejected", func(t *testing.T) {
		other := filepath.Join(t.TempDir(), "other.key")
		initialise(t, "file://"+t.TempDir(), store.Options{KeyFile: other})
		_, sealer, err := store.Open(t.Context(), url, store.Options{KeyFile: other})
		if err != nil {
			t.Fatal(err)
		}
		if _, err := sealer.Seal(t.Context(), nil, nil); err == nil || !strings.Contains(err.Error(), "does not belong to the state store") {
			t.Errorf("got %v", err)
		}
	})
}

func TestOpenFileWithPassphrase(t *testing.T) {
	url := "file://" + t.TempDir()
	initialise(t, url, store.Options{Passphrase: "correct horse"})
	_, sealer, err := store.Open(t.Context(), url, store.Options{Passphrase: "correct horse"})
	if err != nil {
		t.Fatal(err)
	}
	storetest.RunSealer(t, sealer, newAge(t))
	_, sealer, err = store.Open(t.Context(), url, store.Options{Passphrase: "battery staple"})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := sealer.Seal(t.Context(), nil, nil); err == nil || strings.Contains(err.Error(), "battery") {
		t.Errorf("a wrong passphrase gave %v", err)
	}
}

func TestParseURL(t *testing.T) {
	for raw, want := range map[string]store.Location{
		"file:///var/state":   {Dir: "/var/state"},
		"file:///var/state/":  {Dir: "/var/state"},
		"s3://bucket-name":    {Bucket: "bucket-name"},
		"s3://bucket/a/b/":    {Bucket: "bucket", Prefix: "a/b"},
		"file://host/x":       {},
		"file:relative":       {},
		"s3://":               {},
		"s3://Upper/x":        {},
		"/var/state":          {},
		"https://bucket/x":    {},
		"s3://u:p@bucket/x":   {},
		"s3://bucket/?x=1":    {},
		"file:///var/st\x7fx": {},
	} {
		got, err := store.ParseURL(raw)
		if got != want || (err == nil) != (want != store.Location{}) {
			t.Errorf("%q: got %+v, %v; want %+v", raw, got, err, want)
		}
		if err != nil && (len(diag.Hints(err)) == 0 || strings.Contains(err.Error(), "u:p")) {
			t.Errorf("%q: error %v has no hint, or shows a password", raw, err)
		}
	}
}
