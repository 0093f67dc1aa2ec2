// SPDX-License-Identifier: Apache-2.0

package diag_test

import (
	"errors"
	"fmt"
	"io/fs"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/slipway-k8s/slipway/internal/lib/diag"
)

func TestFindings(t *testing.T) {
	var list diag.Findings
	if list.Err() != nil {
		t.Error("an empty list is an error")
	}
	list.Warnf("a", "", "", "is odd")
	if list.Err() != nil {
		t.Error("a warning is an error")
	}
	list.Errorf("b.c[0]", "x y", "use z", "is not %d", 3)
	if got, want := list.Err().Error(), `b.c[0] "x y": is not 3 (use z)`; got != want {
		t.Errorf("got %s, want %s", got, want)
	}
	list.Errorf("d", "", "", "is missing")
	want := "2 errors:\n  b.c[0] \"x y\": is not 3 (use z)\n  d: is missing"
	if got := list.Err().Error(); got != want {
		t.Errorf("got %s, want %s", got, want)
	}
}

func TestHints(t *testing.T) {
	if diag.WithHint(nil, "x") != nil {
		t.Error("a hint without an error is an error")
	}
	err := diag.WithHint(fmt.Errorf("outer: %w", diag.WithHint(fs.ErrNotExist, "inner hint")), "outer hint")
	if diff := cmp.Diff([]string{"outer hint", "inner hint"}, diag.Hints(fmt.Errorf("top: %w", err))); diff != "" {
		t.Error(diff)
	}
	if !errors.Is(err, fs.ErrNotExist) || err.Error() != "outer: file does not exist" {
		t.Errorf("the hint hides the error: %v", err)
	}
}

func TestNearest(t *testing.T) {
	names := []string{"podCIDR", "networkCIDR", "subnets", "cni"}
	for given, want := range map[string]string{
		"podCDIR": "podCIDR", "podcidr": "podCIDR", "subnet": "subnets", "networkCidr": "networkCIDR",
		"x": "", "": "", "entirelyElse": "", "cnni": "cni",
	} {
		if got := diag.Nearest(given, names); got != want {
			t.Errorf("%q: got %q, want %q", given, got, want)
		}
	}
}
