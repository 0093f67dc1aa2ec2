// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"testing"
)

// TestIdentifyMounted: the volume whose data the machine has used stays its volume, even if an older one of the slot is attached as well.
func TestIdentifyMounted(t *testing.T) {
	for _, test := range []struct {
		name, known string
		attached    []string
		want        string
	}{
		{name: "the only one that is attached", attached: []string{"vol-2"}, want: "vol-2"},
		{name: "the known one of two", known: "vol-2", attached: []string{"vol-1", "vol-2"}, want: "vol-2"},
		{name: "the oldest of two if none is known", attached: []string{"vol-1", "vol-2"}, want: "vol-1"},
		{name: "the attached one, not the known one", known: "vol-1", attached: []string{"vol-2"}, want: "vol-2"},
		{name: "the known one while none is listed as attached", known: "vol-2", want: "vol-2"},
	} {
		t.Run(test.name, func(t *testing.T) {
			volumes := []Volume{{ID: "vol-1"}, {ID: "vol-2"}}
			for i := range volumes {
				for _, id := range test.attached {
					if volumes[i].ID == id {
						volumes[i].AttachedTo = "i-me"
					}
				}
			}

			m := VolumeMounter{Instance: Instance{ID: "i-me"}, KnownVolume: test.known}
			got, err := m.identifyMounted(volumes, m.chooseVolume(volumes))
			if err != nil || got != test.want {
				t.Errorf("got %q, %v; want %q", got, err, test.want)
			}
		})
	}
}
