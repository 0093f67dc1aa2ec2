// SPDX-License-Identifier: Apache-2.0

package build

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/slipway-k8s/slipway/internal/lib/asset"
)

// stampName is the file with the key of the packed results.
const stampName = ".stamp"

// Forget makes the next Run pack its results again, because something else is about to change the output folder.
func Forget(out string) error {
	err := os.Remove(filepath.Join(out, stampName))
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("remove the stamp of the last build: %w", err)
	}

	return nil
}

// packResults packs the results of all steps into files, images and the catalogue. It writes the
// catalogue last and the stamp after it, so that an interrupted run packs again.
func (b *builder) packResults() error {
	stamp := filepath.Join(b.Out, stampName)
	catalog := filepath.Join(b.Out, "catalog.yaml")
	key := hashParts(
		append(
			slices.Clone(b.stepKeys),
			b.FileRepository,
			b.ContainerRegistry,
			fmt.Sprint(b.files, b.images, recipeVersion, packVersion),
		)...)
	if old, err := os.ReadFile(stamp); err == nil && string(old) == key && fileExists(catalog) {
		b.progress.skipStep()
		return nil
	}

	b.built = append(b.built, "files and images")

	return b.progress.runStep("files and images", func() error {
		if err := os.RemoveAll(stamp); err != nil {
			return err
		}

		c := b.newCatalog()
		keep, err := b.packFiles(&c)
		if err != nil {
			return err
		}

		if err := b.packImages(&c); err != nil {
			return err
		}

		raw, err := c.YAML()
		if err != nil {
			return err
		}

		if _, err := asset.ParseCatalog(raw); err != nil {
			return fmt.Errorf("validate the catalogue of this build: %w", err)
		}

		head := "# Created by slipway assets build; the local region serves these assets.\n"
		if err := writeFile(catalog, append([]byte(head), raw...)); err != nil {
			return err
		}

		if err := removeUnlisted(filepath.Join(b.Out, "files"), keep); err != nil {
			return err
		}

		return writeFile(stamp, []byte(key))
	})
}

// packFiles writes the files below files/<host>/<path>, adds them to the catalogue, and returns
// their paths.
func (b *builder) packFiles(c *asset.Catalog) ([]string, error) {
	var paths []string
	for _, r := range b.files {
		url := b.expandPattern(r.URL, r.Module)
		path := filepath.Join(b.Out, "files", strings.TrimPrefix(url, "https://"))
		bin := filepath.Join(b.stepDirs[r.Module], "bin")
		var write func(io.Writer) error
		if r.Format == asset.FormatBinary {
			write = func(w io.Writer) error { return copyFile(w, filepath.Join(bin, r.Program)) }
		} else {
			entries, err := listPrograms(bin, b.expandPattern(r.Prefix, r.Module))
			if err != nil {
				return nil, fmt.Errorf("pack %s: %w", r.Name, err)
			}

			write = func(w io.Writer) error { return writeGzippedTar(w, entries) }
		}

		sum, err := writeHashed(path, write)
		if err != nil {
			return nil, fmt.Errorf("pack %s: %w", r.Name, err)
		}

		info, err := os.Stat(path)
		if err != nil {
			return nil, fmt.Errorf("pack %s: %w", r.Name, err)
		}

		paths = append(paths, path)
		c.Files = append(c.Files, asset.File{
			Name:    r.Name,
			Version: b.versions[r.Module],
			Arch:    b.arch,
			URL:     url,
			SHA256:  sum,
			Format:  r.Format,
			Size:    info.Size(),
		})
	}

	return paths, nil
}

// listPrograms returns the programs of a bin folder as entries whose names begin with prefix.
func listPrograms(bin, prefix string) ([]archiveEntry, error) {
	found, err := os.ReadDir(bin)
	if err != nil {
		return nil, err
	}

	var entries []archiveEntry

	for _, f := range found {
		entries = append(
			entries,
			archiveEntry{name: prefix + f.Name(), source: filepath.Join(bin, f.Name()), mode: 0o755},
		)
	}

	return entries, nil
}

// writeHashed creates or replaces a file atomically, and returns the SHA-256 of its content.
func writeHashed(path string, write func(io.Writer) error) (sum string, err error) {
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return "", err
	}

	f, err := os.CreateTemp(filepath.Dir(path), ".new-*")
	if err != nil {
		return "", err
	}

	h := sha256.New()
	err = errors.Join(write(io.MultiWriter(f, h)), f.Chmod(0o644), f.Close())
	if err == nil {
		err = os.Rename(f.Name(), path)
	}

	if err != nil {
		return "", errors.Join(err, os.Remove(f.Name()))
	}

	return hex.EncodeToString(h.Sum(nil)), nil
}

func writeFile(path string, raw []byte) error {
	_, err := writeHashed(path, func(w io.Writer) error {
		_, err := w.Write(raw)
		return err
	})

	return err
}

func copyFile(w io.Writer, path string) error {
	f, err := os.Open(path)
	if err != nil {
		return err
	}

	_, err = io.Copy(w, f)

	return errors.Join(err, f.Close())
}

// removeUnlisted deletes the files below root that are not in keep, such as those of earlier
// versions.
func removeUnlisted(root string, keep []string) error {
	entries, err := listTree(root)
	if err != nil {
		return err
	}

	for _, e := range entries {
		if !e.dir && !slices.Contains(keep, e.source) {
			err = errors.Join(err, os.Remove(e.source))
		}
	}

	return err
}

func fileExists(path string) bool {
	_, err := os.Stat(path)
	return err == nil
}
