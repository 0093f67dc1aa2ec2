// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"errors"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/slipway-k8s/slipway/internal/lib/store"
	"github.com/slipway-k8s/slipway/internal/machine/etcd"
)

// putOldData puts a file of so many TiB, without content, into a directory of the volume. It was written so many hours ago.
func putOldData(t *testing.T, root *HostFS, dir string, tebibytes int64, hours int) {
	t.Helper()
	if err := root.MakeDir(dir, 0o700, 0); err != nil {
		t.Fatal(err)
	}
	f, err := os.Create(root.Path(dir + "/db"))
	if err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(f.Truncate(tebibytes<<40), f.Close()); err != nil {
		t.Fatal(err)
	}
	at := time.Now().Add(-time.Duration(hours) * time.Hour)
	if err := os.Chtimes(root.Path(dir+"/db"), at, at); err != nil {
		t.Fatal(err)
	}
}

// TestOldDataMakesRoom: data that was set aside because the cluster went on without it filled the volume, so that a member was stopped
// for a restoration and then had no room for it. It is deleted, the oldest first and no more than needed, but never the newest.
func TestOldDataMakesRoom(t *testing.T) {
	hours := map[string]int{corruptDir: 3, copyDir: 5, leftDir: 4, asideDir: 6}
	for name, c := range map[string]struct {
		dirs    []string
		aside   bool  // the present data is set aside now
		need    int64 // TiB; each directory has one
		want    []string
		hasRoom bool
	}{
		"enough":                           {spareDirs(), true, 0, spareDirs(), true},
		"the oldest":                       {spareDirs(), true, 1, []string{corruptDir, leftDir}, true},
		"all, because newer data is kept":  {spareDirs(), true, 3, nil, true},
		"never the newest":                 {spareDirs(), false, 3, spareDirs(), false},
		"all but the newest":               {spareDirs(), false, 2, []string{corruptDir}, true},
		"nothing, if it would not help":    {spareDirs(), true, 4, spareDirs(), false},
		"not the data of before a restore": {[]string{asideDir, leftDir, corruptDir}, true, 3, []string{corruptDir, leftDir, asideDir}, false},
		"older than before a restore":      {[]string{asideDir, copyDir}, false, 1, []string{asideDir, copyDir}, false},
	} {
		a := testAgent(t)
		for _, dir := range c.dirs {
			putOldData(t, a.Root, dir, 1, hours[dir])
		}
		if err := a.Root.MakeDir(etcd.DataDir, 0o700, 0); err != nil {
			t.Fatal(err)
		}
		free, err := availableBytes(a.Root)
		if err != nil {
			t.Fatal(err)
		}
		room := (&etcdMember{agent: a}).volumeRoom(restoredDir)
		if c.aside {
			room = room.settingAside()
		}
		err = room.make(func(have int64) error {
			if have < free+(c.need<<40)-(1<<39) { // other programs write to the disk of the test
				return errors.New("no room")
			}
			return nil
		})
		var left []string
		for _, dir := range []string{corruptDir, copyDir, leftDir, asideDir} {
			if a.Root.Exists(dir + "/db") {
				left = append(left, dir)
			}
		}
		if (err == nil) != c.hasRoom || !slices.Equal(left, sortedDirs(c.want)) {
			t.Errorf("%s: %v; left are %v, want %v", name, err, left, sortedDirs(c.want))
		}
	}
}

// sortedDirs returns directories in the order in which the test lists them.
func sortedDirs(dirs []string) []string {
	var out []string
	for _, dir := range []string{corruptDir, copyDir, leftDir, asideDir} {
		if slices.Contains(dirs, dir) {
			out = append(out, dir)
		}
	}
	return out
}

// TestRestorationReplacesOldData: a member whose volume is full of older data is stopped for a restoration, and sets its data aside.
func TestRestorationReplacesOldData(t *testing.T) {
	a := testAgent(t)
	slot, _ := a.doc.Slot("a")
	s := store.NewFileStore(t.TempDir())
	a.Run = &killedRunner{killer: &killer{left: 1000}}
	if err := a.Root.MakeDir(etcd.DataDir+"/member", 0o700, 0); err != nil {
		t.Fatal(err)
	}
	putOldData(t, a.Root, leftDir, 2, 2)
	putOldData(t, a.Root, corruptDir, 2, 1)
	m := &etcdMember{agent: a, slot: slot, store: s, volume: "vol-1"}
	free, err := availableBytes(a.Root)
	if err != nil {
		t.Fatal(err)
	}
	signGeneration(t, a, s, etcd.Generation{Number: 2, Slot: "b", Backup: "b1", Token: "t", Bytes: free + 1<<40})
	err = m.decideAndAct(t.Context())
	if err == nil || strings.Contains(err.Error(), "free space") || !a.Root.Exists(asideDir+"/member") {
		t.Errorf("the member did not set its data aside: %v", err)
	}
	if a.Root.Exists(leftDir+"/db") || !a.Root.Exists(corruptDir+"/db") {
		t.Error("the oldest data was not deleted, or more than needed")
	}
}
