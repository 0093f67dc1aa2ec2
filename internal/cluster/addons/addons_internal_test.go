// SPDX-License-Identifier: Apache-2.0

package addons

import (
	"strings"
	"testing"
)

// TestWarningsAreReportedOnce: client-go writes warnings into its own log otherwise, for each request again.
func TestWarningsAreReportedOnce(t *testing.T) {
	var got []string
	w := &warnings{notify: func(text string) { got = append(got, text) }}
	for _, text := range []string{"would violate PodSecurity", "would violate PodSecurity", "is deprecated", ""} {
		w.HandleWarningHeader(299, "-", text)
	}
	w.HandleWarningHeader(199, "-", "another code")
	if strings.Join(got, "|") != "would violate PodSecurity|is deprecated" {
		t.Errorf("got %q", got)
	}
}
