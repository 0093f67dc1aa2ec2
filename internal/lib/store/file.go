// SPDX-License-Identifier: Apache-2.0

package store

import (
	"context"
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

const (
	lockName   = ".slipway-lock"
	tempPrefix = ".slipway-tmp-"
	// lockPollInterval is how long a writer waits before it asks for the lock again.
	lockPollInterval = 5 * time.Millisecond
)

// FileStore is a Store in a folder. Readers need no lock, since objects appear by rename or link; writers of all
// processes take turns by a lock file, so that Update can compare and write as one step.
type FileStore struct {
	dir string
}

// NewFileStore returns the store in the folder dir, an absolute path. The folder need not exist before the first write.
func NewFileStore(dir string) *FileStore { return &FileStore{dir: filepath.Clean(dir)} }

// URL of the store.
func (f *FileStore) URL() string { return "file://" + f.dir }

// Get reads an object.
func (f *FileStore) Get(ctx context.Context, key string) (Object, error) {
	if err := checkRequest(ctx, key); err != nil {
		return Object{}, err
	}

	root, err := os.OpenRoot(f.dir)
	if err != nil {
		return Object{}, f.wrapError("read", key, err)
	}

	defer root.Close() //nolint:errcheck // opened to read
	body, err := root.ReadFile(filepath.FromSlash(key))
	if err != nil {
		return Object{}, f.wrapError("read", key, err)
	}

	return Object{Key: key, Body: body, ETag: computeETag(body)}, nil
}

// Put writes an object whatever is there.
func (f *FileStore) Put(ctx context.Context, key string, body []byte) (string, error) {
	return f.writeObject(
		ctx,
		key,
		body,
		func(root *os.Root, temp, name string) error { return root.Rename(temp, name) },
	)
}

// Create writes an object that is not there yet.
func (f *FileStore) Create(ctx context.Context, key string, body []byte) (string, error) {
	return f.writeObject(ctx, key, body, func(root *os.Root, temp, name string) error {
		if err := root.Link(temp, name); err != nil { // unlike rename, link never replaces
			return err
		}

		return root.Remove(temp)
	})
}

// Update writes an object that is still as etag says.
func (f *FileStore) Update(ctx context.Context, key string, body []byte, etag string) (string, error) {
	return f.writeObject(ctx, key, body, func(root *os.Root, temp, name string) error {
		now, err := root.ReadFile(name)
		if err != nil {
			return err
		}

		if computeETag(now) != etag {
			return ErrConflict
		}

		return root.Rename(temp, name)
	})
}

// Delete removes an object and the folders that it leaves empty.
func (f *FileStore) Delete(ctx context.Context, key string) error {
	if err := checkRequest(ctx, key); err != nil {
		return err
	}

	if _, err := os.Stat(f.dir); err != nil {
		return ignoreNotFound(f.wrapError("delete", key, err))
	}

	return f.withLock(ctx, key, func(root *os.Root) error {
		if err := root.Remove(filepath.FromSlash(key)); err != nil {
			return ignoreNotFound(f.wrapError("delete", key, err))
		}

		removeEmptyDirs(root, path.Dir(key))
		return nil
	})
}

// removeEmptyDirs removes dir and those above it, up to the first that is not empty.
func removeEmptyDirs(root *os.Root, dir string) {
	for dir != "." && root.Remove(filepath.FromSlash(dir)) == nil {
		dir = path.Dir(dir)
	}
}

// List returns the keys that begin with prefix.
func (f *FileStore) List(ctx context.Context, prefix string) ([]string, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}

	var keys []string
	err := filepath.WalkDir(f.dir, func(p string, d fs.DirEntry, err error) error {
		if errors.Is(err, fs.ErrNotExist) {
			return nil // deleted while we walk
		}

		if err != nil {
			return err
		}

		rel, err := filepath.Rel(f.dir, p)
		if err != nil {
			return err
		}

		key := filepath.ToSlash(rel)
		if d.Type().IsRegular() && strings.HasPrefix(key, prefix) && !isInternalName(path.Base(key)) {
			keys = append(keys, key)
		}

		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("list %s in %s: %w", prefix, f.URL(), err)
	}

	slices.Sort(keys)

	return keys, nil
}

// writeObject puts body into a temporary file beside key and lets commit move it in place, under the lock.
func (f *FileStore) writeObject(
	ctx context.Context,
	key string,
	body []byte,
	commit func(root *os.Root, temp, name string) error,
) (string, error) {
	if err := checkRequest(ctx, key); err != nil {
		return "", err
	}

	if err := os.MkdirAll(f.dir, 0o700); err != nil {
		return "", f.wrapError("write", key, err)
	}

	err := f.withLock(ctx, key, func(root *os.Root) error {
		name := filepath.FromSlash(key)
		if err := root.MkdirAll(filepath.Dir(name), 0o700); err != nil {
			return f.wrapError("write", key, err)
		}

		temp := filepath.Join(filepath.Dir(name), tempPrefix+rand.Text())
		defer root.Remove(temp) //nolint:errcheck // gone already when all went well
		if err := writeAndSync(root, temp, body); err != nil {
			return f.wrapError("write", key, err)
		}

		if err := commit(root, temp, name); err != nil {
			return f.wrapError("write", key, err)
		}

		return f.wrapError("write", key, syncDir(root, filepath.Dir(name)))
	})
	if err != nil {
		return "", err
	}

	return computeETag(body), nil
}

// withLock runs do while no other writer, in this or another process, is in its own.
func (f *FileStore) withLock(ctx context.Context, key string, do func(*os.Root) error) error {
	root, err := os.OpenRoot(f.dir)
	if err != nil {
		return f.wrapError("open", key, err)
	}

	defer root.Close() //nolint:errcheck // nothing is written through it
	lock, err := root.OpenFile(lockName, os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return f.wrapError("lock", key, err)
	}

	defer lock.Close() //nolint:errcheck // closing is what unlocks

	for {
		err := unix.Flock(int(lock.Fd()), unix.LOCK_EX|unix.LOCK_NB)
		if err == nil {
			return do(root)
		}

		if !errors.Is(err, unix.EWOULDBLOCK) && !errors.Is(err, unix.EINTR) {
			return f.wrapError("lock", key, err)
		}

		select {
		case <-ctx.Done():
			return f.wrapError("wait for the lock to write", key, ctx.Err())
		case <-time.After(lockPollInterval):
		}
	}
}

func writeAndSync(root *os.Root, name string, body []byte) error {
	file, err := root.OpenFile(name, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}

	_, err = file.Write(body)

	return errors.Join(err, file.Sync(), file.Close())
}

// syncDir makes a rename or link in dir durable.
func syncDir(root *os.Root, dir string) error {
	d, err := root.Open(dir)
	if err != nil {
		return err
	}

	return errors.Join(d.Sync(), d.Close())
}

// wrapError says what was being done to which object, and maps the operating system's errors to this package's.
func (f *FileStore) wrapError(doing, key string, err error) error {
	switch {
	case err == nil:
		return nil
	case errors.Is(err, fs.ErrNotExist):
		err = ErrNotFound
	case errors.Is(err, fs.ErrExist):
		err = ErrConflict
	}

	return fmt.Errorf("%s %s in %s: %w", doing, key, f.URL(), err)
}

// ignoreNotFound makes deleting what is not there no error.
func ignoreNotFound(err error) error {
	if errors.Is(err, ErrNotFound) {
		return nil
	}

	return err
}

func computeETag(body []byte) string {
	sum := sha256.Sum256(body)
	return hex.EncodeToString(sum[:])
}

// isInternalName says that a base name is the store's own.
func isInternalName(base string) bool { return base == lockName || strings.HasPrefix(base, tempPrefix) }
