// SPDX-License-Identifier: Apache-2.0

package store

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// TestKeyFileOfOthersIsRefused: a key file that others than its owner may read is not used.
func TestKeyFileOfOthersIsRefused(t *testing.T) {
	file := filepath.Join(t.TempDir(), "key")
	if err := os.WriteFile(file, []byte("AGE-SECRET-KEY-1"), 0o600); err != nil {
		t.Fatal(err)
	}
	for mode, refused := range map[os.FileMode]bool{0o600: false, 0o400: false, 0o640: true, 0o604: true, 0o660: true, 0o644: true} {
		if err := os.Chmod(file, mode); err != nil {
			t.Fatal(err)
		}
		_, err := readKeyFile(file)
		if (err != nil) != refused || refused && !strings.Contains(err.Error(), "others than its owner may read it") {
			t.Errorf("mode %04o: %v", mode, err)
		}
	}
}
