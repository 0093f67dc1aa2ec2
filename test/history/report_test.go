// SPDX-License-Identifier: Apache-2.0

package history_test

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/slipway-k8s/slipway/test/history"
)

// TestReport: a report has one line a kind, and replaces only its own part of a document.
func TestReport(t *testing.T) {
	t.Parallel()

	const second = time.Second
	report := history.Report(history.Counts{Operations: 9, Acknowledged: 4, Unanswered: 1}, []history.Fault{
		{Kind: "kill", Gap: second, Healing: 2 * second},
		{Kind: "pause", Gap: 3 * second, Healing: 9 * second},
		{Kind: "kill", Gap: 5 * second, Healing: second},
		{Kind: "kill", Gap: 2 * second, Healing: second},
	}, nil)
	want := `9 operations, 4 acknowledged writes, 1 without an answer, 4 faults: the history is linearizable.

| fault | faults | longest time without an acknowledged write | median of these times | healthy again after, at most |
|---|---|---|---|---|
| kill | 3 | 5.0 s | 2.0 s | 2 s |
| pause | 1 | 3.0 s | 3.0 s | 9 s |
`
	if diff := cmp.Diff(want, report); diff != "" {
		t.Error(diff)
	}

	unchecked := history.Report(history.Counts{}, nil, errors.New("unknown"))
	if want := "0 faults: the history was not shown to be linearizable.\n"; !strings.Contains(unchecked, want) {
		t.Errorf("%q lacks %q", unchecked, want)
	}

	file := filepath.Join(t.TempDir(), "report.md")
	for _, c := range []struct{ before, want string }{
		{"", "<!-- r: generated -->\n" + report + "<!-- end of r -->\n"},
		{"# A\n", "# A\n<!-- r: generated -->\n" + report + "<!-- end of r -->\n"},
		{"# A\n\n<!-- r: generated -->\nold\n<!-- end of r -->\n\n# B\n", "# A\n\n<!-- r: generated -->\n" + report + "<!-- end of r -->\n\n# B\n"},
	} {
		if err := os.WriteFile(file, []byte(c.before), 0o600); err != nil {
			t.Fatal(err)
		}

		if err := history.WriteReport(file, "r", report); err != nil {
			t.Fatal(err)
		}

		if body, err := os.ReadFile(file); err != nil || string(body) != c.want {
			t.Errorf("%s, %v", cmp.Diff(c.want, string(body)), err)
		}
	}
}
