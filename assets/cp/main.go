// SPDX-License-Identifier: Apache-2.0

// Command cp copies one file, as coreutils' cp -f does: the init containers of flannel put their plugin and its configuration on the machine with it.
// It does not know any other option of cp.
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
	if err := replace(names[0], names[1]); err != nil {
		fmt.Fprintln(os.Stderr, "cp:", err)
		os.Exit(1)
	}
}

// replace puts a copy in target's place with one rename, so that a program that runs from target is not disturbed.
func replace(source, target string) (err error) {
	if info, statErr := os.Stat(target); statErr == nil && info.IsDir() {
		target = filepath.Join(target, filepath.Base(source))
	}
	in, err := os.Open(source)
	if err != nil {
		return err
	}
	defer in.Close()
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
