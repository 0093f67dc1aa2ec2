// SPDX-License-Identifier: Apache-2.0

package permissions

import (
	"encoding/json"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/slipway-k8s/slipway/internal/infra/iampolicy"
)

// TestFormerStatementsGo: the boundaries in testdata are recorded: earlier versions of Slipway have created them. What they
// have and this version does not need is dropped, so that the boundary does not allow it for ever and has room for what an
// administrator adds. Statements of others stay, also one with the Sid of a former one.
func TestFormerStatementsGo(t *testing.T) {
	at := iampolicy.StoreLocation{Bucket: "slipway-test", Prefix: "team"}
	in := iampolicy.Input{Partition: "aws", Account: "123456789012", Stores: []iampolicy.StoreLocation{at}}
	own, err := buildBoundaryDocument(in)
	if err != nil {
		t.Fatal(err)
	}

	files, err := filepath.Glob("testdata/boundary-*.json")
	if err != nil || len(files) < 4 {
		t.Fatalf("%d recorded boundaries: %v", len(files), err)
	}

	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}

		var older BoundaryDocument
		if err := json.Unmarshal(text, &older); err != nil {
			t.Fatal(err)
		}

		older.Statement = append(
			older.Statement,
			map[string]any{"Sid": "Queue", "Effect": "Allow", "Action": "sqs:SendMessage", "Resource": "*"},
			map[string]any{"Sid": "Signal", "Effect": "Allow", "Action": "sns:Publish", "Resource": "*"},
			map[string]any{"Sid": "Sessions", "Effect": "Deny", "Action": "ssm:UpdateInstanceInformation", "Resource": "*"},
		)
		merged := merge(t, in, older)
		if want := []string{"Queue", "Signal", "Sessions"}; !slices.Equal(merged.Added, want) {
			t.Errorf("%s: %q were added, want %q", file, merged.Added, want)
		}

		if n := len(own.Statement) + len(merged.Added); len(merged.Document.Statement) != n {
			t.Errorf("%s: %d statements, want %d", file, len(merged.Document.Statement), n)
		}

		if merged.State != BoundaryOutdated {
			t.Errorf("%s: %s", file, merged.State)
		}

		if again := merge(t, in, merged.Document); again.State != BoundaryCurrent {
			t.Errorf("%s: the merged boundary is %s: %q", file, again.State, again.Outdated)
		}
	}
}

// TestOnlyFormerStatementsAreLeft: a boundary that has all that this version needs, and a former statement, is outdated: it
// allows what no machine needs.
func TestOnlyFormerStatementsAreLeft(t *testing.T) {
	at := iampolicy.StoreLocation{Bucket: "slipway-test"}
	in := iampolicy.Input{Partition: "aws", Account: "123456789012", Stores: []iampolicy.StoreLocation{at}}
	document, err := buildBoundaryDocument(in)
	if err != nil {
		t.Fatal(err)
	}

	document.Statement = append(document.Statement, map[string]any{
		"Sid":      "Signal",
		"Effect":   "Allow",
		"Action":   "cloudformation:SignalResource",
		"Resource": "arn:aws:cloudformation:*:123456789012:stack/*",
	})
	merged := merge(t, in, document)
	if merged.State != BoundaryOutdated || !slices.Equal(merged.Outdated, []string{"Signal"}) || len(merged.Added) > 0 {
		t.Errorf("%s: outdated %q, added %q", merged.State, merged.Outdated, merged.Added)
	}
}

// merge merges a boundary in AWS with the one that this version needs.
func merge(t *testing.T, in iampolicy.Input, have BoundaryDocument) Boundary {
	t.Helper()
	own, err := buildBoundaryDocument(in)
	if err != nil {
		t.Fatal(err)
	}

	text, err := json.Marshal(have)
	if err != nil {
		t.Fatal(err)
	}

	merged, err := mergeBoundary(own, string(text), in.Stores[0])
	if err != nil {
		t.Fatal(err)
	}

	return merged
}
