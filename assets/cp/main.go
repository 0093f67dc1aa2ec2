// SPDX-License-Identifier: Apache-2.0

// Command cp copies one file like cp -f of coreutils. The init containers of flannel install their
// CNI plugin and its configuration with it. It has no other options of cp.
package main

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
)

func main() {
	var names []string
	for _, arg := range os.Args[1:] {
		if !strings.HasPrefix(arg, "-") {
			names = append(names, arg)
		} else if arg != "-f" && arg != "--" {
			fmt.Fprintf(os.Stderr, "cp: unknown option %s\n", arg)
			os.Exit(2)
		}
	}

	if len(names) != 2 {
		fmt.Fprintln(os.Stderr, "usage: cp [-f] SOURCE TARGET")
		os.Exit(2)
	}

	if err := replaceFile(names[0], names[1]); err != nil {
		fmt.Fprintln(os.Stderr, "cp:", err)
		os.Exit(1)
	}
}

// replaceFile replaces target by a copy of source with a rename, so that a program that runs from
// target keeps its file.
func replaceFile(source, target string) (err error) {
	if info, statErr := os.Stat(target); statErr == nil && info.IsDir() {
		target = filepath.Join(target, filepath.Base(source))
	}

	in, err := os.Open(source)
	if err != nil {
		return err
	}

	defer func() { _ = in.Close() }()
	info, err := in.Stat()
	if err != nil {
		return err
	}

	out, err := os.CreateTemp(filepath.Dir(target), ".cp-*")
	if err != nil {
		return err
	}

	_, copyErr := io.Copy(out, in)
	if err := errors.Join(copyErr, out.Chmod(info.Mode().Perm()), out.Close()); err != nil {
		return errors.Join(err, os.Remove(out.Name()))
	}

	return os.Rename(out.Name(), target)
}
