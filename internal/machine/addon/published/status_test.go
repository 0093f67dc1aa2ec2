// SPDX-License-Identifier: Apache-2.0

package published_test

import (
	"strconv"
	"testing"
	"time"

	"github.com/slipway-k8s/slipway/internal/machine/addon/published"
)

// TestAccept: a source that goes back to an older revision is noticed until it continues.
func TestAccept(t *testing.T) {
	t.Parallel()
	at := func(day int) time.Time {
		if day == 0 {
			return time.Time{}
		}

		return time.Date(2026, 1, day, 0, 0, 0, 0, time.UTC)
	}

	for _, steps := range [][]struct {
		revision string
		created  int // day; zero: the revision does not say
		from     string
	}{
		{{"a", 1, ""}, {"b", 2, ""}, {"a", 1, "b"}, {"a", 1, "b"}, {"b", 2, ""}, {"c", 1, "b"}, {"d", 3, ""}},
		{{"a", 0, ""}, {"b", 0, ""}, {"a", 0, "b"}, {"c", 0, ""}},
		{{"a", 1, ""}, {"b", 0, ""}, {"a", 1, "b"}},
		{{"a", 1, ""}, {"b", 1, ""}},
	} {
		s := published.SourceStatus{Error: "refused"}
		for n, step := range steps {
			s = s.Accept(step.revision, at(step.created), at(20+n))
			if s.RolledBackFrom != step.from || s.Revision != step.revision || s.Error != "" || !s.CheckedAt.Equal(at(20+n)) {
				t.Errorf("step %d of %+v: %+v", n, steps, s)
			}
		}
	}

	var s published.SourceStatus
	for n := range 20 {
		s = s.Accept(strconv.Itoa(n), time.Time{}, at(n+1))
	}

	if len(s.Former) != 10 || s.Former[0].Revision != "18" || !s.AcceptedAt.Equal(at(20)) {
		t.Errorf("got %+v", s)
	}
}

func TestIsFixed(t *testing.T) {
	t.Parallel()
	for want, sources := range map[bool][]published.Source{
		true: {
			{OCI: "oci://a/b:c", PublicKeys: []string{"x"}},
			{OCI: "oci://a/b@sha256:0"},
			{Git: "https://a/b", PublicKeys: []string{"x"}},
		},
		false: {{OCI: "oci://a/b:c"}, {Git: "https://a/b"}},
	} {
		for _, s := range sources {
			if s.IsFixed() != want {
				t.Errorf("%s: want %t", s, want)
			}
		}
	}
}

func TestStatusEqual(t *testing.T) {
	t.Parallel()
	status := func(s *published.SourceStatus) published.Status { return published.Status{Serial: 1, Source: s} }
	one := published.SourceStatus{Revision: "a", Former: []published.FormerRevision{{Revision: "b"}}}
	same := one
	same.Former = []published.FormerRevision{{Revision: "b"}}
	other := one
	other.Former = nil

	for want, pairs := range map[bool][][2]published.Status{
		true:  {{status(nil), status(nil)}, {status(&one), status(&same)}},
		false: {{status(nil), status(&one)}, {status(&one), status(nil)}, {status(&one), status(&other)}, {status(nil), {Serial: 2}}},
	} {
		for _, pair := range pairs {
			if pair[0].Equal(pair[1]) != want {
				t.Errorf("%+v and %+v: want %t", pair[0], pair[1], want)
			}
		}
	}
}
