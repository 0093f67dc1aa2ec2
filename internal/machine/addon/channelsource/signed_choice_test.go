// SPDX-License-Identifier: Apache-2.0

package channelsource_test

import (
	"testing"
)

// TestServersChooseAmongSigned: a signature says that a revision is its signer's, and not that it is the newest one, or the one
// of this branch or tag. So whoever answers chooses among all that the given keys have ever signed, and nothing else;
// docs/security.md says so.
func TestServersChooseAmongSigned(t *testing.T) {
	t.Parallel()
	g := startGit(t)
	older := g.commit("good", map[string]string{"channel.yaml": "older"})
	newest := g.commit("good", map[string]string{"channel.yaml": "newest"})
	g.run("git", "checkout", "-q", "-b", "development")
	other := g.commit("good", map[string]string{"channel.yaml": "development"})
	stranger := g.commit("stranger", map[string]string{"channel.yaml": "stranger"})
	for _, id := range []string{newest, older, other, newest} {
		g.run("git", "update-ref", "refs/heads/main", id)
		if got, err := g.fetcher.Fetch(t.Context(), g.source, ""); err != nil || got.ID != id {
			t.Errorf("commit %s: %s, %v", id, got.ID, err)
		}
	}

	g.run("git", "update-ref", "refs/heads/main", stranger)
	checkRefused(t, g.fetcher, g.source, stranger, "no given key has made the signature")

	f := startRegistry(t)
	first := f.push("stable", "", map[string]string{"channel.yaml": "first"})
	f.sign(first, f.key)
	second := f.push("stable", "", map[string]string{"channel.yaml": "second"})
	f.sign(second, f.key)
	if got, err := f.fetcher.Fetch(t.Context(), f.source(":stable"), ""); err != nil || got.ID != second {
		t.Errorf("the newest artifact: %s, %v", got.ID, err)
	}

	if again := f.push("stable", "", map[string]string{"channel.yaml": "first"}); again != first {
		t.Fatalf("the artifact is %s and not %s", again, first)
	}

	if got, err := f.fetcher.Fetch(t.Context(), f.source(":stable"), second); err != nil || got.ID != first {
		t.Errorf("an earlier artifact: %s, %v", got.ID, err)
	}
}
