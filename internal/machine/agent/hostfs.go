// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"sync"
	"syscall"
)

// File is a file to write on the machine.
type File struct {
	// Path on the machine.
	Path string
	// Body is the content.
	Body []byte
	// Mode holds the permission bits.
	Mode fs.FileMode
	// UID of the owner and group. Zero is root.
	UID int
	// Shared is set for a file that other programs change too. It is not restored.
	Shared bool
	// Durable is set for a file that must be complete after a crash of the machine.
	Durable bool
}

// HostFS writes files of the machine and records the changes. It remembers what it wrote, so that
// it can be restored. It is safe for concurrent use.
type HostFS struct {
	// Dir is the root directory: "" or "/" on a machine, a temporary directory in tests.
	Dir string

	// beforeWrite is called before a file changes; an error prevents it. Tests set it.
	beforeWrite func(path string) error

	mu      sync.Mutex
	written []string

	// writing is held while a file, link or directory is compared and changed, so that a restoration
	// never undoes a newer write.
	writing sync.Mutex
	owned   ownedPaths
}

// Path returns the path of the machine's file p as this process sees it.
func (r *HostFS) Path(p string) string { return filepath.Join(r.Dir, p) }

// Changes returns the changed paths and other changes, in order.
func (r *HostFS) Changes() []string {
	r.mu.Lock()
	defer r.mu.Unlock()
	return append([]string(nil), r.written...)
}

func (r *HostFS) recordChange(p string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.written = append(r.written, p)
}

// Write writes f atomically, unless the file already has this content, mode, and owner. It reports
// whether it wrote. From then on the machine owns the file: see findDamage.
func (r *HostFS) Write(f File) (bool, error) {
	r.writing.Lock()
	defer r.writing.Unlock()
	wrote, err := r.writeFile(f)
	if err == nil && !f.Shared {
		r.owned.addFile(f)
	}

	return wrote, err
}

func (r *HostFS) writeFile(f File) (bool, error) {
	p := r.Path(f.Path)
	if r.fileMatches(p, f) {
		return false, nil
	}

	if r.beforeWrite != nil {
		if err := r.beforeWrite(f.Path); err != nil {
			return false, fmt.Errorf("write %s: %w", f.Path, err)
		}
	}

	if err := os.MkdirAll(filepath.Dir(p), 0o755); err != nil {
		return false, fmt.Errorf("write %s: %w", f.Path, err)
	}

	temp := tempPath(p)
	if err := r.writeTemp(temp, f); err != nil {
		return false, errors.Join(fmt.Errorf("write %s: %w", f.Path, err), os.Remove(temp))
	}

	if err := os.Rename(temp, p); err != nil {
		return false, fmt.Errorf("write %s: %w", f.Path, err)
	}

	if f.Durable {
		if err := syncPath(filepath.Dir(p)); err != nil {
			return false, fmt.Errorf("write %s: %w", f.Path, err)
		}
	}

	r.recordChange(f.Path)

	return true, nil
}

// tempPath returns the path of a temporary file for p. It begins with a dot because the kubelet
// ignores such files in its static pod directory.
func tempPath(p string) string {
	return filepath.Join(filepath.Dir(p), "."+filepath.Base(p)+".slipway-new")
}

func (r *HostFS) writeTemp(temp string, f File) error {
	file, err := createOwnFile(temp)
	if err != nil {
		return err
	}

	return errors.Join(fillFile(file, f), file.Close())
}

// createOwnFile creates a file for writing, in the place of one that an interrupted write left. It never opens what is
// there: the directory may belong to the user of a component, who could have put a link to another file there.
func createOwnFile(path string) (*os.File, error) {
	if err := os.Remove(path); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, err
	}

	return os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_EXCL|syscall.O_NOFOLLOW, 0o600)
}

// fillFile writes content, owner and mode of f into an open file. Without root, as in tests, the owner stays.
func fillFile(file *os.File, f File) error {
	if _, err := file.Write(f.Body); err != nil {
		return err
	}

	if os.Geteuid() == 0 {
		if err := file.Chown(f.UID, f.UID); err != nil {
			return err
		}
	}

	if err := file.Chmod(f.Mode); err != nil {
		return err
	}

	if f.Durable {
		return file.Sync()
	}

	return nil
}

// syncPath writes a file, or the names in a directory, to the disk.
func syncPath(path string) error {
	f, err := os.Open(path)
	if err != nil {
		return err
	}

	return errors.Join(f.Sync(), f.Close())
}

// setOwner changes the owner and group of a directory. It does nothing without root, as in tests.
func (*HostFS) setOwner(p string, uid, gid int) error {
	if os.Geteuid() != 0 {
		return nil
	}

	return os.Chown(p, uid, gid)
}

func (*HostFS) fileMatches(p string, f File) bool {
	info, err := os.Lstat(p)
	if err != nil || !info.Mode().IsRegular() || info.Mode().Perm() != f.Mode.Perm() {
		return false
	}

	if stat, ok := info.Sys().(*syscall.Stat_t); ok && os.Geteuid() == 0 && int(stat.Uid) != f.UID {
		return false
	}

	body, err := os.ReadFile(p)

	return err == nil && bytes.Equal(body, f.Body)
}

