// SPDX-License-Identifier: Apache-2.0

package suite_test

import (
	"reflect"
	"strings"
	"testing"

	"github.com/slipway-k8s/slipway/test/moto/suite"
)

// TestList checks the format of the list that TestMotoSuite runs: it needs no moto.
func TestList(t *testing.T) {
	t.Parallel()
	list := readList(t)
	count := suite.Count(list)
	if count[suite.Pass] < 500 {
		t.Errorf("%d tests pass: the list was cut", count[suite.Pass])
	}

	services := map[string]int{}
	for _, entry := range list {
		folder, _, _ := strings.Cut(entry.ID, "/")
		if entry.Verdict == suite.Pass {
			services[strings.TrimPrefix(folder, "test_")]++
		}
	}

	for name := range strings.FieldsSeq("autoscaling cloudformation ec2 elbv2 iam kms route53 s3 ssm sts") {
		if services[name] == 0 {
			t.Errorf("no test of %s passes", name)
		}
	}
}

func TestParseList(t *testing.T) {
	t.Parallel()

	for text, want := range map[string]string{
		"pass test_a/test_b.py::test_c":                                           "",
		"# a comment\n\npass test_a/test_b.py::test_c[x y]\n":                     "",
		"not-offered test_a/test_b.py::test_c -- CreateFleet":                     "",
		"fine test_a/test_b.py::test_c":                                           `line 1: invalid verdict "fine"`,
		"pass test_a/test_b.py::test_c -- why":                                    "passes and has a reason",
		"moto-specific test_a/test_b.py::test_c":                                  "has no reason",
		"pass a.py":                                                               "invalid ID",
		"pass test_b.py::test_d\npass test_b.py::test_c":                          "line 2: test_b.py::test_c does not sort after test_b.py::test_d",
		"pass test_b.py::test_c\ndiffers test_b.py::test_c -- the same once more": "does not sort after",
	} {
		_, err := suite.ParseList(strings.NewReader(text))
		if (err == nil) != (want == "") || err != nil && !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v, want %q", text, err, want)
		}
	}
}

func TestCompare(t *testing.T) {
	t.Parallel()
	list := []suite.Entry{
		{Verdict: suite.Pass, ID: "good"},
		{Verdict: suite.Pass, ID: "bad"},
		{Verdict: suite.Pass, ID: "cleanup"},
		{Verdict: suite.Pass, ID: "skipped"},
		{Verdict: suite.Pass, ID: "gone"},
		{Verdict: suite.NotOffered, ID: "refused", Reason: "r"},
		{Verdict: suite.NotOffered, ID: "works", Reason: "r"},
		{Verdict: suite.MotoSpecific, ID: "left out", Reason: "r"},
	}
	results := []suite.Result{
		{ID: "good", Outcome: suite.Passed},
		{ID: "bad", Outcome: suite.Failed, Text: "why"},
		{ID: "cleanup", Outcome: suite.Passed},
		{ID: "cleanup", Outcome: suite.Failed, When: "teardown"},
		{ID: "skipped", Outcome: suite.Skipped},
		{ID: "refused", Outcome: suite.Failed},
		{ID: "works", Outcome: suite.Passed},
		{ID: "left out", Outcome: suite.Skipped},
	}

	var got []string
	for _, mismatch := range suite.Compare(list, results) {
		got = append(got, mismatch.ID)
	}

	if want := []string{"bad", "cleanup", "skipped", "gone", "works"}; !reflect.DeepEqual(got, want) {
		t.Errorf("got %v, want %v", got, want)
	}
}
