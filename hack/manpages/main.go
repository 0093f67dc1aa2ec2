// SPDX-License-Identifier: Apache-2.0

// Command manpages writes the man pages of slipway, one per command, into the directory that its
// argument names. They come from the same help texts as docs/cli. The date in the pages is
// SOURCE_DATE_EPOCH if it is set, so that packages are reproducible.
package main

import (
	"errors"
	"fmt"
	"os"
	"strconv"
	"time"

	"github.com/spf13/cobra/doc"

	"github.com/slipway-k8s/slipway/internal/cli"
)

//nolint:forbidigo // the only function that uses the process, as in cmd/
func main() {
	if err := run(os.Args[1:], os.Getenv, time.Now); err != nil {
		fmt.Fprintln(os.Stderr, "manpages:", err)
		os.Exit(1)
	}
}

func run(args []string, getenv func(string) string, now func() time.Time) error {
	if len(args) != 1 {
		return errors.New("usage: go run ./hack/manpages DIRECTORY")
	}

	date := now().UTC()
	if epoch := getenv("SOURCE_DATE_EPOCH"); epoch != "" {
		seconds, err := strconv.ParseInt(epoch, 10, 64)
		if err != nil {
			return fmt.Errorf("SOURCE_DATE_EPOCH=%s is not a number of seconds", epoch)
		}

		date = time.Unix(seconds, 0).UTC()
	}

	return writePages(args[0], date)
}

// writePages writes the pages of section 1 into dir, which it creates if needed.
func writePages(dir string, date time.Time) error {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return fmt.Errorf("create the directory of the man pages: %w", err)
	}

	root := cli.ManualRoot(cli.Env{})
	header := &doc.GenManHeader{
		Section: "1",
		Source:  "slipway " + root.Version,
		Manual:  "Slipway",
		Date:    &date,
	}

	return doc.GenManTree(root, header, dir)
}