// MakeDir creates a directory, or changes the mode and owner of an existing one. From then on the
// machine owns the directory: see findDamage.
func (r *HostFS) MakeDir(path string, mode fs.FileMode, uid int) error {
	return r.makeOwnedDir(ownedDir{
		path: path,
		mode: mode,
		uid:  uid,
		gid:  uid,
	})
}

// MakeReadableDir is like MakeDir for a directory that a component with a user and group of its own reads and root writes:
// the component, should it get out of its container, replaces no file there.
func (r *HostFS) MakeReadableDir(path string, gid int) error {
	return r.makeOwnedDir(ownedDir{path: path, mode: 0o750, gid: gid})
}

func (r *HostFS) makeOwnedDir(d ownedDir) error {
	r.writing.Lock()
	defer r.writing.Unlock()
	if err := r.makeDir(d); err != nil {
		return err
	}

	r.owned.addDir(d)

	return nil
}

func (r *HostFS) makeDir(d ownedDir) error {
	p := r.Path(d.path)
	info, err := os.Stat(p)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		if err := os.MkdirAll(p, d.mode); err != nil {
			return fmt.Errorf("create directory %s: %w", d.path, err)
		}

		r.recordChange(d.path)

	case err != nil:
		return fmt.Errorf("create directory %s: %w", d.path, err)
	case info.Mode().Perm() == d.mode && isOwnedBy(info, d):
		return nil
	}

	if err := r.setOwner(p, d.uid, d.gid); err != nil {
		return fmt.Errorf("create directory %s: %w", d.path, err)
	}

	if err := os.Chmod(p, d.mode); err != nil {
		return fmt.Errorf("create directory %s: %w", d.path, err)
	}

	return nil
}

// isOwnedBy reports whether a directory has the owner and group of d.
func isOwnedBy(info fs.FileInfo, d ownedDir) bool {
	uid, gid := ownerOf(info)

	return uid == d.uid && gid == d.gid
}

// ownerOf returns the owner and group of a file.
func ownerOf(info fs.FileInfo) (uid, gid int) {
	stat, ok := info.Sys().(*syscall.Stat_t)
	if !ok {
		return 0, 0
	}

	return int(stat.Uid), int(stat.Gid)
}

// Link makes path a symbolic link to target, replacing an existing link. It reports whether it
// changed anything. From then on the machine owns the link: see findDamage.
func (r *HostFS) Link(path, target string) (bool, error) {
	r.writing.Lock()
	defer r.writing.Unlock()
	changed, err := r.makeLink(path, target)
	if err == nil {
		r.owned.addLink(path, target)
	}

	return changed, err
}

func (r *HostFS) makeLink(path, target string) (bool, error) {
	p := r.Path(path)
	if have, err := os.Readlink(p); err == nil && have == target {
		return false, nil
	}

	if err := os.MkdirAll(filepath.Dir(p), 0o755); err != nil {
		return false, fmt.Errorf("link %s: %w", path, err)
	}

	temp := tempPath(p)
	if err := os.Remove(temp); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return false, fmt.Errorf("link %s: %w", path, err)
	}

	if err := os.Symlink(target, temp); err != nil {
		return false, fmt.Errorf("link %s: %w", path, err)
	}

	if err := os.Rename(temp, p); err != nil {
		return false, fmt.Errorf("link %s: %w", path, err)
	}

	r.recordChange(path)

	return true, nil
}

// Remove deletes a file, which need not exist. The machine does not own it any more.
func (r *HostFS) Remove(path string) error {
	r.writing.Lock()
	defer r.writing.Unlock()
	delete(r.owned.files, path)
	if err := os.Remove(r.Path(path)); err != nil {
		if errors.Is(err, fs.ErrNotExist) {
			return nil
		}

		return fmt.Errorf("delete %s: %w", path, err)
	}

	r.recordChange(path)

	return nil
}

// RemoveAll deletes a directory with its content, which need not exist. The machine does not own these files any more.
func (r *HostFS) RemoveAll(dir string) error {
	r.writing.Lock()
	defer r.writing.Unlock()
	below := func(path string) bool { return isBelowAny(path, []string{dir}) }
	maps.DeleteFunc(r.owned.files, func(path string, _ File) bool { return below(path) })
	maps.DeleteFunc(r.owned.dirs, func(path string, _ ownedDir) bool { return below(path) })
	maps.DeleteFunc(r.owned.links, func(path, _ string) bool { return below(path) })

	if !r.Exists(dir) {
		return nil
	}

	if err := os.RemoveAll(r.Path(dir)); err != nil {
		return fmt.Errorf("delete %s: %w", dir, err)
	}

	r.recordChange(dir)

	return nil
}

// Read returns the content of a file.
func (r *HostFS) Read(path string) ([]byte, error) {
	body, err := os.ReadFile(r.Path(path))
	if err != nil {
		return nil, fmt.Errorf("read %s: %w", path, err)
	}

	return body, nil
}

// Has reports whether path exists. A path that cannot be looked at, as on a broken disk, is an error.
func (r *HostFS) Has(path string) (bool, error) {
	_, err := os.Stat(r.Path(path))
	if errors.Is(err, fs.ErrNotExist) {
		return false, nil
	}

	return err == nil, err
}

// Exists reports whether path exists and can be looked at.
func (r *HostFS) Exists(path string) bool {
	_, err := os.Stat(r.Path(path))
	return err == nil
}
