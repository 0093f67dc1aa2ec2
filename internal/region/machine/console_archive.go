// SPDX-License-Identifier: Apache-2.0

package machine

import (
	"cmp"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
)

// maxSavedConsoles is how many consoles of machines that are gone stay readable. AWS shows them for an hour, so that whoever
// waited for a machine that a rollback has ended can still read what it died of.
const maxSavedConsoles = 64

// savedConsolePath is where the console of a machine lies that is gone.
func (h *Host) savedConsolePath(id string) string { return filepath.Join(h.consolesDir(), id+".log") }

// saveConsole puts a machine's console aside before its folder goes, and forgets the oldest of those put aside before.
func (h *Host) saveConsole(id string) error {
	text, err := h.Console(id)
	if err != nil || len(text) == 0 {
		return err
	}

	tmp := h.savedConsolePath(id) + ".new" // whole or not at all, if this process is killed
	if err := os.WriteFile(tmp, text, 0o600); err != nil {
		return fmt.Errorf("write %s: %w", tmp, err)
	}

	if err := os.Rename(tmp, h.savedConsolePath(id)); err != nil {
		return fmt.Errorf("name %s: %w", tmp, err)
	}

	return h.pruneConsoles()
}

func (h *Host) pruneConsoles() error {
	entries, err := os.ReadDir(h.consolesDir())
	if err != nil {
		return fmt.Errorf("list consoles: %w", err)
	}

	var files []fs.FileInfo

	for _, e := range entries {
		if info, err := e.Info(); err == nil { // another call may have removed it meanwhile
			files = append(files, info)
		}
	}

	slices.SortFunc(files, func(a, b fs.FileInfo) int {
		return cmp.Or(b.ModTime().Compare(a.ModTime()), cmp.Compare(a.Name(), b.Name()))
	})

	for _, f := range files[min(maxSavedConsoles, len(files)):] {
		if err := os.RemoveAll(filepath.Join(h.consolesDir(), f.Name())); err != nil {
			return fmt.Errorf("forget a console: %w", err)
		}
	}

	return nil
}
