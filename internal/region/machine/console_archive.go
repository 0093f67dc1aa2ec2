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

// maxSavedConsoles is how many consoles of terminated machines are kept. AWS keeps a console for an
// hour, so that the cause can be read after a rollback has terminated the machine.
const maxSavedConsoles = 64

// savedConsolePath returns the path of a terminated machine's console.
func (h *Host) savedConsolePath(id string) string { return filepath.Join(h.consolesDir(), id+".log") }

// saveConsole copies a machine's console before its directory is removed, and deletes the oldest
// saved consoles.
func (h *Host) saveConsole(id string) error {
	text, err := h.Console(id)
	if err != nil || len(text) == 0 {
		return err
	}

	tmp := h.savedConsolePath(id) + ".new" // complete or missing, even if this process is killed
	if err := os.WriteFile(tmp, text, 0o600); err != nil {
		return fmt.Errorf("write %s: %w", tmp, err)
	}

	if err := os.Rename(tmp, h.savedConsolePath(id)); err != nil {
		return fmt.Errorf("rename %s: %w", tmp, err)
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
		if info, err := e.Info(); err == nil { // a concurrent call may have removed it
			files = append(files, info)
		}
	}

	slices.SortFunc(files, func(a, b fs.FileInfo) int {
		return cmp.Or(b.ModTime().Compare(a.ModTime()), cmp.Compare(a.Name(), b.Name()))
	})

	for _, f := range files[min(maxSavedConsoles, len(files)):] {
		if err := os.RemoveAll(filepath.Join(h.consolesDir(), f.Name())); err != nil {
			return fmt.Errorf("delete old console: %w", err)
		}
	}

	return nil
}
