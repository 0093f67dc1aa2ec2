// SPDX-License-Identifier: Apache-2.0

package autoscaling

import (
	"context"

	sdk "github.com/aws/aws-sdk-go/service/autoscaling"

	"github.com/slipway-k8s/slipway/internal/region/sdkshape"
)

// replaceAtRisk replaces the spot instances with a rebalance recommendation, if the group has CapacityRebalance: it
// launches others first, and terminates those at risk once the group has its desired capacity without them.
func (s lifecycleHandlers) replaceAtRisk(ctx context.Context, g *group) {
	if !isTrue(g.Shape.CapacityRebalance) {
		return
	}

	inService := s.markAtRisk(g)
	for _, i := range g.Shape.Instances {
		if g.AtRisk[sdkshape.String(i.InstanceId)] && !isTerminating(i) && inService >= int(*g.Shape.DesiredCapacity) {
			s.terminateGroupInstance(
				ctx,
				g,
				i,
				"an instance was taken out of service in response to an EC2 instance rebalance recommendation.",
			)
		}
	}
}

// markAtRisk records the instances in service with a rebalance recommendation. It returns the number of the others.
func (s lifecycleHandlers) markAtRisk(g *group) int {
	others := 0
	for _, i := range g.Shape.Instances {
		id := sdkshape.String(i.InstanceId)
		if sdkshape.String(i.LifecycleState) != sdk.LifecycleStateInService {
			continue
		}

		if f, found := s.cfg.EC2.InstanceInfo(id); found && f.Rebalance && !g.AtRisk[id] {
			if g.AtRisk == nil {
				g.AtRisk = map[string]bool{}
			}

			g.AtRisk[id] = true
			s.store.MarkChanged()
		}

		if !g.AtRisk[id] {
			others++
		}
	}

	return others
}
