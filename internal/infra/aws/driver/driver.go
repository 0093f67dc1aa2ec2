// SPDX-License-Identifier: Apache-2.0

package driver

import (
	"context"
	"fmt"

	"github.com/slipway-k8s/slipway/internal/infra/aws/transport"
	"github.com/slipway-k8s/slipway/internal/infra/graph"
	"github.com/slipway-k8s/slipway/internal/infra/plan"
)

// task is a [plan.Task] with the types of one kind.
type task[T graph.Resource] struct {
	step          plan.Step
	addr          string
	token         string // for calls that take a client token
	id            string // of what exists
	want          T
	have          T
	reportWaiting func(string)
}

// driver is what a kind can do. update is nil where nothing can be changed in place, settle where there is no wait.
type driver[T graph.Resource] struct {
	create    func(context.Context, task[T]) (plan.StepResult, error)
	update    func(context.Context, task[T]) (plan.StepResult, error)
	remove    func(context.Context, task[T]) error
	waitReady func(context.Context, task[T], plan.StepResult) error
}

// untypedDriver is a driver without its type.
type untypedDriver struct {
	create, update func(context.Context, plan.Task) (plan.StepResult, error)
	remove         func(context.Context, plan.Task) error
	waitReady      func(context.Context, plan.Task, plan.StepResult) error
}

// registerDriver adds the driver of a kind to c.
func registerDriver[T graph.Resource](c *Cloud, d driver[T]) {
	var zero T
	name := zero.Kind().Name
	c.kinds[name] = untypedDriver{
		create: func(ctx context.Context, t plan.Task) (plan.StepResult, error) {
			return d.create(transport.ExpectPropagation(ctx), typedTask[T](c, t))
		},
		update: func(ctx context.Context, t plan.Task) (plan.StepResult, error) {
			if d.update == nil {
				return plan.StepResult{}, fmt.Errorf("a %s cannot be changed in place", name)
			}

			return d.update(transport.ExpectPropagation(ctx), typedTask[T](c, t))
		},
		remove: func(ctx context.Context, t plan.Task) error {
			if err := d.remove(ctx, typedTask[T](c, t)); plan.ErrorClassOf(err) != plan.NotFound {
				return err
			}

			return nil
		},
		waitReady: func(ctx context.Context, t plan.Task, m plan.StepResult) error {
			if d.waitReady == nil {
				return nil
			}

			return d.waitReady(ctx, typedTask[T](c, t), m)
		},
	}
}

func typedTask[T graph.Resource](c *Cloud, t plan.Task) task[T] {
	out := task[T]{
		step:          t.Step,
		addr:          string(t.Step.Addr),
		token:         c.clientToken(string(t.Step.Addr)),
		id:            t.Actual.ID,
		reportWaiting: t.ReportWaiting,
	}
	if w, ok := t.Desired.(T); ok {
		out.want = w
	}

	if h, ok := t.Actual.Resource.(T); ok {
		out.have = h
	}

	return out
}

// keepIdentity is what an update that changes no identity returns.
func keepIdentity[T graph.Resource](t task[T]) plan.StepResult { return plan.StepResult{ID: t.id} }
