// SPDX-License-Identifier: Apache-2.0

package apply

import (
	"context"
	"errors"
	"sync"

	"github.com/slipway-k8s/slipway/internal/cluster"
	"github.com/slipway-k8s/slipway/internal/cluster/publish"
	"github.com/slipway-k8s/slipway/internal/infra/aws"
	"github.com/slipway-k8s/slipway/internal/infra/awskind"
	"github.com/slipway-k8s/slipway/internal/infra/plan"
	"github.com/slipway-k8s/slipway/internal/lib/diag"
)

// direct creates, changes and deletes resources by calls to their services. It implements [Provisioner].
type direct struct {
	session *cluster.Session
	desired *cluster.Desired
	options cluster.PlanOptions
	// published is set once what machines download was published.
	published bool
}

// Propose compares the graph with what exists. Findings that prevent the plan are returned together with
// the review.
func (p *direct) Propose(ctx context.Context) (*cluster.Review, error) {
	findings, err := p.session.ComputePlan(ctx, p.desired, p.options)
	if err != nil {
		return nil, err
	}

	review := p.desired.Review()

	return &review, findings.Err()
}

// Record records that the cluster is created directly.
func (p *direct) Record(ctx context.Context) error {
	return p.session.RecordProvisioner(ctx, p.desired)
}

// Execute publishes, walks the plan, and records what was applied.
func (p *direct) Execute(ctx context.Context) error {
	if err := p.checkEtcdStarted(ctx, findResize(p.desired.Plan).leaving); err != nil {
		return err
	}

	if err := p.session.RecordZones(ctx, p.desired, false); err != nil {
		return err
	}

	if err := publish.WriteReturning(ctx, p.session, p.desired); err != nil {
		return err
	}

	if err := p.prepareResize(ctx); err != nil {
		return err
	}

	if err := p.publishAndWalk(ctx); err != nil {
		if _, stopped := errors.AsType[*plan.InterruptedError](err); stopped {
			return err
		}

		return diag.WithHint(
			err,
			"created resources were kept; fix the cause and rerun to resume",
		)
	}

	if err := publish.WriteRevisions(ctx, p.session, p.desired); err != nil {
		return err
	}

	if err := p.session.RecordApplied(ctx, p.desired); err != nil {
		return err
	}

	if err := p.session.RecordZones(ctx, p.desired, true); err != nil {
		return err
	}

	return p.desired.View.SaveIndex(ctx)
}

// Unchanged records that AWS is as the manifests want it.
func (p *direct) Unchanged(ctx context.Context) error {
	return p.session.RecordApplied(ctx, p.desired)
}

// Discard has nothing to discard.
func (p *direct) Discard(context.Context) error { return nil }

// publishAndWalk publishes what machines download while it creates what machines need.
func (p *direct) publishAndWalk(ctx context.Context) error {
	machines := &publicationGate{Cloud: p.session.Cloud, published: make(chan struct{})}
	var wg sync.WaitGroup
	wg.Go(func() {
		if !p.published {
			machines.err = publish.WriteObjects(ctx, p.session, p.desired)
		}

		close(machines.published)
	})

	err := p.session.Walk(ctx, p.desired.Plan, machines)
	wg.Wait()
	if errors.Is(err, machines.err) { // err has it for each group of machines that waited
		machines.err = nil
	}

	return errors.Join(machines.err, err)
}

// publicationGate is a cloud that creates and changes no group of machines and no function until publishing has ended.
type publicationGate struct {
	*aws.Cloud
	published chan struct{}
	err       error
}

// waitForPublication waits until publishing has ended, if the task is about a group of machines or a function.
func (c *publicationGate) waitForPublication(ctx context.Context, t plan.Task) error {
	switch t.Step.Kind {
	case awskind.AutoScalingGroup{}.Kind().Name:
		t.ReportWaiting("the objects that machines read are being published")
	case awskind.LambdaFunction{}.Kind().Name:
		t.ReportWaiting("its code is being published")
	default:
		return nil
	}

	select {
	case <-c.published:
		return c.err
	case <-ctx.Done():
		return ctx.Err()
	}
}

// Create implements [plan.Cloud].
func (c *publicationGate) Create(ctx context.Context, t plan.Task) (plan.StepResult, error) {
	if err := c.waitForPublication(ctx, t); err != nil {
		return plan.StepResult{}, err
	}

	return c.Cloud.Create(ctx, t)
}

// Update implements [plan.Cloud].
func (c *publicationGate) Update(ctx context.Context, t plan.Task) (plan.StepResult, error) {
	if err := c.waitForPublication(ctx, t); err != nil {
		return plan.StepResult{}, err
	}

	return c.Cloud.Update(ctx, t)
}
