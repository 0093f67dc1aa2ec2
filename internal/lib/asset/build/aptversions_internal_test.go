// SPDX-License-Identifier: Apache-2.0

package build

import (
	"errors"
	"os"
	"path/filepath"
	"testing"
	"time"
)

// TestAptVersionsAreRemembered: apt is asked again only if one of its files has changed, or for other packages.
func TestAptVersionsAreRemembered(t *testing.T) {
	t.Parallel()

	root := t.TempDir()
	lists := filepath.Join(root, "var/lib/apt/lists/main_Packages")
	status := filepath.Join(root, "var/lib/dpkg/status")
	sources := filepath.Join(root, "etc/apt/sources.list.d/debian.sources")
	for _, file := range []string{lists, status, sources} {
		if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
			t.Fatal(err)
		}

		writeText(t, file, "a")
	}

	asked := 0
	now := time.Now().Add(time.Minute)
	a := aptVersions{file: filepath.Join(root, "answers.json"), root: root, now: func() time.Time { return now }}
	policy := func(packages ...string) {
		t.Helper()
		out, err := a.policy(packages, func() (string, error) {
			asked++
			return "nftables:", nil
		})
		if err != nil || out != "nftables:" {
			t.Errorf("%q, %v", out, err)
		}
	}
	want := func(when string, times int) {
		t.Helper()
		if asked != times {
			t.Errorf("%s: apt was asked %d times, want %d", when, asked, times)
		}
	}

	policy("nftables")
	policy("nftables")
	want("nothing changed", 1)
	policy("busybox-static")
	policy("nftables")
	policy("busybox-static")
	want("other packages", 2)

	for i, file := range []string{lists, status, sources} {
		writeText(t, file, "changed "+file)
		policy("nftables")
		policy("nftables")
		want(file+" changed", 3+i)
	}

	writeText(t, a.file, "{")
	policy("nftables")
	want("the answers are damaged", 6)

	now = time.Now()
	writeText(t, lists, "changed now")
	policy("nftables")
	policy("nftables")
	want("apt's lists have just changed", 8)

	if err := os.RemoveAll(filepath.Join(root, "var/lib/dpkg")); err != nil {
		t.Fatal(err)
	}

	now = now.Add(time.Hour)
	policy("nftables")
	policy("nftables")
	want("another distribution", 10)
}

// TestFailuresOfAptAreNotRemembered: an error is returned each time.
func TestFailuresOfAptAreNotRemembered(t *testing.T) {
	t.Parallel()

	root := t.TempDir()
	for _, folder := range []string{"var/lib/apt/lists", "var/lib/dpkg/status", "etc/apt"} {
		if err := os.MkdirAll(filepath.Join(root, folder), 0o755); err != nil {
			t.Fatal(err)
		}
	}

	later := time.Now().Add(time.Minute)
	a := aptVersions{file: filepath.Join(root, "answers.json"), root: root, now: func() time.Time { return later }}
	failure := errors.New("no lists")
	for range 2 {
		if _, err := a.policy([]string{"nftables"}, func() (string, error) { return "", failure }); !errors.Is(err, failure) {
			t.Errorf("error %v, want %v", err, failure)
		}
	}
}

func writeText(t *testing.T, file, text string) {
	t.Helper()
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
}
