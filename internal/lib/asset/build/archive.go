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
	source     string // the file its bytes are in; empty means data
	data       []byte
	linkTarget string // what a symbolic link says
	dir        bool
	mode       int64
}

// writeTar writes entries sorted, with their parent folders, owned by root and without times: the same content always gives the same bytes.
func writeTar(w io.Writer, entries []archiveEntry) error {
	t := tar.NewWriter(w)
	for _, e := range addParentDirs(entries) {
		if err := writeEntry(t, e); err != nil {
			return fmt.Errorf("packing %s: %w", e.name, err)
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
		h.Typeflag, h.Name = tar.TypeDir, strings.TrimSuffix(e.name, "/")+"/"
		return t.WriteHeader(h)
	case e.linkTarget != "":
		h.Typeflag = tar.TypeSymlink
		h.Linkname = e.linkTarget
		return t.WriteHeader(h)

	case e.source == "":
		h.Typeflag, h.Size = tar.TypeReg, int64(len(e.data))
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

	h.Typeflag, h.Size = tar.TypeReg, info.Size()
	if err := t.WriteHeader(h); err != nil {
		return err
	}

	_, err = io.Copy(t, f)

	return err
}

// buildTarball returns the tar of entries. Layers are not compressed: they only ever travel within one machine, where CPU is what is scarce.
func buildTarball(entries []archiveEntry) ([]byte, error) {
	var b bytes.Buffer
	if err := writeTar(&b, entries); err != nil {
		return nil, err
	}

	return b.Bytes(), nil
}

// writeGzippedTar writes entries as upstream's archives are, at the fastest level.
func writeGzippedTar(w io.Writer, entries []archiveEntry) error {
	z, err := gzip.NewWriterLevel(w, gzip.BestSpeed)
	if err != nil {
		return err
	}

	return errors.Join(writeTar(z, entries), z.Close())
}

// listTree lists what lies under root, as entries of the same names.
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
