// SPDX-License-Identifier: Apache-2.0

package destroy

import (
	"testing"

	"github.com/slipway-k8s/slipway/internal/lib/store"
)

// TestFindOtherOwner: the machine store of another cluster of the same name is recognized by its node documents.
func TestFindOtherOwner(t *testing.T) {
	s := store.NewFileStore(t.TempDir())
	for key, body := range map[string]string{
		"own":     `{"clusterID":"aaaaaaaaaaaaaaaa"}`,
		"earlier": `{"cluster":"demo"}`,
		"broken":  `{"clusterID":`,
		"other":   `{"clusterID":"bbbbbbbbbbbbbbbb"}`,
	} {
		if _, err := s.Put(t.Context(), key, []byte(body)); err != nil {
			t.Fatal(err)
		}
	}

	for _, c := range []struct {
		name      string
		documents []string
		id, want  string
	}{
		{"never published", nil, "aaaaaaaaaaaaaaaa", ""},
		{"its own", []string{"own", "earlier", "broken"}, "aaaaaaaaaaaaaaaa", ""},
		{"another's", []string{"other"}, "aaaaaaaaaaaaaaaa", "bbbbbbbbbbbbbbbb"},
		{"both have written", []string{"own", "other"}, "aaaaaaaaaaaaaaaa", "bbbbbbbbbbbbbbbb"},
		{"of a cluster that never applied with an id", []string{"other"}, "", "bbbbbbbbbbbbbbbb"},
	} {
		t.Run(c.name, func(t *testing.T) {
			got, err := findOtherOwner(t.Context(), s, c.documents, c.id)
			if err != nil || got != c.want {
				t.Errorf("got %q, %v, want %q", got, err, c.want)
			}
		})
	}

	if _, err := findOtherOwner(t.Context(), s, []string{"gone"}, ""); err == nil {
		t.Error("an object that cannot be read is not an error")
	}
}
