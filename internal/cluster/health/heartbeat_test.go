// SPDX-License-Identifier: Apache-2.0

package health_test

import (
	"testing"
	"time"

	"github.com/slipway-k8s/slipway/internal/cluster/health"
)

// TestHeartbeats: the agent of a worker is silent if no member has heard it for three heartbeats, and only if the
// members can know that.
func TestHeartbeats(t *testing.T) {
	for name, c := range map[string]struct {
		seconds, listening int
		change             func(*health.Facts)
		silent             bool
	}{
		"heard":                              {seconds: 4, listening: 7200},
		"three missed":                       {seconds: 16, listening: 7200, silent: true},
		"a member has just started":          {seconds: 16, listening: 7},
		"a member has started a little ago":  {seconds: 60, listening: 17, silent: true},
		"it reported a change just now":      {seconds: 16, listening: 7200, change: func(f *health.Facts) { publishedAt(f, 4, now.Add(-3*time.Second)) }},
		"the member that hears it is silent": {seconds: 3, listening: 7200, change: func(f *health.Facts) { publishedAt(f, 0, now.Add(-time.Minute)) }, silent: true},
		"all members are silent": {seconds: 90, listening: 7200, change: func(f *health.Facts) {
			for n := range 3 {
				publishedAt(f, n, now.Add(-time.Minute))
			}
		}},
		"the control plane takes none":         {seconds: 16, listening: 7200, change: func(f *health.Facts) { sendsHeartbeats(f, 4, false) }},
		"no report and no heartbeat for hours": {listening: 7200, change: func(f *health.Facts) { forget(f, 4); publishedAt(f, 4, now.Add(-time.Hour)) }, silent: true},
	} {
		t.Run(name, func(t *testing.T) {
			f := healthyCluster()
			heartbeats(&f, 4, c.seconds, c.listening)
			if c.change != nil {
				c.change(&f)
			}
			if got := f.IsSilent(f.Instances[4].ID); got != c.silent {
				t.Errorf("silent: %v, want %v", got, c.silent)
			}
		})
	}
}

func publishedAt(f *health.Facts, n int, at time.Time) {
	r := f.Reports[f.Instances[n].ID]
	r.PublishedAt = at
	f.Reports[f.Instances[n].ID] = r
}

func sendsHeartbeats(f *health.Facts, n int, sends bool) {
	r := f.Reports[f.Instances[n].ID]
	r.Heartbeats = sends
	f.Reports[f.Instances[n].ID] = r
}

// forget makes the members forget the heartbeats of machine n.
func forget(f *health.Facts, n int) {
	for member := range 3 {
		delete(f.Reports[f.Instances[member].ID].Heard, f.Instances[n].NodeName)
	}
}
