// SPDX-License-Identifier: Apache-2.0

package visibility_test

import (
	"testing"
	"time"

	"github.com/slipway-k8s/slipway/internal/region/visibility"
)

func TestDelay(t *testing.T) {
	start := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	at := func(p *visibility.Pending, times ...time.Duration) (hidden int) {
		for _, d := range times {
			if p.Hides(start.Add(d)) {
				hidden++
			}
		}
		return hidden
	}
	if n := at(nil, 0); n != 0 || !(visibility.Delay{}).IsZero() || at(visibility.Delay{}.Begin(start), 0) != 0 {
		t.Errorf("without a delay, %d calls saw nothing", n)
	}
	p := visibility.Delay{Time: time.Second}.Begin(start)
	if n := at(p, 0, 0, 999*time.Millisecond, time.Second, time.Hour); n != 3 || !p.HasEnded(start.Add(time.Second)) || p.HasEnded(start) {
		t.Errorf("delayed by a time, %d calls saw nothing", n)
	}
	p = visibility.Delay{Calls: 2}.Begin(start)
	if n := at(p, time.Hour, time.Hour, time.Hour); n != 2 || !p.HasEnded(start) {
		t.Errorf("delayed by calls, %d calls saw nothing", n)
	}
}
