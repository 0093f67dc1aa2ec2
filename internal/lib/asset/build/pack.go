// SPDX-License-Identifier: Apache-2.0

package build

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/slipway-k8s/slipway/internal/lib/asset"
)

// packResults turns the results of all steps into the files, images and catalogue that machines read.
// The catalogue is written last and its stamp after it, so an interrupted pack is done again.
func (b *builder) packResults() error {
	stamp := filepath.Join(b.Out, ".stamp")
	catalog := filepath.Join(b.Out, "catalog.yaml")
	key := hashParts(
		append(
			slices.Clone(b.stepKeys),
			b.FileRepository,
			b.ContainerRegistry,
			fmt.Sprint(b.files, b.images, recipeVersion),
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
			return fmt.Errorf("the catalogue of this build is wrong: %w", err)
		}

		head := "# What slipway assets build made; the local region serves it.\n"
		if err := writeFile(catalog, append([]byte(head), raw...)); err != nil {
			return err
		}

		if err := removeUnlisted(filepath.Join(b.Out, "files"), keep); err != nil {
			return err
		}

		return writeFile(stamp, []byte(key))
	})
}

// packFiles writes the files under files/<host>/<path> and lists them; it returns their paths.
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
				return nil, fmt.Errorf("packing %s: %w", r.Name, err)
			}

			write = func(w io.Writer) error { return writeGzippedTar(w, entries) }
		}

		sum, err := writeHashed(path, write)
		if err != nil {
			return nil, fmt.Errorf("packing %s: %w", r.Name, err)
		}

		paths = append(paths, path)
		c.Files = append(c.Files, asset.File{
			Name:    r.Name,
			Version: b.versions[r.Module],
			Arch:    b.arch,
			URL:     url,
			SHA256:  sum,
			Format:  r.Format,
		})
	}

	return paths, nil
}

// listPrograms lists the programs of a bin folder as entries under prefix.
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

// writeHashed writes a file in one move and returns the SHA-256 of its bytes.
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

// removeUnlisted deletes the files under root that are not in keep: versions of earlier builds.
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
