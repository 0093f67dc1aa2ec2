// SPDX-License-Identifier: Apache-2.0

package image

import (
	"strings"
	"testing"
	"testing/fstest"
)

func TestMirror(t *testing.T) {
	for _, tt := range []struct {
		name  string
		files map[string]string
		want  string
	}{
		{"one line a source", map[string]string{"sources.list": "# deb http://x.test/debian\ndeb [arch=amd64] https://a.test/debian/ bookworm main"}, "https://a.test/debian"},
		{"deb822", map[string]string{"sources.list.d/debian.sources": "Types: deb\nURIs: http://a.test/debian\nSuites: bookworm\n"}, "http://a.test/debian"},
		{"others are not Debian's", map[string]string{"sources.list.d/x.list": "deb https://apt.test/ubuntu noble main\ndeb http://s.test/debian-security x main"}, ""},
		{"none", nil, ""},
	} {
		t.Run(tt.name, func(t *testing.T) {
			apt := fstest.MapFS{}
			for name, text := range tt.files {
				apt[name] = &fstest.MapFile{Data: []byte(text)}
			}
			if got := findMirror(apt); got != tt.want {
				t.Errorf("mirror %q, want %q", got, tt.want)
			}
		})
	}
}

func FuzzDebianMirror(f *testing.F) {
	f.Add("deb [arch=amd64] https://a.test/debian/ bookworm main")
	f.Add("URIs: http://a.test/debian")
	f.Fuzz(func(t *testing.T, sources string) {
		if uri := parseDebianMirror(sources); uri != "" && (!strings.HasPrefix(uri, "http") || strings.ContainsAny(uri, " \t\n#")) {
			t.Errorf("%q: took %q for a mirror", sources, uri)
		}
	})
}
