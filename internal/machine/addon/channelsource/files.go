// SPDX-License-Identifier: Apache-2.0

package channelsource

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"path"
	"strings"
)

// Files are the files of a revision by their paths, such as tools/service.yaml.
type Files map[string][]byte

// below returns the files below a directory, by their paths in it.
func (f Files) below(directory string) Files {
	if f == nil || directory == "" {
		return f
	}

	out := Files{}
	for name, text := range f {
		if inside, found := strings.CutPrefix(name, directory+"/"); found {
			out[inside] = text
		}
	}

	return out
}

// treeBuilder collects files up to the limits.
type treeBuilder struct {
	files   Files
	bytes   int64
	entries int // of the directories of a Git repository that were read
}

// add adds a file, which is read from a reader.
func (b *treeBuilder) add(name string, from io.Reader) error {
	if !fs.ValidPath(name) || name == "." {
		return fmt.Errorf("it has the file %q, whose path is not one below its root", name)
	}

	if len(b.files) == maxFiles {
		return fmt.Errorf("it has more than %d files", maxFiles)
	}

	text, err := io.ReadAll(io.LimitReader(from, maxTreeBytes-b.bytes+1))
	if err != nil {
		return fmt.Errorf("read its file %s: %w", name, err)
	}

	b.bytes += int64(len(text))
	if b.bytes > maxTreeBytes {
		return fmt.Errorf("its files have more than %d bytes", maxTreeBytes)
	}

	if b.files == nil {
		b.files = Files{}
	}

	if _, twice := b.files[name]; twice {
		return fmt.Errorf("it has the file %s twice", name)
	}

	b.files[name] = text

	return nil
}

// readArchive returns the files of a compressed archive. What is neither a file nor a directory is
// refused.
func readArchive(archive []byte) (Files, error) {
	unpacked, err := gzip.NewReader(bytes.NewReader(archive))
	if err != nil {
		return nil, errors.New("its archive is not compressed with gzip")
	}

	// Headers count, too: an archive of empty files could have any size.
	reader := tar.NewReader(io.LimitReader(unpacked, maxTreeBytes+maxFiles*maxHeaderBytes))
	var builder treeBuilder

	for {
		header, err := reader.Next()
		if errors.Is(err, io.EOF) {
			return builder.files, nil
		}

		if err != nil {
			return nil, fmt.Errorf("read its archive: %w", err)
		}

		switch header.Typeflag {
		case tar.TypeDir, tar.TypeXGlobalHeader:
			continue
		case tar.TypeReg:
		default:
			return nil, fmt.Errorf("its archive has %q, which is neither a file nor a directory", header.Name)
		}

		if err := builder.add(path.Clean(header.Name), reader); err != nil {
			return nil, err
		}
	}
}

// maxHeaderBytes is the size of the headers of a file with a long path.
const maxHeaderBytes = 4 << 10
