// SPDX-License-Identifier: Apache-2.0

package judge_test

import (
	"strings"
	"testing"

	"github.com/aws/aws-sdk-go-v2/service/autoscaling"

	"github.com/slipway-k8s/slipway/internal/infra/render/rendertest"
	"github.com/slipway-k8s/slipway/internal/region/regiontest"
)

// TestWarmPoolIsTakenAway checks that a warm pool is changed with its manifest, and deleted when
// the manifest no longer names it.
func TestWarmPoolIsTakenAway(t *testing.T) {
	d := directJudge{cfg: regiontest.Start(t).AWSConfig(), fixDefects: keepResource}
	d.createBoundary(t)
	for _, x := range rendertest.Topologies() {
		if x.Name != "warm-pool" {
			continue
		}
		const lines = "  warmPool:\n    minSize: 1\n    maxGroupPreparedCapacity: 4\n"
		with, more := x, x.WithReplaced(map[string]string{lines: strings.Replace(lines, ": 4", ": 5", 1)})
		without := x.WithReplaced(map[string]string{lines: ""})
		for _, v := range []struct {
			x        rendertest.Topology
			prepared int32
		}{{with, 4}, {more, 5}, {without, 0}} {
			c := d.buildCluster(t, v.x.Input(t, regiontest.RegionName))
			c.apply(t)
			c.checkNoChanges(t)
			if got := d.readWarmPoolSize(t); got != v.prepared {
				t.Errorf("prepared are %d, want %d", got, v.prepared)
			}
		}
		return
	}
	t.Fatal("there is no example")
}

// readWarmPoolSize returns the prepared capacity of the workers' warm pool, and 0 if there is no
// pool.
func (d directJudge) readWarmPoolSize(t *testing.T) int32 {
	t.Helper()
	out, err := autoscaling.NewFromConfig(d.cfg).DescribeAutoScalingGroups(t.Context(), &autoscaling.DescribeAutoScalingGroupsInput{AutoScalingGroupNames: []string{"workers.warm-pool"}})
	failOnError(t, err)
	if c := out.AutoScalingGroups[0].WarmPoolConfiguration; c != nil {
		return *c.MaxGroupPreparedCapacity
	}
	return 0
}
