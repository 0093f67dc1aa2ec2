// SPDX-License-Identifier: Apache-2.0

package main

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"time"
)

// buildArchives builds an archive of slipway for each platform, and of slipway-node for each of its own.
func (r *release) buildArchives(_ context.Context, work string) error {
	for _, p := range r.targets {
		files, err := r.archiveFiles(work, p)
		if err != nil {
			return err
		}

		if err := r.writeArchive(r.archiveName(programCLI, p), files); err != nil {
			return err
		}
	}

	for _, p := range agentPlatforms() {
		files := []file{
			{path: programAgent, mode: 0o755, source: r.programs[programKey(programAgent, p)]},
			{path: "LICENSE", mode: 0o644, source: filepath.Join(r.root, "LICENSE")},
		}
		if err := r.writeArchive(r.archiveName(programAgent, p), files); err != nil {
			return err
		}
	}

	return nil
}

// archiveName returns the name of an archive, such as slipway_1.2.3_linux_amd64.tar.gz.
func (r *release) archiveName(program string, p platform) string {
	return fmt.Sprintf("%s_%s_%s.tar.gz", program, r.version.number, p)
}

// archiveFiles returns the files of an archive of slipway.
func (r *release) archiveFiles(work string, p platform) ([]file, error) {
	files := r.programFiles(p, "")
	shared, err := r.sharedFiles("share/slipway/")
	if err != nil {
		return nil, err
	}

	completions, err := r.completionFiles("completions/slipway.bash", "completions/_slipway", "completions/slipway.fish")
	if err != nil {
		return nil, err
	}

	manual, err := r.manualFiles(work, "share/man/man1/")
	if err != nil {
		return nil, err
	}

	files = slices.Concat(files, shared, completions, manual)
	for _, name := range []string{"LICENSE", "README.md", "CHANGELOG.md"} {
		files = append(files, file{path: name, mode: 0o644, source: filepath.Join(r.root, name)})
	}

	return append(files, file{
		path: "kubectl_complete-slipway",
		mode: 0o755,
		body: []byte(kubectlCompletion),
	}), nil
}

// writeArchive writes a compressed archive to the output directory.
func (r *release) writeArchive(name string, files []file) error {
	return r.writeFile(name, func(w io.Writer) error {
		zip, err := gzip.NewWriterLevel(w, gzip.BestCompression)
		if err != nil {
			return err
		}

		return errors.Join(writeTar(zip, files, r.version.when), zip.Close())
	})
}

// writeFile creates a file of the release, and keeps its SHA-256.
func (r *release) writeFile(name string, write func(io.Writer) error) error {
	f, err := os.Create(filepath.Join(r.out, name))
	if err != nil {
		return err
	}

	sum := sha256.New()
	if err := errors.Join(write(io.MultiWriter(f, sum)), f.Close()); err != nil {
		return fmt.Errorf("write %s: %w", name, err)
	}

	r.files[name] = hex.EncodeToString(sum.Sum(nil))
	fmt.Fprintf(r.log, "packages: %s\n", name)

	return nil
}

// addFile keeps the SHA-256 of a file that another program wrote to the output directory.
func (r *release) addFile(name string) error {
	body, err := os.ReadFile(filepath.Join(r.out, name))
	if err != nil {
		return err
	}

	r.files[name] = sumOf(body)
	fmt.Fprintf(r.log, "packages: %s\n", name)

	return nil
}

func sumOf(body []byte) string {
	sum := sha256.Sum256(body)
	return hex.EncodeToString(sum[:])
}

// writeTar writes files, sorted and with their directories, owned by root and with one time.
func writeTar(w io.Writer, files []file, when time.Time) error {
	files = slices.Clone(files)
	sortFiles(files)
	out := tar.NewWriter(w)
	made := map[string]bool{".": true}

	for _, f := range files {
		if err := writeDirs(out, path.Dir(strings.TrimSuffix(f.path, "/")), when, made); err != nil {
			return err
		}

		made[strings.TrimSuffix(f.path, "/")] = f.mode.IsDir()

		if err := writeEntry(out, f, when); err != nil {
			return err
		}
	}

	return out.Close()
}

// writeDirs writes a directory and those above it, unless made has them.
func writeDirs(out *tar.Writer, dir string, when time.Time, made map[string]bool) error {
	if made[dir] {
		return nil
	}

	if err := writeDirs(out, path.Dir(dir), when, made); err != nil {
		return err
	}

	made[dir] = true

	return out.WriteHeader(&tar.Header{
		Typeflag: tar.TypeDir,
		Name:     dir + "/",
		Mode:     0o755,
		ModTime:  when,
	})
}

// writeEntry writes one file or symbolic link.
func writeEntry(out *tar.Writer, f file, when time.Time) error {
	header := &tar.Header{
		Typeflag: tar.TypeReg,
		Name:     f.path,
		Mode:     int64(f.mode.Perm()),
		ModTime:  when,
		Uid:      f.owner,
		Gid:      f.owner,
	}
	if f.mode&fs.ModeSticky != 0 {
		header.Mode |= 0o1000
	}

	if f.mode.IsDir() {
		header.Typeflag = tar.TypeDir
		return out.WriteHeader(header)
	}

	if f.link != "" {
		header.Typeflag = tar.TypeSymlink
		header.Linkname = f.link
		header.Mode = 0o777
		return out.WriteHeader(header)
	}

	body, err := f.read()
	if err != nil {
		return err
	}

	header.Size = int64(len(body))
	if err := out.WriteHeader(header); err != nil {
		return err
	}

	_, err = out.Write(body)

	return err
}

// read returns the content of a file.
func (f file) read() ([]byte, error) {
	if f.source == "" {
		return f.body, nil
	}

	return os.ReadFile(f.source)
}

// writeChecksums writes the SHA-256 of every file of the release, in the format of sha256sum.
func (r *release) writeChecksums() error {
	var b bytes.Buffer
	for _, name := range slices.Sorted(maps.Keys(r.files)) {
		fmt.Fprintf(&b, "%s  %s\n", r.files[name], name)
	}

	return os.WriteFile(filepath.Join(r.out, "checksums.txt"), b.Bytes(), 0o644)
}

// url returns the address of a released file.
func (r *release) url(name string) string {
	return strings.Join([]string{r.baseURL, "v" + r.version.number, name}, "/")
}
