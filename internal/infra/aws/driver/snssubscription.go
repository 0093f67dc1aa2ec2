// SPDX-License-Identifier: Apache-2.0

package driver

import (
	"context"
	"strings"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/sns"
	snstypes "github.com/aws/aws-sdk-go-v2/service/sns/types"

	"github.com/slipway-k8s/slipway/internal/infra/aws/transport"
	"github.com/slipway-k8s/slipway/internal/infra/awskind"
	"github.com/slipway-k8s/slipway/internal/infra/graph"
	"github.com/slipway-k8s/slipway/internal/infra/plan"
)

type subscriptionAPI interface {
	ListSubscriptionsByTopic(
		context.Context,
		*sns.ListSubscriptionsByTopicInput,
		...func(*sns.Options),
	) (*sns.ListSubscriptionsByTopicOutput, error)
	Subscribe(context.Context, *sns.SubscribeInput, ...func(*sns.Options)) (*sns.SubscribeOutput, error)
	Unsubscribe(context.Context, *sns.UnsubscribeInput, ...func(*sns.Options)) (*sns.UnsubscribeOutput, error)
}

// registerSubscriptions registers the driver of subscriptions. They are read with their topic. A
// second subscription of a function is the first one.
func registerSubscriptions(c *Cloud, api subscriptionAPI) {
	registerDriver(c, driver[awskind.SNSSubscription]{
		create: func(ctx context.Context, t task[awskind.SNSSubscription]) (plan.StepResult, error) {
			topic := t.want.Topic.Literal()
			endpoint, _ := t.want.Endpoint.Literal()
			out, err := api.Subscribe(ctx, &sns.SubscribeInput{
				TopicArn:              &topic,
				Protocol:              &t.want.Protocol,
				Endpoint:              &endpoint,
				ReturnSubscriptionArn: true,
			})
			if err != nil {
				return plan.StepResult{}, transport.Wrap(err, "subscribe %s to %s", endpoint, topic)
			}

			return plan.StepResult{ID: aws.ToString(out.SubscriptionArn)}, nil
		},
		remove: func(ctx context.Context, t task[awskind.SNSSubscription]) error {
			_, err := api.Unsubscribe(ctx, &sns.UnsubscribeInput{SubscriptionArn: &t.id})
			return transport.Wrap(err, "unsubscribe")
		},
	})
}

// readSubscriptions returns the subscriptions of the function with a name to a topic. Those of
// others are theirs.
func readSubscriptions(
	ctx context.Context,
	api subscriptionAPI,
	topic, function string,
) ([]plan.ActualResource, error) {
	var out []plan.ActualResource
	pages := sns.NewListSubscriptionsByTopicPaginator(api, &sns.ListSubscriptionsByTopicInput{TopicArn: &topic})

	for pages.HasMorePages() {
		page, err := pages.NextPage(ctx)
		if err != nil {
			return nil, transport.Wrap(err, "list the subscriptions of %s", topic)
		}

		for _, s := range page.Subscriptions {
			if isFunctionNamed(s, function) {
				out = append(out, plan.ActualResource{
					ID: aws.ToString(s.SubscriptionArn),
					Resource: awskind.SNSSubscription{
						Topic:    graph.UnmanagedRef[awskind.SNSTopic](topic),
						Protocol: aws.ToString(s.Protocol),
						Endpoint: graph.LiteralText(aws.ToString(s.Endpoint)),
					},
				})
			}
		}
	}

	return out, nil
}

// isFunctionNamed reports whether a subscription delivers to the function with a name.
func isFunctionNamed(s snstypes.Subscription, function string) bool {
	return aws.ToString(s.Protocol) == "lambda" && strings.HasSuffix(aws.ToString(s.Endpoint), ":function:"+function)
}
