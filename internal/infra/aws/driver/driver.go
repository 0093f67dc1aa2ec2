// SPDX-License-Identifier: Apache-2.0

package driver

import (
	"context"
	"fmt"

	"github.com/aws/aws-sdk-go-v2/aws"

	"github.com/slipway-k8s/slipway/internal/infra/aws/transport"
	"github.com/slipway-k8s/slipway/internal/infra/awskind"
	"github.com/slipway-k8s/slipway/internal/infra/graph"
	"github.com/slipway-k8s/slipway/internal/infra/plan"
)

// task is a [plan.Task] with the types of one kind.
type task[T graph.Resource] struct {
	step          plan.Step
	addr          string       // the address of the resource, such as vpc/main
	token         string       // the client token, for calls that have one
	id            string       // AWS's id of the existing resource; empty before it is created
	want          T            // the desired resource; zero for a deletion
	have          T            // the existing resource; zero for a creation
	reportWaiting func(string) // shows the operator what is being waited for
}

// driver has the operations of one resource kind. update is nil if the kind cannot be changed in
// place, and waitReady if there is nothing to wait for.
type driver[T graph.Resource] struct {
	create    func(context.Context, task[T]) (plan.StepResult, error)
	update    func(context.Context, task[T]) (plan.StepResult, error)
	remove    func(context.Context, task[T]) error
	waitReady func(context.Context, task[T], plan.StepResult) error
}

// untypedDriver is a driver without its type parameter.
type untypedDriver struct {
	create    func(context.Context, plan.Task) (plan.StepResult, error)
	update    func(context.Context, plan.Task) (plan.StepResult, error)
	remove    func(context.Context, plan.Task) error
	waitReady func(context.Context, plan.Task, plan.StepResult) error
}

// registerDriver adds the driver of a kind to c. A deletion succeeds if AWS does not find the
// resource.
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
		waitReady: func(ctx context.Context, t plan.Task, result plan.StepResult) error {
			if d.waitReady == nil {
				return nil
			}

			return d.waitReady(transport.ExpectPropagation(ctx), typedTask[T](c, t), result)
		},
	}
}

// typedTask returns t for the driver of T.
func typedTask[T graph.Resource](c *Cloud, t plan.Task) task[T] {
	out := task[T]{
		step:          t.Step,
		addr:          string(t.Step.Addr),
		token:         c.clientToken(string(t.Step.Addr)),
		id:            t.Actual.ID,
		reportWaiting: t.ReportWaiting,
	}
	if want, ok := t.Desired.(T); ok {
		out.want = want
	}

	if have, ok := t.Actual.Resource.(T); ok {
		out.have = have
	}

	return out
}

// keepIdentity returns the result of an update that does not change the id of its resource.
func keepIdentity[T graph.Resource](t task[T]) plan.StepResult { return plan.StepResult{ID: t.id} }

// newActual returns the resource that AWS lists with id, at the address in its tags.
func newActual(id *string, tags awskind.Tags, r graph.Resource) plan.ActualResource {
	return plan.ActualResource{Addr: addressFromTags(tags), ID: aws.ToString(id), Resource: r}
}
