// SPDX-License-Identifier: Apache-2.0

package s3

import (
	"slices"
	"testing"

	"github.com/slipway-k8s/slipway/test/referencedata"
)

// TestActionsAreThoseOfTheReference: the actions that policies can allow on buckets and objects are those of AWS's reference.
func TestActionsAreThoseOfTheReference(t *testing.T) {
	t.Parallel()
	var reference referencedata.ServiceReference
	referencedata.ReadJSON(t, referencedata.ServiceReferenceFile, &reference)

	for kind, got := range map[string][]string{"bucket": bucketActions(), "object": objectActions()} {
		var want []string
		for name, action := range reference.Services["s3"].Actions {
			if _, ok := action.Resources[kind]; ok {
				want = append(want, name)
			}
		}

		slices.Sort(want)
		if len(want) == 0 || !slices.Equal(got, want) {
			t.Errorf("the actions on a %s are %q, want %q", kind, got, want)
		}
	}
}
