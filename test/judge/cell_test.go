// SPDX-License-Identifier: Apache-2.0

package judge_test

import "testing"

// reportVerdict prints the verdict of a judge about an output of a topology when t ends.
// hack/testsum collects these lines in a table.
func reportVerdict(t *testing.T, topology, output, judge string) {
	t.Helper()
	t.Cleanup(func() {
		verdict := "ok"
		switch {
		case t.Failed():
			verdict = "FAILED"
		case t.Skipped():
			verdict = "skipped"
		}
		t.Logf("CELL %s %s %s %s", topology, output, judge, verdict)
	})
}
