// SPDX-License-Identifier: Apache-2.0

package build //nolint:testpackage // archives are an inner part of the package

import (
	"archive/tar"
	"bytes"
	"errors"
	"fmt"
	"io"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestATarIsSortedAndHasNoTimes(t *testing.T) {
	entries := []archiveEntry{
		{name: "usr/bin/b", data: []byte("b"), mode: 0o755},
		{name: "tmp", dir: true, mode: 0o1777},
		{name: "usr/bin/a", linkTarget: "b", mode: 0o777},
	}
	one, err := buildTarball(entries)
	if err != nil {
		t.Fatal(err)
	}
	other, err := buildTarball([]archiveEntry{entries[2], entries[0], entries[1]})
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(one, other) {
		t.Error("the order of entries changes the bytes")
	}
	var lines []string
	for r := tar.NewReader(bytes.NewReader(one)); ; {
		h, err := r.Next()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			t.Fatal(err)
		}
		lines = append(lines, fmt.Sprintf("%s %o %d %q", h.Name, h.Mode, h.ModTime.Unix(), h.Linkname))
	}
	want := []string{`tmp/ 1777 0 ""`, `usr/ 755 0 ""`, `usr/bin/ 755 0 ""`, `usr/bin/a 777 0 "b"`, `usr/bin/b 755 0 ""`}
	if diff := cmp.Diff(want, lines); diff != "" {
		t.Error(diff)
	}
}
