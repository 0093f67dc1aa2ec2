// SPDX-License-Identifier: Apache-2.0

package channelsource

import (
	"bytes"
	"testing"
)

// FuzzReadPack: whatever a server sends, a pack ends with an error or with objects that the limits allow.
func FuzzReadPack(f *testing.F) {
	const object = "\x30\x78\x9c\x03\x00\x00\x00\x00\x01" // an empty file
	f.Add([]byte("PACK\x00\x00\x00\x02\x00\x00\x00\x01" + object))
	f.Fuzz(func(t *testing.T, pack []byte) {
		objects, err := readPack(t.Context(), bytes.NewReader(pack))
		size := 0
		for id, o := range objects {
			size += len(o.text)
			if len(id) != 2*gitHashBytes {
				t.Errorf("id %s", id)
			}
		}

		if err == nil && size > maxPackBytes {
			t.Errorf("%d bytes", size)
		}
	})
}

// FuzzReadArchive: whatever a registry sends, an archive ends with an error or with files that the limits allow.
func FuzzReadArchive(f *testing.F) {
	f.Add([]byte{0x1f, 0x8b})
	f.Fuzz(func(t *testing.T, archive []byte) {
		files, err := readArchive(archive)
		if err == nil && len(files) > maxFiles {
			t.Errorf("%d files", len(files))
		}
	})
}

// FuzzParseCommit: what is signed has no signature in it.
func FuzzParseCommit(f *testing.F) {
	f.Add([]byte("tree a\ncommitter A <a> 1 +0000\ngpgsig x\n y\n\nmessage\n"))
	f.Fuzz(func(t *testing.T, text []byte) {
		parsed, err := parseCommit(text)
		if err == nil && len(parsed.signed) > len(text) {
			t.Errorf("%q", parsed.signed)
		}
	})
}
