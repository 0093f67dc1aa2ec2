// SPDX-License-Identifier: Apache-2.0

package sns

import (
	"context"
	"regexp"
	"strings"

	sdk "github.com/aws/aws-sdk-go/service/sns"

	"github.com/slipway-k8s/slipway/internal/region/sdkshape"
	"github.com/slipway-k8s/slipway/internal/region/wire"
)

// protocolLambda is the protocol of subscriptions of Lambda functions.
const protocolLambda = "lambda"

// unsupportedProtocols are the protocols of SNS that the region does not deliver with (SNS API
// reference, Subscribe).
func unsupportedProtocols() string {
	return " application email email-json firehose http https sms sqs "
}

// subscribe subscribes a function. It needs no confirmation: who may subscribe a function of the
// account owns it. A second subscription of a function to a topic is the first one.
func (s *Service) subscribe(ctx context.Context, in *sdk.SubscribeInput) (*sdk.SubscribeOutput, error) {
	_, t, err := s.findTopic(in.TopicArn)
	if err != nil {
		return nil, err
	}

	if err := s.checkSubscription(in); err != nil {
		return nil, err
	}

	function := sdkshape.String(in.Endpoint)
	for _, id := range sdkshape.SortedKeys(t.Subscriptions) {
		if t.Subscriptions[id].Function == function {
			return &sdk.SubscribeOutput{SubscriptionArn: new(*in.TopicArn + ":" + id)}, nil
		}
	}

	id := sdkshape.RandomUUID(s.cfg.Rand)
	arn := *in.TopicArn + ":" + id
	t.Subscriptions[id] = &subscription{Function: function, Principal: wire.CallerFrom(ctx).ARN}
	s.unseen.Track(arn)

	return &sdk.SubscribeOutput{SubscriptionArn: &arn}, nil
}

// checkSubscription refuses what SNS refuses, and by name what the region does not implement.
func (s *Service) checkSubscription(in *sdk.SubscribeInput) error {
	protocol := sdkshape.String(in.Protocol)
	if protocol != protocolLambda {
		if protocol != "" && strings.Contains(unsupportedProtocols(), " "+protocol+" ") {
			return wire.NotImplemented("protocol " + protocol)
		}

		return newErrorf(
			codeInvalidParameter,
			"Invalid parameter: Amazon SNS does not support this protocol string: %s",
			protocol,
		)
	}

	for _, name := range sdkshape.SortedKeys(in.Attributes) {
		return wire.NotImplemented("attribute " + name + " of a subscription")
	}

	function := sdkshape.String(in.Endpoint)
	own := "arn:aws:lambda:" + s.cfg.Region + ":" + s.cfg.Account + ":function:"
	if regexp.MustCompile(`^` + own + `[A-Za-z0-9_-]{1,64}$`).MatchString(function) {
		return nil
	}

	if strings.HasPrefix(function, "arn:aws:lambda:") && strings.Count(function, ":") >= arnParts {
		return wire.NotImplemented("an endpoint that is no Lambda function of this account and region: " + function)
	}

	return newError(codeInvalidParameter, "Invalid parameter: Lambda endpoint ARN")
}

// findSubscription returns the subscription of an ARN, its id and its topic; nil if it does not
// exist.
func (s *Service) findSubscription(arn string) (id string, t *topic, found *subscription) {
	topicARN, id, _ := cutLast(arn, ":")
	if t = s.st.Topics[strings.TrimPrefix(topicARN, s.topicARN(""))]; t == nil {
		return id, nil, nil
	}

	return id, t, t.Subscriptions[id]
}

// unsubscribe deletes a subscription. As in SNS, one that does not exist is no error.
func (s *Service) unsubscribe(in *sdk.UnsubscribeInput) (*sdk.UnsubscribeOutput, error) {
	arn := sdkshape.String(in.SubscriptionArn)
	if arn == "" {
		return nil, newError(
			codeInvalidParameter,
			"Invalid parameter: SubscriptionArn Reason: no value for required parameter",
		)
	}

	if err := checkARN("SubscriptionArn", arn); err != nil {
		return nil, err
	}

	if !regexp.MustCompile(`:[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}$`).MatchString(arn) {
		return nil, newError(codeInvalidParameter, "Invalid parameter: SubscriptionId")
	}

	if id, t, found := s.findSubscription(arn); found != nil {
		delete(t.Subscriptions, id)
		t.Unsubscribed++
	}

	return &sdk.UnsubscribeOutput{}, nil
}

func (s *Service) getSubscriptionAttributes(
	in *sdk.GetSubscriptionAttributesInput,
) (*sdk.GetSubscriptionAttributesOutput, error) {
	arn := sdkshape.String(in.SubscriptionArn)
	if err := checkARN("SubscriptionArn", arn); err != nil {
		return nil, err
	}

	_, _, found := s.findSubscription(arn)
	if found == nil {
		return nil, newError(codeNotFound, "Subscription does not exist")
	}

	return &sdk.GetSubscriptionAttributesOutput{Attributes: map[string]*string{
		"ConfirmationWasAuthenticated": new("true"),
		"Endpoint":                     &found.Function,
		"Owner":                        &s.cfg.Account,
		"PendingConfirmation":          new("false"),
		"Protocol":                     new(protocolLambda),
		"RawMessageDelivery":           new("false"),
		"SubscriptionArn":              &arn,
		"SubscriptionPrincipal":        &found.Principal,
		"TopicArn":                     new(topicOfSubscription(arn)),
	}}, nil
}

// subscriptionsPerPage is the size of a page (SNS API reference, ListSubscriptionsByTopic).
const subscriptionsPerPage = 100

func (s *Service) listSubscriptionsByTopic(
	in *sdk.ListSubscriptionsByTopicInput,
) (*sdk.ListSubscriptionsByTopicOutput, error) {
	_, t, err := s.findTopic(in.TopicArn)
	if err != nil {
		return nil, err
	}

	bad := newError(codeInvalidParameter, "Invalid parameter: NextToken")
	page, next, err := sdkshape.Paginate(
		sdkshape.SortedKeys(t.Subscriptions),
		subscriptionsPerPage,
		in.NextToken,
		bad,
	)
	out := &sdk.ListSubscriptionsByTopicOutput{Subscriptions: []*sdk.Subscription{}, NextToken: next}

	for _, id := range page {
		out.Subscriptions = append(out.Subscriptions, &sdk.Subscription{
			Endpoint:        &t.Subscriptions[id].Function,
			Owner:           &s.cfg.Account,
			Protocol:        new(protocolLambda),
			SubscriptionArn: new(*in.TopicArn + ":" + id),
			TopicArn:        in.TopicArn,
		})
	}

	return out, err
}
