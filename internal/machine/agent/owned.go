// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"slices"
	"strings"
)

// ownedPaths are the files, directories and links that the agent wrote, as it wrote them last. The
// content is kept too, because it cannot be computed again: keys are random.
type ownedPaths struct {
	files map[string]File
	dirs  map[string]ownedDir
	links map[string]string
}

type ownedDir struct {
	path string
	mode fs.FileMode
	uid  int
	gid  int
}

func (o *ownedPaths) addFile(f File) {
	if o.files == nil {
		o.files = map[string]File{}
	}

	o.files[f.Path] = f
}

func (o *ownedPaths) addDir(d ownedDir) {
	if o.dirs == nil {
		o.dirs = map[string]ownedDir{}
	}

	o.dirs[d.path] = d
}

func (o *ownedPaths) addLink(path, target string) {
	if o.links == nil {
		o.links = map[string]string{}
	}

	o.links[path] = target
}

// damage is a difference between a path and what the agent wrote there.
type damage struct {
	// path on the machine.
	path string
	// what happened to it, as the predicate of a sentence: "was deleted".
	what string
}

// findDamage returns the owned paths that are not as they were written, directories first, and changes
// nothing. It skips paths below the directories in except.
func (r *HostFS) findDamage(except ...string) []damage {
	r.writing.Lock()
	defer r.writing.Unlock()
	var out []damage
	add := func(path, what string) {
		if what != "" && !isBelowAny(path, except) {
			out = append(out, damage{path, what})
		}
	}

	for _, path := range slices.Sorted(maps.Keys(r.owned.dirs)) {
		add(path, r.dirDamage(r.owned.dirs[path]))
	}

	for _, path := range slices.Sorted(maps.Keys(r.owned.files)) {
		add(path, r.fileDamage(r.owned.files[path]))
	}

	for _, path := range slices.Sorted(maps.Keys(r.owned.links)) {
		add(path, r.linkDamage(path, r.owned.links[path]))
	}

	return out
}

// OwnedFiles returns the paths of the owned files, sorted.
func (r *HostFS) OwnedFiles() []string {
	r.writing.Lock()
	defer r.writing.Unlock()

	return slices.Sorted(maps.Keys(r.owned.files))
}

func isBelowAny(path string, dirs []string) bool {
	return slices.ContainsFunc(dirs, func(d string) bool { return path == d || strings.HasPrefix(path, d+"/") })
}

// Restore writes an owned path again, as it was written last.
func (r *HostFS) Restore(path string) error {
	r.writing.Lock()
	defer r.writing.Unlock()
	if d, ok := r.owned.dirs[path]; ok {
		if err := r.removeOther(path, fs.ModeDir); err != nil {
			return err
		}

		return r.makeDir(d)
	}

	if f, ok := r.owned.files[path]; ok {
		if err := r.removeOther(path, 0); err != nil {
			return err
		}

		_, err := r.writeFile(f)

		return err
	}

	if target, ok := r.owned.links[path]; ok {
		if err := r.removeOther(path, fs.ModeSymlink); err != nil {
			return err
		}

		_, err := r.makeLink(path, target)

		return err
	}

	return fmt.Errorf("restore %s: the agent did not write it", path)
}

// removeOther removes an empty directory at path that is to be something else, and something else
// that is to be a directory. Renaming cannot replace these.
func (r *HostFS) removeOther(path string, want fs.FileMode) error {
	if info, err := os.Lstat(r.Path(path)); err == nil && info.IsDir() == (want == fs.ModeDir) {
		return nil
	}

	if err := os.Remove(r.Path(path)); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("restore %s: %w", path, err)
	}

	return nil
}

// Adopt makes the machine own a file that an earlier process wrote, with its present content. It
// does nothing if the file is owned already or cannot be read.
func (r *HostFS) Adopt(path string, mode fs.FileMode, uid int) {
	r.writing.Lock()
	defer r.writing.Unlock()
	if _, owned := r.owned.files[path]; owned {
		return
	}

	body, err := os.ReadFile(r.Path(path))
	if err != nil {
		return
	}

	r.owned.addFile(File{
		Path: path,
		Body: body,
		Mode: mode,
		UID:  uid,
	})
}

// AdoptLink makes the machine own a symbolic link that another program made, if it exists.
func (r *HostFS) AdoptLink(path string) {
	r.writing.Lock()
	defer r.writing.Unlock()
	if target, err := os.Readlink(r.Path(path)); err == nil {
		r.owned.addLink(path, target)
	}
}

func (r *HostFS) dirDamage(d ownedDir) string {
	info, err := os.Lstat(r.Path(d.path))
	if err != nil {
		return missingOrUnreadable(err)
	}

	if !info.IsDir() {
		return "was replaced by " + describeType(info.Mode())
	}

	return modeDamage(info, d.mode, d.uid, d.gid)
}

func (r *HostFS) fileDamage(f File) string {
	p := r.Path(f.Path)
	if r.fileMatches(p, f) {
		return ""
	}

	info, err := os.Lstat(p)
	if err != nil {
		return missingOrUnreadable(err)
	}

	if !info.Mode().IsRegular() {
		return "was replaced by " + describeType(info.Mode())
	}

	if what := modeDamage(info, f.Mode, f.UID, f.UID); what != "" {
		return what
	}

	return "was changed"
}

func (r *HostFS) linkDamage(path, target string) string {
	have, err := os.Readlink(r.Path(path))

	switch {
	case errors.Is(err, fs.ErrNotExist):
		return "was deleted"
	case err != nil:
		return "was replaced by a file that is not a link"
	case have != target:
		return "was changed: it led to " + have
	default:
		return ""
	}
}

func missingOrUnreadable(err error) string {
	if errors.Is(err, fs.ErrNotExist) {
		return "was deleted"
	}

	return "cannot be read: " + err.Error()
}

func describeType(mode fs.FileMode) string {
	switch {
	case mode&fs.ModeSymlink != 0:
		return "a symbolic link"
	case mode.IsDir():
		return "a directory"
	default:
		return "another kind of file"
	}
}

// modeDamage compares permissions, and as root also the owner and the group.
func modeDamage(info fs.FileInfo, mode fs.FileMode, uid, gid int) string {
	if have := info.Mode().Perm(); have != mode.Perm() {
		return fmt.Sprintf("had mode %04o instead of %04o", have, mode.Perm())
	}

	if os.Geteuid() != 0 {
		return ""
	}

	haveUID, haveGID := ownerOf(info)
	switch {
	case haveUID != uid:
		return fmt.Sprintf("had owner %d instead of %d", haveUID, uid)
	case haveGID != gid:
		return fmt.Sprintf("had group %d instead of %d", haveGID, gid)
	default:
		return ""
	}
}
