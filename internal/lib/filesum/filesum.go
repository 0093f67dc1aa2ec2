// SPDX-License-Identifier: Apache-2.0

// Package filesum computes the SHA-256 of files, and caches it until a file changes. It detects a
// change by the file's device, inode, size and change time, and caches on Linux only.
//
// It does not know what the files are for. Code that publishes a file must check the sum of the
// bytes that it has read.
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

// racyWindow is the age that the last change of a file must have before its sum is cached. A file
// that is written twice within one tick of the file system's clock has the same change time before
// and after (git calls such files racy).
const racyWindow = 2 * time.Second

// maxEntries is the largest number of cached sums. A full cache is emptied.
const maxEntries = 64

// bufferSize of reads, in bytes: 256 KiB.
const bufferSize = 1 << 18

// identity identifies a file and its content. Programs cannot set the change time, so a file with
// the same identity has the same content.
type identity struct {
	Device  uint64 `json:"device"`
	Inode   uint64 `json:"inode"`
	Size    int64  `json:"size"`
	Changed int64  `json:"changed"` // nanoseconds since 1970
}

// cacheEntry is a cached sum.
type cacheEntry struct {
	identity
	SHA256 string `json:"sha256"`
}

// Cache computes sums and caches them in a file. Its method may be called concurrently; one of two
// concurrent updates of the cache file is then lost.
type Cache struct {
	// File is the path of the cache file. If it is empty, nothing is cached.
	File string
	// Now returns the current time.
	Now func() time.Time
}

// Sum returns the SHA-256 of the file at path as hex digits. It ignores errors of the cache file,
// which only cost time.
func (c Cache) Sum(path string) (string, error) {
	f, err := os.Open(path)
	if err != nil {
		return "", err
	}

	defer func() { _ = f.Close() }()
	before, known := c.statIdentity(f)
	entries := map[string]cacheEntry{}
	if known {
		entries = c.loadEntries()
		if e, ok := entries[path]; ok && e.identity == before &&
			len(e.SHA256) == hex.EncodedLen(sha256.Size) {
			return e.SHA256, nil
		}
	}

	sum, err := hashFile(f)
	if err != nil {
		return "", fmt.Errorf("hash %s: %w", path, err)
	}

	if after, ok := c.statIdentity(f); known && ok && after == before &&
		c.Now().Sub(time.Unix(0, before.Changed)) > racyWindow {
		if len(entries) >= maxEntries {
			clear(entries)
		}

		entries[path] = cacheEntry{before, sum}
		c.saveEntries(entries)
	}

	return sum, nil
}

// hashFile returns the SHA-256 of the rest of a file as hex digits. The anonymous structs hide the
// optional methods of the reader and writer, so that CopyBuffer uses the large buffer.
func hashFile(f *os.File) (string, error) {
	hash := sha256.New()
	buffer := make([]byte, bufferSize)
	if _, err := io.CopyBuffer(struct{ io.Writer }{hash}, struct{ io.Reader }{f}, buffer); err != nil {
		return "", err
	}

	return hex.EncodeToString(hash.Sum(nil)), nil
}

// statIdentity returns the identity of a file. It returns false if caching is off or the system
// provides no identity.
func (c Cache) statIdentity(f *os.File) (identity, bool) {
	if c.File == "" {
		return identity{}, false
	}

	info, err := f.Stat()
	if err != nil || !info.Mode().IsRegular() {
		return identity{}, false
	}

	return identityOf(info)
}

func (c Cache) loadEntries() map[string]cacheEntry {
	out := map[string]cacheEntry{}
	body, err := os.ReadFile(c.File)
	if err != nil || json.Unmarshal(body, &out) != nil || out == nil {
		return map[string]cacheEntry{}
	}

	return out
}

// saveEntries replaces the cache file atomically. It ignores errors, as described at [Cache.Sum].
func (c Cache) saveEntries(entries map[string]cacheEntry) {
	body, err := json.Marshal(entries)
	if err != nil {
		return
	}

	dir := filepath.Dir(c.File)
	if os.MkdirAll(dir, 0o755) != nil {
		return
	}

	temp, err := os.CreateTemp(dir, filepath.Base(c.File)+".*")
	if err != nil {
		return
	}

	_, err = temp.Write(body)
	if closeErr := temp.Close(); err == nil && closeErr == nil && os.Rename(temp.Name(), c.File) == nil {
		return
	}

	_ = os.Remove(temp.Name())
}
