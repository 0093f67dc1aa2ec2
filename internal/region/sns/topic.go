// SPDX-License-Identifier: Apache-2.0

package sns

import (
	"context"
	"maps"
	"regexp"
	"slices"
	"strconv"

	sdk "github.com/aws/aws-sdk-go/service/sns"

	"github.com/slipway-k8s/slipway/internal/region/sdkshape"
	"github.com/slipway-k8s/slipway/internal/region/wire"
)

// maxTopics is the number of standard topics of an account (AWS General Reference, "Amazon SNS
// endpoints and quotas").
const maxTopics = 100_000

// The attributes of a topic that requests can set in the region.
const (
	attributeDisplayName = "DisplayName"
	attributePolicy      = "Policy"
)

// maxDisplayName is the length of a display name (SNS developer guide, "Creating an Amazon SNS
// topic").
const maxDisplayName = 100

// unsupportedAttributes are the attributes of topics in SNS that the region does not implement (SNS
// API reference, CreateTopic and SetTopicAttributes).
func unsupportedAttributes() []string {
	return []string{
		"ApplicationFailureFeedbackRoleArn", "ApplicationSuccessFeedbackRoleArn",
		"ApplicationSuccessFeedbackSampleRate", "ArchivePolicy", "ContentBasedDeduplication", "DataProtectionPolicy",
		"DeliveryPolicy", "FifoThroughputScope", "FifoTopic", "FirehoseFailureFeedbackRoleArn",
		"FirehoseSuccessFeedbackRoleArn", "FirehoseSuccessFeedbackSampleRate", "HTTPFailureFeedbackRoleArn",
		"HTTPSuccessFeedbackRoleArn", "HTTPSuccessFeedbackSampleRate", "KmsMasterKeyId",
		"LambdaFailureFeedbackRoleArn", "LambdaSuccessFeedbackRoleArn", "LambdaSuccessFeedbackSampleRate",
		"SQSFailureFeedbackRoleArn", "SQSSuccessFeedbackRoleArn", "SQSSuccessFeedbackSampleRate",
		"SignatureVersion", "TracingConfig",
	}
}

// createTopic creates a topic, or returns the existing one if the request differs in nothing.
func (s *Service) createTopic(ctx context.Context, in *sdk.CreateTopicInput) (*sdk.CreateTopicOutput, error) {
	name := sdkshape.String(in.Name)
	if !regexp.MustCompile(`^[A-Za-z0-9_-]{1,256}$`).MatchString(name) { // those of FIFO topics end with .fifo
		return nil, newError(codeInvalidParameter, "Invalid parameter: Topic Name")
	}

	arn := s.topicARN(name)
	out := &sdk.CreateTopicOutput{TopicArn: &arn}
	after := &topic{Tags: map[string]string{}, Subscriptions: map[string]*subscription{}}

	for _, attribute := range slices.Sorted(maps.Keys(in.Attributes)) {
		if err := s.setAttribute(after, name, attribute, sdkshape.String(in.Attributes[attribute])); err != nil {
			return nil, err
		}
	}

	if err := after.addTags(in.Tags); err != nil {
		return nil, err
	}

	if have := s.st.Topics[name]; have != nil {
		return out, have.compareWith(after, in)
	}

	if len(s.st.Topics) >= maxTopics {
		return nil, newError(codeTopicLimitExceeded, "Topic limit exceeded")
	}

	maps.Copy(after.Tags, wire.SystemTags(ctx))
	s.st.Topics[name] = after
	s.unseen.Track(arn)

	return out, nil
}

// compareWith refuses a request to create the topic again with other attributes or tags than it
// has. Attributes that the request leaves out do not count.
func (t *topic) compareWith(other *topic, in *sdk.CreateTopicInput) error {
	for name := range in.Attributes {
		if name == attributePolicy && t.Policy != other.Policy ||
			name == attributeDisplayName && t.DisplayName != other.DisplayName {
			return newError(
				codeInvalidParameter,
				"Invalid parameter: Attributes Reason: Topic already exists with different attributes",
			)
		}
	}

	for k, v := range other.Tags {
		if have, exists := t.Tags[k]; !exists || have != v {
			return newError(
				codeInvalidParameter,
				"Invalid parameter: Tags Reason: Topic already exists with different tags",
			)
		}
	}

	return nil
}

// setAttribute changes an attribute of a topic with a name. It refuses by name what the region does
// not implement.
func (s *Service) setAttribute(t *topic, name, attribute, value string) error {
	switch attribute {
	case attributePolicy:
		if err := s.checkPolicy(s.topicARN(name), value); err != nil {
			return err
		}

		t.Policy = value
	case attributeDisplayName:
		if len([]rune(value)) > maxDisplayName {
			return newError(codeInvalidParameter, "Invalid parameter: DisplayName Reason: must be at most 100 characters")
		}

		t.DisplayName = value
	default:
		if slices.Contains(unsupportedAttributes(), attribute) {
			return wire.NotImplemented("attribute " + attribute + " of a topic")
		}

		return newError(codeInvalidParameter, "Invalid parameter: AttributeName")
	}

	return nil
}

func (s *Service) setTopicAttributes(in *sdk.SetTopicAttributesInput) (*sdk.SetTopicAttributesOutput, error) {
	name, t, err := s.findTopic(in.TopicArn)
	if err != nil {
		return nil, err
	}

	return &sdk.SetTopicAttributesOutput{},
		s.setAttribute(t, name, sdkshape.String(in.AttributeName), sdkshape.String(in.AttributeValue))
}

func (s *Service) getTopicAttributes(in *sdk.GetTopicAttributesInput) (*sdk.GetTopicAttributesOutput, error) {
	name, t, err := s.findTopic(in.TopicArn)
	if err != nil {
		return nil, err
	}

	return &sdk.GetTopicAttributesOutput{Attributes: map[string]*string{
		attributeDisplayName:      &t.DisplayName,
		"EffectiveDeliveryPolicy": new(defaultDeliveryPolicy),
		"Owner":                   &s.cfg.Account,
		attributePolicy:           new(s.policyOf(name, t)),
		"SubscriptionsConfirmed":  new(strconv.Itoa(len(t.Subscriptions))),
		"SubscriptionsDeleted":    new(strconv.Itoa(t.Unsubscribed)),
		"SubscriptionsPending":    new("0"),
		"TopicArn":                in.TopicArn,
	}}, nil
}

// defaultDeliveryPolicy is the delivery policy of a topic without one. It is about HTTP endpoints
// only.
const defaultDeliveryPolicy = `{"http":{"defaultHealthyRetryPolicy":{"minDelayTarget":20,"maxDelayTarget":20,` +
	`"numRetries":3,"numMaxDelayRetries":0,"numNoDelayRetries":0,"numMinDelayRetries":0,"backoffFunction":"linear"},` +
	`"disableSubscriptionOverrides":false,"defaultRequestPolicy":{"headerContentType":"text/plain; charset=UTF-8"}}}`

// deleteTopic deletes a topic and its subscriptions. As in SNS, one that does not exist is no
// error.
func (s *Service) deleteTopic(in *sdk.DeleteTopicInput) (*sdk.DeleteTopicOutput, error) {
	name, _, err := s.findTopic(in.TopicArn)
	if err == nil {
		delete(s.st.Topics, name)
	}

	if e, ok := err.(*wire.Error); ok && e.Code == string(codeNotFound) { //nolint:errorlint // findTopic does not wrap it
		err = nil
	}

	return &sdk.DeleteTopicOutput{}, err
}
