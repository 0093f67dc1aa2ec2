// SPDX-License-Identifier: Apache-2.0

package driver

import (
	"context"

	"github.com/aws/aws-sdk-go-v2/aws"
	elb "github.com/aws/aws-sdk-go-v2/service/elasticloadbalancingv2"
	elbtypes "github.com/aws/aws-sdk-go-v2/service/elasticloadbalancingv2/types"

	"github.com/slipway-k8s/slipway/internal/infra/aws/transport"
	"github.com/slipway-k8s/slipway/internal/infra/awskind"
	"github.com/slipway-k8s/slipway/internal/infra/graph"
	"github.com/slipway-k8s/slipway/internal/infra/plan"
)

type listenerAPI interface {
	elb.DescribeListenersAPIClient
	CreateListener(
		context.Context,
		*elb.CreateListenerInput,
		...func(*elb.Options),
	) (*elb.CreateListenerOutput, error)
	ModifyListener(
		context.Context,
		*elb.ModifyListenerInput,
		...func(*elb.Options),
	) (*elb.ModifyListenerOutput, error)
	DeleteListener(
		context.Context,
		*elb.DeleteListenerInput,
		...func(*elb.Options),
	) (*elb.DeleteListenerOutput, error)
}

// registerListeners registers the driver of listeners. They are read with their load balancers.
func registerListeners(c *Cloud, api listenerAPI) {
	registerDriver(c, driver[awskind.Listener]{
		create: func(ctx context.Context, t task[awskind.Listener]) (plan.StepResult, error) {
			lb := t.want.LoadBalancer.Literal()
			out, err := api.CreateListener(ctx, &elb.CreateListenerInput{
				LoadBalancerArn: &lb,
				Port:            int32OrNil(t.want.Port),
				Protocol:        elbtypes.ProtocolEnum(t.want.Protocol),
				DefaultActions:  toListenerActions(t.want),
			})
			if err != nil {
				return plan.StepResult{}, transport.Wrap(err, "create the listener on port %d", t.want.Port)
			}

			return plan.StepResult{ID: aws.ToString(out.Listeners[0].ListenerArn)}, nil
		},
		update: func(ctx context.Context, t task[awskind.Listener]) (plan.StepResult, error) {
			_, err := api.ModifyListener(ctx, &elb.ModifyListenerInput{
				ListenerArn:    &t.id,
				Port:           int32OrNil(t.want.Port),
				Protocol:       elbtypes.ProtocolEnum(t.want.Protocol),
				DefaultActions: toListenerActions(t.want),
			})

			return keepIdentity(t), transport.Wrap(err, "modify the listener on port %d", t.want.Port)
		},
		remove: func(ctx context.Context, t task[awskind.Listener]) error {
			_, err := api.DeleteListener(ctx, &elb.DeleteListenerInput{ListenerArn: &t.id})
			return transport.Wrap(err, "delete")
		},
	})
}

func toListenerActions(l awskind.Listener) []elbtypes.Action {
	var out []elbtypes.Action
	for _, a := range l.DefaultActions {
		out = append(out, elbtypes.Action{
			Type:           elbtypes.ActionTypeEnum(a.Type),
			TargetGroupArn: aws.String(a.TargetGroup.Literal()),
		})
	}

	return out
}

func readListeners(ctx context.Context, api listenerAPI, lb string) ([]plan.ActualResource, error) {
	var out []plan.ActualResource
	pages := elb.NewDescribeListenersPaginator(api, &elb.DescribeListenersInput{LoadBalancerArn: &lb})
	for pages.HasMorePages() {
		page, err := pages.NextPage(ctx)
		if err != nil {
			return nil, transport.Wrap(err, "list the listeners of %s", lb)
		}

		for _, l := range page.Listeners {
			r := awskind.Listener{
				LoadBalancer: graph.UnmanagedRef[awskind.LoadBalancer](lb),
				Port:         int(aws.ToInt32(l.Port)),
				Protocol:     string(l.Protocol),
			}

			for _, a := range l.DefaultActions {
				r.DefaultActions = append(r.DefaultActions, awskind.ListenerAction{
					Type:        string(a.Type),
					TargetGroup: graph.UnmanagedRef[awskind.TargetGroup](forwardTarget(a)),
				})
			}

			out = append(out, plan.ActualResource{ID: aws.ToString(l.ListenerArn), Resource: r})
		}
	}

	return out, nil
}

// forwardTarget returns the ARN of the target group of an action, which AWS returns in either of
// two fields.
func forwardTarget(a elbtypes.Action) string {
	if a.TargetGroupArn == nil && a.ForwardConfig != nil && len(a.ForwardConfig.TargetGroups) == 1 {
		return aws.ToString(a.ForwardConfig.TargetGroups[0].TargetGroupArn)
	}

	return aws.ToString(a.TargetGroupArn)
}
