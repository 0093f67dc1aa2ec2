// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"archive/tar"
	"compress/gzip"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
)

// maxExtractedBytes limits the content of an archive. The largest, containerd's, has 120 MiB.
const maxExtractedBytes = 2 << 30

// extractArchive unpacks the .tar.gz file at archive into the directory target, which appears only
// when it is complete, and removes the archive. It allows only files and directories below target.
func extractArchive(archive, target string) error {
	in, err := os.Open(archive)
	if err != nil {
		return err
	}

	defer func() { _ = in.Close() }()
	temp := target + ".new"
	if err := os.RemoveAll(temp); err != nil {
		return err
	}

	if err := extractTarGz(in, temp); err != nil {
		return errors.Join(err, os.RemoveAll(temp))
	}

	if err := os.Rename(temp, target); err != nil {
		return err
	}

	return os.Remove(archive)
}

func extractTarGz(in io.Reader, dir string) error {
	plain, err := gzip.NewReader(in)
	if err != nil {
		return err
	}

	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}

	root, err := os.OpenRoot(dir)
	if err != nil {
		return err
	}

	defer func() { _ = root.Close() }()
	left := int64(maxExtractedBytes)

	for archive := tar.NewReader(plain); ; {
		head, err := archive.Next()
		if errors.Is(err, io.EOF) {
			return nil
		}

		if err != nil {
			return err
		}

		if left -= head.Size; left < 0 {
			return fmt.Errorf("content exceeds %d bytes", int64(maxExtractedBytes))
		}

		if err := extractEntry(root, head, archive); err != nil {
			return fmt.Errorf("entry %s: %w", head.Name, err)
		}
	}
}

func extractEntry(root *os.Root, head *tar.Header, body io.Reader) error {
	name := filepath.Clean(head.Name)
	if !filepath.IsLocal(name) {
		return errors.New("path is outside the directory")
	}

	switch head.Typeflag {
	case tar.TypeDir:
		return root.MkdirAll(name, 0o755)
	case tar.TypeReg:
		if err := root.MkdirAll(filepath.Dir(name), 0o755); err != nil {
			return err
		}

		out, err := root.OpenFile(
			name,
			os.O_CREATE|os.O_EXCL|os.O_WRONLY,
			os.FileMode(head.Mode).Perm()|0o600,
		)
		if err != nil {
			return err
		}

		_, err = io.CopyN(out, body, head.Size)

		return errors.Join(err, out.Close())

	default:
		return fmt.Errorf("type %q is not allowed", head.Typeflag)
	}
}
