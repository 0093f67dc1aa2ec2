// SPDX-License-Identifier: Apache-2.0

package nft

import (
	"bytes"
	"crypto/sha256"
	"debug/elf"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"
)

// fileTree is the mounted file tree of an image.
type fileTree struct{ root *os.Root }

func openTree(dir string) (fileTree, error) {
	root, err := os.OpenRoot(dir)
	if err != nil {
		return fileTree{}, fmt.Errorf("open the mounted image: %w", err)
	}

	return fileTree{root}, nil
}

func (t fileTree) close() { _ = t.root.Close() } // only read

// open opens the first of some files that exists, and returns its name too. Links are those of the image: also absolute ones
// stay in it.
func (t fileTree) open(names ...string) (*os.File, string, error) {
	for _, name := range names {
		resolved, err := t.resolve(name)
		if err == nil {
			var file *os.File
			if file, err = t.root.Open(resolved); err == nil {
				return file, name, nil
			}
		}

		if !errors.Is(err, fs.ErrNotExist) {
			return nil, "", fmt.Errorf("open %s in the image: %w", name, err)
		}
	}

	return nil, "", fmt.Errorf("the image has none of %q", names)
}

// maxLinks is how many links a path may have, as in Linux.
const maxLinks = 40

// resolve returns the path of a file without links, relative to the root. An [os.Root] follows no absolute links, and container
// images have some.
func (t fileTree) resolve(name string) (string, error) {
	done := "."
	rest := strings.Split(path.Clean("/" + name)[1:], "/")

	for links := 0; len(rest) > 0; {
		next := path.Join("/", done, rest[0])[1:] // ".." of the root is the root
		rest = rest[1:]
		if next == "" {
			done = "."
			continue
		}

		info, err := t.root.Lstat(next)
		if err != nil {
			return "", err
		}

		if info.Mode()&fs.ModeSymlink == 0 {
			done = next
			continue
		}

		target, err := t.root.Readlink(next)
		if err != nil {
			return "", err
		}

		if links++; links > maxLinks {
			return "", errors.New("too many links")
		}

		if path.IsAbs(target) {
			done = "."
		}

		rest = append(strings.Split(strings.Trim(target, "/"), "/"), rest...)
	}

	return done, nil
}

// copyProgram copies nft, its dynamic loader and its libraries to one directory.
func (t fileTree) copyProgram(to string) (contents, error) {
	copied := contents{Files: map[string]string{}}
	main, err := t.copyFile(fileCopy{
		to:   filepath.Join(to, program),
		from: []string{"/usr/sbin/nft", "/sbin/nft", "/usr/bin/nft", "/usr/local/sbin/nft"},
	})
	if err != nil {
		return copied, err
	}

	if main.loader == "" {
		return copied, errors.New("nft in the image names no dynamic loader")
	}

	copied.Loader = path.Base(main.loader)
	copied.Files[program] = main.hash
	missing := append([]string{copied.Loader}, main.libraries...)

	for len(missing) > 0 {
		name := missing[0]
		missing = missing[1:]
		if copied.Files[name] != "" {
			continue
		}

		if path.Base(name) != name || name == program {
			return copied, fmt.Errorf("library %q of nft in the image is not a name", name)
		}

		from := libraryPaths(main.machine, name)
		if name == copied.Loader {
			from = append([]string{main.loader, "/usr" + main.loader}, from...)
		}

		library, err := t.copyFile(fileCopy{to: filepath.Join(to, name), from: from})
		if err != nil {
			return copied, err
		}

		copied.Files[name] = library.hash
		missing = append(missing, library.libraries...)
	}

	return copied, nil
}

// libraryPaths returns where an image may have a library, as Debian and others place them.
func libraryPaths(machine elf.Machine, name string) []string {
	var out []string
	if triplet := debianTriplet(machine); triplet != "" {
		out = append(out, "/lib/"+triplet+"/"+name, "/usr/lib/"+triplet+"/"+name)
	}

	for _, dir := range []string{"/lib/", "/usr/lib/", "/lib64/", "/usr/lib64/", "/usr/local/lib/"} {
		out = append(out, dir+name)
	}

	return out
}

// debianTriplet returns the name of Debian's directory for the libraries of a machine.
func debianTriplet(machine elf.Machine) string {
	return map[elf.Machine]string{
		elf.EM_X86_64:  "x86_64-linux-gnu",
		elf.EM_AARCH64: "aarch64-linux-gnu",
	}[machine]
}

// fileCopy says what is copied: the first file that exists.
type fileCopy struct {
	from []string
	to   string
}

// object is a program or a library.
type object struct {
	// hash is its SHA-256 in hex.
	hash string
	// loader is the path of the dynamic loader of a program.
	loader string
	// libraries are the names of those that it needs itself.
	libraries []string
	machine   elf.Machine
}

func (t fileTree) copyFile(c fileCopy) (object, error) {
	in, name, err := t.open(c.from...)
	if err != nil {
		return object{}, err
	}

	defer func() { _ = in.Close() }() // only read
	out, err := os.OpenFile(c.to, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o755)
	if err != nil {
		return object{}, fmt.Errorf("copy %s: %w", name, err)
	}

	hash := sha256.New()
	size, err := io.Copy(io.MultiWriter(out, hash), io.LimitReader(in, maxFileBytes+1))
	if err := errors.Join(err, out.Close()); err != nil {
		return object{}, fmt.Errorf("copy %s: %w", name, err)
	}

	if size > maxFileBytes {
		return object{}, fmt.Errorf("copy %s: it has more than %d bytes", name, maxFileBytes)
	}

	o, err := readObject(in)
	if err != nil {
		return object{}, fmt.Errorf("read %s of the image: %w", name, err)
	}

	o.hash = hex.EncodeToString(hash.Sum(nil))

	return o, nil
}

// readObject reads what a program or a library needs.
func readObject(in io.ReaderAt) (object, error) {
	file, err := elf.NewFile(in)
	if err != nil {
		return object{}, err
	}

	libraries, err := file.ImportedLibraries()
	if err != nil {
		return object{}, err
	}

	o := object{libraries: libraries, machine: file.Machine}
	for _, part := range file.Progs {
		if part.Type != elf.PT_INTERP {
			continue
		}

		name, err := io.ReadAll(io.LimitReader(part.Open(), unix.PathMax))
		if err != nil {
			return object{}, err
		}

		o.loader = string(bytes.TrimRight(name, "\x00"))
	}

	return o, nil
}
