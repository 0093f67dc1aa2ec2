// SPDX-License-Identifier: Apache-2.0

package driver

import (
	"fmt"
	"testing"
)

// TestUnlistedIDsAreFew: the error of a large cluster was a list of hundreds of ids.
func TestUnlistedIDsAreFew(t *testing.T) {
	unlisted := map[unlistedResource]bool{}
	for n := range 12 {
		unlisted[unlistedResource{"subnet", fmt.Sprintf("subnet-%02d", n)}] = true
	}
	want := "subnet-00, subnet-01, subnet-02, subnet-03, subnet-04, subnet-05, subnet-06, subnet-07, subnet-08, subnet-09, and 2 more"
	if got := joinUnlistedIDs(unlisted); got != want {
		t.Errorf("got %s", got)
	}
}
