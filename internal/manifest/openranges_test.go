// SPDX-License-Identifier: Apache-2.0

package manifest_test

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/slipway-k8s/slipway/internal/manifest"
)

// TestOpenRanges: also several ranges contain the whole internet together, as those that some rules ask for in the place of 0.0.0.0/0.
func TestOpenRanges(t *testing.T) {
	for name, c := range map[string]struct {
		ranges []string
		want   []string
	}{
		"none":              {nil, nil},
		"some":              {[]string{"198.51.100.0/24", "0.0.0.0/1"}, nil},
		"IPv4":              {[]string{"198.51.100.0/24", "0.0.0.0/0"}, []string{"0.0.0.0/0"}},
		"both":              {[]string{"0.0.0.0/0", "::/0"}, []string{"0.0.0.0/0", "::/0"}},
		"halves":            {[]string{"0.0.0.0/1", "10.0.0.0/8", "128.0.0.0/1"}, []string{"0.0.0.0/1, 10.0.0.0/8, 128.0.0.0/1"}},
		"parts":             {[]string{"128.0.0.0/2", "0.0.0.0/1", "224.0.0.0/3", "192.0.0.0/3"}, []string{"128.0.0.0/2, 0.0.0.0/1, 224.0.0.0/3, 192.0.0.0/3"}},
		"IPv6 in halves":    {[]string{"::/1", "8000::/1"}, []string{"::/1, 8000::/1"}},
		"one part is there": {[]string{"0.0.0.0/1", "192.0.0.0/2"}, nil},
		"twice":             {[]string{"0.0.0.0/1", "0.0.0.0/1"}, nil},
		"not of a family":   {[]string{"0.0.0.0/1", "8000::/1"}, nil},
		"not valid":         {[]string{"0.0.0.0/1", "everywhere"}, nil},
	} {
		if diff := cmp.Diff(c.want, manifest.OpenRanges(c.ranges)); diff != "" && len(c.want)+len(manifest.OpenRanges(c.ranges)) > 0 {
			t.Errorf("%s (-want +got):\n%s", name, diff)
		}
	}
}
