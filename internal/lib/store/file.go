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
	// lockPollInterval is the time between two attempts of a writer to get the lock.
	lockPollInterval = 5 * time.Millisecond
)

// FileStore is a Store in a folder. Readers need no lock, since objects appear by rename or link.
// Writers, also those of other processes, hold a lock file, so that Update can compare and write
// atomically.
type FileStore struct {
	dir string
}

// NewFileStore returns the store in the folder dir, an absolute path. The first write creates the
// folder if it does not exist.
func NewFileStore(dir string) *FileStore { return &FileStore{dir: filepath.Clean(dir)} }

// URL returns the URL of the store: file:///dir.
func (f *FileStore) URL() string { return "file://" + f.dir }

// Get implements Store.
func (f *FileStore) Get(ctx context.Context, key string) (Object, error) {
	if err := checkRequest(ctx, key); err != nil {
		return Object{}, err
	}

	root, err := os.OpenRoot(f.dir)
	if err != nil {
		return Object{}, f.wrapError("read", key, err)
	}

	defer func() { _ = root.Close() }()
	body, err := root.ReadFile(filepath.FromSlash(key))
	if err != nil {
		return Object{}, f.wrapError("read", key, err)
	}

	return Object{Key: key, Body: body, ETag: computeETag(body)}, nil
}

// Put implements Store.
func (f *FileStore) Put(ctx context.Context, key string, body []byte) (string, error) {
	return f.writeObject(
		ctx,
		key,
		body,
		func(root *os.Root, temp, name string) error { return root.Rename(temp, name) },
	)
}

// Create implements Store.
func (f *FileStore) Create(ctx context.Context, key string, body []byte) (string, error) {
	return f.writeObject(ctx, key, body, func(root *os.Root, temp, name string) error {
		if err := root.Link(temp, name); err != nil { // unlike rename, link never replaces
			return err
		}

		return root.Remove(temp)
	})
}

// Update implements Store.
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

// Delete implements Store. It also removes the folders that become empty.
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

// removeEmptyDirs removes dir and its parents up to the first one that is not empty.
func removeEmptyDirs(root *os.Root, dir string) {
	for dir != "." && root.Remove(filepath.FromSlash(dir)) == nil {
		dir = path.Dir(dir)
	}
}

// List implements Store.
func (f *FileStore) List(ctx context.Context, prefix string) ([]string, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}

	var keys []string
	err := filepath.WalkDir(f.dir, func(p string, d fs.DirEntry, err error) error {
		if errors.Is(err, fs.ErrNotExist) {
			return nil // deleted meanwhile
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

// writeObject writes body to a temporary file in the folder of the object, and calls commit to move
// it to its place. It holds the lock meanwhile.
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
		defer func() { _ = root.Remove(temp) }() // commit has moved it if it succeeded
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

// withLock calls do while it holds the lock that excludes all other writers of this and other
// processes.
func (f *FileStore) withLock(ctx context.Context, key string, do func(*os.Root) error) error {
	root, err := os.OpenRoot(f.dir)
	if err != nil {
		return f.wrapError("open", key, err)
	}

	defer func() { _ = root.Close() }()
	lock, err := root.OpenFile(lockName, os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return f.wrapError("lock", key, err)
	}

	defer func() { _ = lock.Close() }() // releases the lock

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

// syncDir makes renames and links in dir durable.
func syncDir(root *os.Root, dir string) error {
	d, err := root.Open(dir)
	if err != nil {
		return err
	}

	return errors.Join(d.Sync(), d.Close())
}

// wrapError adds the operation and the object to an error, and maps the errors of the file system
// to the errors of this package.
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

// ignoreNotFound returns nil for ErrNotFound, and other errors unchanged.
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

// isInternalName reports whether a file of this name is not an object, but a lock or temporary file
// of the store.
func isInternalName(base string) bool { return base == lockName || strings.HasPrefix(base, tempPrefix) }
