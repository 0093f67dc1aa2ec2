// SPDX-License-Identifier: Apache-2.0

package build

import (
	"archive/tar"
	"bytes"
	"cmp"
	"compress/gzip"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"time"
)

// archiveEntry is one file, link or folder of an archive.
type archiveEntry struct {
	name       string // in the archive
	source     string // the path of the file with the content; if empty, data is the content
	data       []byte
	linkTarget string // the target of a symbolic link
	dir        bool
	mode       int64
}

// writeTar writes a tar of entries and their parent folders: sorted, owned by root and without
// times, so that the same content always gives the same bytes.
func writeTar(w io.Writer, entries []archiveEntry) error {
	t := tar.NewWriter(w)
	for _, e := range addParentDirs(entries) {
		if err := writeEntry(t, e); err != nil {
			return fmt.Errorf("pack %s: %w", e.name, err)
		}
	}

	return t.Close()
}

func addParentDirs(entries []archiveEntry) []archiveEntry {
	all := slices.Clone(entries)
	seen := map[string]bool{"": true, ".": true, "/": true}
	for _, e := range entries {
		seen[path.Clean(e.name)] = true
	}

	for _, e := range entries {
		for dir := path.Dir(path.Clean(e.name)); !seen[dir]; dir = path.Dir(dir) {
			seen[dir] = true
			all = append(all, archiveEntry{name: dir, dir: true, mode: 0o755})
		}
	}

	slices.SortFunc(
		all,
		func(a, b archiveEntry) int { return cmp.Compare(path.Clean(a.name), path.Clean(b.name)) },
	)

	return all
}

func writeEntry(t *tar.Writer, e archiveEntry) (err error) {
	h := &tar.Header{
		Name:    e.name,
		Mode:    e.mode,
		ModTime: time.Unix(0, 0),
		Format:  tar.FormatPAX,
	}

	switch {
	case e.dir:
		h.Typeflag = tar.TypeDir
		h.Name = strings.TrimSuffix(e.name, "/") + "/"
		return t.WriteHeader(h)
	case e.linkTarget != "":
		h.Typeflag = tar.TypeSymlink
		h.Linkname = e.linkTarget
		return t.WriteHeader(h)

	case e.source == "":
		h.Typeflag = tar.TypeReg
		h.Size = int64(len(e.data))
		if err := t.WriteHeader(h); err != nil {
			return err
		}

		_, err := t.Write(e.data)

		return err
	}

	f, err := os.Open(e.source)
	if err != nil {
		return err
	}

	defer func() { err = errors.Join(err, f.Close()) }()
	info, err := f.Stat()
	if err != nil {
		return err
	}

	h.Typeflag = tar.TypeReg
	h.Size = info.Size()
	if err := t.WriteHeader(h); err != nil {
		return err
	}

	_, err = io.Copy(t, f)

	return err
}

// buildTarball returns a tar of entries. Image layers are not compressed: the local region serves
// them on one machine, where compression costs more time than it saves.
func buildTarball(entries []archiveEntry) ([]byte, error) {
	var b bytes.Buffer
	if err := writeTar(&b, entries); err != nil {
		return nil, err
	}

	return b.Bytes(), nil
}

// writeGzippedTar writes a tar of entries in gzip's format, but does not compress it: five machines unpack it at once
// on the computer that serves it, where that would take seconds of the processor.
func writeGzippedTar(w io.Writer, entries []archiveEntry) error {
	z, err := gzip.NewWriterLevel(w, gzip.NoCompression)
	if err != nil {
		return err
	}

	return errors.Join(writeTar(z, entries), z.Close())
}

// listTree returns everything below root as entries with paths relative to root.
func listTree(root string) ([]archiveEntry, error) {
	var entries []archiveEntry
	err := filepath.WalkDir(root, func(file string, d fs.DirEntry, err error) error {
		if err != nil || file == root {
			return err
		}

		e := archiveEntry{name: strings.TrimPrefix(file, root+"/"), source: file, mode: 0o755}
		switch {
		case d.IsDir():
			e.dir = true
		case d.Type()&fs.ModeSymlink != 0:
			e.linkTarget, err = os.Readlink(file)
		}

		entries = append(entries, e)

		return err
	})

	return entries, err
}
