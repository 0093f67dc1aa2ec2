// SPDX-License-Identifier: Apache-2.0

package stackapply

import (
	"context"
	"fmt"

	"github.com/slipway-k8s/slipway/internal/cluster"
	"github.com/slipway-k8s/slipway/internal/infra/awskind"
	"github.com/slipway-k8s/slipway/internal/infra/graph"
	"github.com/slipway-k8s/slipway/internal/infra/plan"
)

// recreatedNote is the note of the steps that create lost volumes.
const recreatedNote = "created by EC2: CloudFormation does not create again what it has created once"

// checkLostVolumes finds the etcd volumes that the stack has created and that no longer exist, which no change
// set shows. It returns an error of type diag.Findings unless the options allow to create them again.
func (c *Applier) checkLostVolumes(old cfnTemplate) error {
	created := map[graph.Addr]bool{}
	for _, addr := range old.resourceAddresses(c.client.Names.KindByType) {
		created[addr] = true
	}

	if len(created) == 0 {
		return nil
	}

	exists := map[graph.Addr]bool{}
	for _, r := range c.existing {
		exists[r.Addr] = true
	}

	c.lost = cluster.FindLostVolumes(
		c.desired.Graph,
		func(addr graph.Addr) bool { return exists[addr] },
		func(addr graph.Addr, _ string) bool { return created[addr] },
	)

	findings := c.lost.Findings(c.desired.Manifests.Cluster, c.options.Risks.RecreateLostVolumes)
	if err := findings.Err(); err != nil {
		return err
	}

	c.session.Env.Warn(findings)

	return nil
}

// recreationSteps returns the steps that create the lost volumes.
func (c *Applier) recreationSteps() []plan.Step {
	var steps []plan.Step
	for _, addr := range c.lost.Lost {
		steps = append(steps, plan.Step{
			Action: plan.Create,
			Addr:   addr,
			Kind:   awskind.Volume{}.Kind().Name,
			Note:   recreatedNote,
		})
	}

	return steps
}

// recreateVolumes creates the lost volumes with the tags by which machines and Slipway find them.
func (c *Applier) recreateVolumes(ctx context.Context) error {
	if len(c.lost.Lost) == 0 {
		return nil
	}

	for _, step := range c.recreationSteps() {
		want := graph.Resolve(c.desired.Graph.Node(step.Addr).Resource, func(s graph.Symbol) (string, bool) {
			for _, a := range c.existing {
				if a.Addr == s.Addr {
					v, ok := a.Attributes[s.Attribute]
					return v, ok
				}
			}

			return "", false
		})

		if missing := graph.Symbols(want); len(missing) > 0 {
			return fmt.Errorf("create %s: %s does not exist", step.Addr, missing[0])
		}

		task := plan.Task{Step: step, Desired: want, ReportWaiting: func(string) {}}
		result, err := c.session.Cloud.Create(ctx, task)
		if err != nil {
			return fmt.Errorf("create %s: %w", step.Addr, err)
		}

		c.session.Env.Notifyf("created %s (%s)", step.Addr, result.ID)
	}

	return nil
}
