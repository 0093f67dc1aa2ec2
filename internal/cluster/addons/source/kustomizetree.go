// SPDX-License-Identifier: Apache-2.0

package source

import (
	"fmt"
	"io/fs"
	"path"
	"path/filepath"
	"strings"

	"sigs.k8s.io/kustomize/kyaml/filesys"
)

// kustomizeTree is the directory of a channel as the file system of kustomize, in which it is "/". Nothing can be
// written. Every kustomization is checked when it is read, so that none is used unchecked.
type kustomizeTree struct {
	reader treeReader
	// refused is why a kustomization was refused. Kustomize hides the error behind others.
	refused error
}

// inside returns the path of a file relative to the root.
func inside(name string) string {
	return strings.TrimPrefix(path.Join("/", filepath.ToSlash(name)), "/")
}

// stat returns the information about a file.
func (t *kustomizeTree) stat(name string) (fs.FileInfo, error) {
	if at := inside(name); at != "" {
		return t.reader.root.Stat(at)
	}

	return t.reader.root.Stat(".")
}

// ReadFile implements [filesys.FileSystem].
func (t *kustomizeTree) ReadFile(name string) ([]byte, error) {
	text, err := t.reader.read(inside(name))
	if err != nil || !isKustomizationName(path.Base(name)) {
		return text, err
	}

	if err := checkKustomization(text); err != nil {
		t.refused = fmt.Errorf("%s: %w", inside(name), err)
		return nil, t.refused
	}

	return text, nil
}

// CleanedAbs implements [filesys.FileSystem].
func (t *kustomizeTree) CleanedAbs(name string) (filesys.ConfirmedDir, string, error) {
	info, err := t.stat(name)
	if err != nil {
		return "", "", err
	}

	full := "/" + inside(name)
	if info.IsDir() {
		return filesys.ConfirmedDir(full), "", nil
	}

	return filesys.ConfirmedDir(path.Dir(full)), path.Base(full), nil
}

// Exists implements [filesys.FileSystem].
func (t *kustomizeTree) Exists(name string) bool {
	_, err := t.stat(name)
	return err == nil
}

// IsDir implements [filesys.FileSystem].
func (t *kustomizeTree) IsDir(name string) bool {
	info, err := t.stat(name)
	return err == nil && info.IsDir()
}

// ReadDir implements [filesys.FileSystem].
func (t *kustomizeTree) ReadDir(name string) ([]string, error) {
	entries, err := fs.ReadDir(t.reader.root.FS(), path.Join(".", inside(name)))
	var names []string
	for _, e := range entries {
		names = append(names, e.Name())
	}

	return names, err
}

// Glob implements [filesys.FileSystem].
func (t *kustomizeTree) Glob(pattern string) ([]string, error) {
	found, err := fs.Glob(t.reader.root.FS(), inside(pattern))
	for i := range found {
		found[i] = "/" + found[i]
	}

	return found, err
}

// The methods below are never called to build a kustomization without plugins and remote bases.

// Open implements [filesys.FileSystem].
func (t *kustomizeTree) Open(name string) (filesys.File, error) { return nil, readOnly(name) }

// Walk implements [filesys.FileSystem].
func (t *kustomizeTree) Walk(name string, _ filepath.WalkFunc) error { return readOnly(name) }

// Create implements [filesys.FileSystem].
func (t *kustomizeTree) Create(name string) (filesys.File, error) { return nil, readOnly(name) }

// Mkdir implements [filesys.FileSystem].
func (t *kustomizeTree) Mkdir(name string) error { return readOnly(name) }

// MkdirAll implements [filesys.FileSystem].
func (t *kustomizeTree) MkdirAll(name string) error { return readOnly(name) }

// RemoveAll implements [filesys.FileSystem].
func (t *kustomizeTree) RemoveAll(name string) error { return readOnly(name) }

// WriteFile implements [filesys.FileSystem].
func (t *kustomizeTree) WriteFile(name string, _ []byte) error { return readOnly(name) }

// readOnly is the error of a method that kustomize must not call.
func readOnly(name string) error {
	return fmt.Errorf("use %s: %w", name, fs.ErrPermission)
}
