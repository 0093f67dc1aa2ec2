// SPDX-License-Identifier: Apache-2.0

package s3

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/slipway-k8s/slipway/internal/region/state"
)

// versionsDir is the directory in a bucket's directory that has one file for the versions of each key.
const versionsDir = "versions"

// keyVersions is a file of [versionsDir].
type keyVersions struct {
	Key      string
	Versions []objectVersion // newest first, at least one
}

// Load implements [state.Backend]: it reads the indexes of all buckets and the versions of their keys. It
// ignores a directory without an index, which the region leaves if it is killed while it creates or removes a
// bucket.
func (c *catalog) Load(string, any) error {
	entries, err := os.ReadDir(c.dir)
	if err != nil {
		return fmt.Errorf("read the directory of S3: %w", err)
	}

	for _, e := range entries {
		b := &bucket{}
		if err := state.Dir(c.dir).Load(indexName(e.Name()), b); err != nil {
			return fmt.Errorf("read bucket %s: %w", e.Name(), err)
		}

		if b.Name == "" {
			continue
		}

		c.buckets[b.Name] = b
		if err := c.loadVersions(b); err != nil {
			return fmt.Errorf("read bucket %s: %w", e.Name(), err)
		}
	}

	return nil
}

// loadVersions adds the versions of all keys to a bucket. The versions in an index of an older region are
// written to files of their own first, and then removed from the index: a region that is killed between
// begins again.
func (c *catalog) loadVersions(b *bucket) error {
	if len(b.Versions) > 0 {
		for key := range b.Versions {
			if err := c.saveVersions(objectKey{bucket: b.Name, key: key}); err != nil {
				return err
			}
		}

		if err := c.saveIndex(b.Name); err != nil {
			return err
		}
	}

	b.Versions = map[string][]objectVersion{}
	dir := filepath.Join(c.dir, b.Name, versionsDir)
	files, err := filepath.Glob(filepath.Join(dir, "*.json"))
	if err != nil {
		return err
	}

	for _, file := range files {
		var saved keyVersions
		if err := state.LoadFile(file, &saved); err != nil {
			return err
		}

		b.Versions[saved.Key] = saved.Versions
	}

	return nil
}

// Save implements [state.Backend]: it writes what changed, each file atomically. What could not be written
// stays unsaved, so that the store's next attempt writes it.
func (c *catalog) Save(string, any) error {
	var errs []error
	for name := range c.unsaved {
		if err := c.saveIndex(name); err != nil {
			errs = append(errs, fmt.Errorf("save bucket %s: %w", name, err))
			continue
		}

		delete(c.unsaved, name)
	}

	for key := range c.unsavedKeys {
		if err := c.saveVersions(key); err != nil {
			errs = append(errs, fmt.Errorf("save key %s of bucket %s: %w", key.key, key.bucket, err))
			continue
		}

		delete(c.unsavedKeys, key)
	}

	return errors.Join(errs...)
}

// saveIndex writes the index of a bucket, without its versions.
func (c *catalog) saveIndex(name string) error {
	index := *c.buckets[name]
	index.Versions = nil

	return state.Dir(c.dir).Save(indexName(name), index)
}

// saveVersions writes the versions of a key, or removes their file if there are none.
func (c *catalog) saveVersions(key objectKey) error {
	path := c.versionsPath(key)
	versions := c.buckets[key.bucket].Versions[key.key]
	if len(versions) > 0 {
		return state.SaveFile(path, keyVersions{Key: key.key, Versions: versions})
	}

	if err := os.Remove(path); !errors.Is(err, fs.ErrNotExist) {
		return err
	}

	return nil
}

// versionsPath returns the path of the file with the versions of a key: a key may be longer than the name of a
// file, and has slashes.
func (c *catalog) versionsPath(key objectKey) string {
	sum := sha256.Sum256([]byte(key.key))
	return filepath.Join(c.dir, key.bucket, versionsDir, hex.EncodeToString(sum[:])+".json")
}

// indexName returns the name under which [state.Dir] saves a bucket: its file is <bucket>/index.json.
func indexName(bucket string) string { return filepath.Join(bucket, "index") }

// removeBucket removes a bucket and its directory.
func (c *catalog) removeBucket(name string) error {
	if err := os.RemoveAll(filepath.Join(c.dir, name)); err != nil {
		return err
	}

	delete(c.buckets, name)
	delete(c.unsaved, name) // or the retry of a failed save would create the directory again
	for key := range c.unsavedKeys {
		if key.bucket == name {
			delete(c.unsavedKeys, key)
		}
	}

	return nil
}
