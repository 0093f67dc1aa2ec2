// SPDX-License-Identifier: Apache-2.0

// Package filesum finds the SHA-256 of a file, and remembers it for as long as the file system says that the file is the
// same. It does not know what the files are for: who publishes one checks the sum of what it read.
package filesum

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"time"
)

// racyWindow is how old the last change of a file must be before its sum is remembered: a file that is written to within
// one tick of the file system's clock looks the same before and after (git calls such files racy).
const racyWindow = 2 * time.Second

// maxEntries bounds the memory: who hashes more files than that begins anew.
const maxEntries = 64

// identity is what the file system says of a file. The change time cannot be set by programs, so a file with the same
// identity has the same content.
type identity struct {
	Device  uint64 `json:"device"`
	Inode   uint64 `json:"inode"`
	Size    int64  `json:"size"`
	Changed int64  `json:"changed"` // nanoseconds since 1970
}

// cacheEntry is one remembered sum.
type cacheEntry struct {
	identity
	SHA256 string `json:"sha256"`
}

// Cache is where sums are remembered.
type Cache struct {
	// File holds them; empty: nothing is remembered.
	File string
	Now  func() time.Time
}

// Sum returns the SHA-256 of the file at path in hex digits. A memory that cannot be read or written only costs time.
func (m Cache) Sum(path string) (string, error) {
	f, err := os.Open(path)
	if err != nil {
		return "", err
	}

	defer f.Close() //nolint:errcheck // only read
	before, known := m.statIdentity(f)
	entries := map[string]cacheEntry{}
	if known {
		entries = m.loadEntries()
		if e, ok := entries[path]; ok && e.identity == before &&
			len(e.SHA256) == hex.EncodedLen(sha256.Size) {
			return e.SHA256, nil
		}
	}

	hash := sha256.New()
	if _, err := io.CopyBuffer(struct{ io.Writer }{hash}, struct{ io.Reader }{f}, make([]byte, 1<<18)); err != nil { //nolint:mnd // 256 KiB
		return "", fmt.Errorf("hash %s: %w", path, err)
	}

	sum := hex.EncodeToString(hash.Sum(nil))
	if after, ok := m.statIdentity(f); known && ok && after == before &&
		m.Now().Sub(time.Unix(0, before.Changed)) > racyWindow {
		if len(entries) >= maxEntries {
			clear(entries)
		}

		entries[path] = cacheEntry{before, sum}
		m.saveEntries(entries)
	}

	return sum, nil
}

// statIdentity returns false where the system tells no identity or nothing is to be remembered.
func (m Cache) statIdentity(f *os.File) (identity, bool) {
	if m.File == "" {
		return identity{}, false
	}

	info, err := f.Stat()
	if err != nil || !info.Mode().IsRegular() {
		return identity{}, false
	}

	return identityOf(info)
}

func (m Cache) loadEntries() map[string]cacheEntry {
	out := map[string]cacheEntry{}
	body, err := os.ReadFile(m.File)
	if err != nil || json.Unmarshal(body, &out) != nil || out == nil {
		return map[string]cacheEntry{}
	}

	return out
}

// saveEntries replaces the memory at once, so that no reader sees a part of it. Failing is no error: see [Memory.Sum].
func (m Cache) saveEntries(entries map[string]cacheEntry) {
	body, err := json.Marshal(entries)
	if err != nil {
		return
	}

	dir := filepath.Dir(m.File)
	if os.MkdirAll(dir, 0o755) != nil {
		return
	}

	temp, err := os.CreateTemp(dir, filepath.Base(m.File)+".*")
	if err != nil {
		return
	}

	_, err = temp.Write(body)
	if closeErr := temp.Close(); err == nil && closeErr == nil && os.Rename(temp.Name(), m.File) == nil {
		return
	}

	_ = os.Remove(temp.Name()) // what is left only takes room
}
