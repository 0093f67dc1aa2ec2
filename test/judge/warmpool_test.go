// SPDX-License-Identifier: Apache-2.0

package judge_test

import (
	"strings"
	"testing"

	"github.com/aws/aws-sdk-go-v2/service/autoscaling"

	"github.com/slipway-k8s/slipway/internal/infra/target/targettest"
	"github.com/slipway-k8s/slipway/internal/region/regiontest"
)

// TestWarmPoolIsTakenAway: a manifest that does not name its pool any more has it deleted, and a changed one changed.
func TestWarmPoolIsTakenAway(t *testing.T) {
	d := direct{cfg: regiontest.Start(t).Config(), known: same}
	for _, x := range targettest.Topologies() {
		if x.Name != "warm-pool" {
			continue
		}
		const lines = "  warmPool:\n    minSize: 1\n    maxGroupPreparedCapacity: 4\n"
		with, more := x, x.With(map[string]string{lines: strings.Replace(lines, ": 4", ": 5", 1)})
		without := x.With(map[string]string{lines: ""})
		for _, v := range []struct {
			x        targettest.Topology
			prepared int32
		}{{with, 4}, {more, 5}, {without, 0}} {
			c := d.cluster(t, v.x.Input(t, regiontest.Name))
			c.apply(t)
			c.unchanged(t)
			if got := d.prepared(t); got != v.prepared {
				t.Errorf("prepared are %d, want %d", got, v.prepared)
			}
		}
		return
	}
	t.Fatal("there is no example")
}

// prepared is the size of the workers' pool and group; 0 if there is no pool.
func (d direct) prepared(t *testing.T) int32 {
	t.Helper()
	out, err := autoscaling.NewFromConfig(d.cfg).DescribeAutoScalingGroups(t.Context(), &autoscaling.DescribeAutoScalingGroupsInput{AutoScalingGroupNames: []string{"workers.warm-pool"}})
	check(t, err)
	if c := out.AutoScalingGroups[0].WarmPoolConfiguration; c != nil {
		return *c.MaxGroupPreparedCapacity
	}
	return 0
}
