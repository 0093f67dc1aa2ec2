// SPDX-License-Identifier: Apache-2.0

package resourcetype

import (
	"context"
	"errors"

	"github.com/slipway-k8s/slipway/internal/region/cloudformation/template"
	"github.com/slipway-k8s/slipway/internal/region/sdkshape"
)

// topicTypes are the types of SNS.
func topicTypes() map[string]Type {
	return map[string]Type{
		"AWS::SNS::Topic":        topicType(),
		"AWS::SNS::TopicPolicy":  topicPolicyType(),
		"AWS::SNS::Subscription": subscriptionType(),
	}
}

// topicType is AWS::SNS::Topic. Its physical ID is the ARN. A topic whose creation was interrupted
// is created again: SNS returns the existing one.
func topicType() Type {
	return Type{
		NameProperty:    "TopicName",
		MaxNameLength:   256,
		extraAttributes: []string{"TopicName"},
		Create: func(ctx context.Context, req *Request) error {
			if req.hasProperty("Subscription") {
				return errors.New("Encountered unsupported property Subscription: use AWS::SNS::Subscription")
			}

			in := template.Object{"Name": req.physicalName()}
			attributes := req.omitProperties("TopicName", "Tags")
			if len(attributes) > 0 {
				in["Attributes"] = attributes
			}

			if tags := req.resourceTags(); len(tags) > 0 {
				in["Tags"] = tags
			}

			out, err := req.callOperation(ctx, "sns", "CreateTopic", in)
			if err != nil {
				return err
			}

			return req.setPhysicalID(ctx, out["TopicArn"])
		},
		Stabilize: func(_ context.Context, req *Request) error {
			req.Attributes["TopicArn"] = req.PhysicalID
			req.Attributes["TopicName"] = req.PhysicalID[len(arnWithoutName(req.PhysicalID)):]
			return nil
		},
		Update: func(ctx context.Context, req *Request) error {
			if err := updateTopicAttributes(ctx, req); err != nil {
				return err
			}

			return req.updateTags("Tags", func(tags []any) error {
				in := template.Object{"ResourceArn": req.PhysicalID, "Tags": tags}
				return req.runOperation(ctx, "sns", "TagResource", in)
			}, func(keys []any) error {
				in := template.Object{"ResourceArn": req.PhysicalID, "TagKeys": keys}
				return req.runOperation(ctx, "sns", "UntagResource", in)
			})
		},
		Delete: func(ctx context.Context, req *Request) error {
			return req.runOperation(ctx, "sns", "DeleteTopic", template.Object{"TopicArn": req.PhysicalID})
		},
	}
}

// arnWithoutName returns an ARN up to its last colon.
func arnWithoutName(arn string) string {
	for i := len(arn); i > 0; i-- {
		if arn[i-1] == ':' {
			return arn[:i]
		}
	}

	return ""
}

// updateTopicAttributes sets the attributes of a topic that change. SNS refuses those that the
// region does not implement.
func updateTopicAttributes(ctx context.Context, req *Request) error {
	changed := map[string]bool{}
	for _, properties := range []template.Object{req.OldProperties, req.Properties} {
		for name := range properties {
			changed[name] = name != "Tags" && req.propertyChanged(name)
		}
	}

	for _, name := range sdkshape.SortedKeys(changed) {
		if !changed[name] {
			continue
		}

		if err := setTopicAttribute(ctx, req, req.PhysicalID, name, req.stringProperty(name)); err != nil {
			return err
		}
	}

	return nil
}

func setTopicAttribute(ctx context.Context, req *Request, topic any, name, value string) error {
	return req.runOperation(ctx, "sns", "SetTopicAttributes", template.Object{
		"TopicArn":       topic,
		"AttributeName":  name,
		"AttributeValue": value,
	})
}

// topicPolicyType is AWS::SNS::TopicPolicy. Its deletion gives the topics the default policy again.
func topicPolicyType() Type {
	put := func(ctx context.Context, req *Request, topics []any, document string) error {
		for _, topic := range topics {
			if err := setTopicAttribute(ctx, req, topic, "Policy", document); err != nil {
				return err
			}
		}

		return nil
	}

	return Type{
		Create: func(ctx context.Context, req *Request) error {
			document := documentText(req.Properties["PolicyDocument"])
			if err := put(ctx, req, template.ListAt(req.Properties["Topics"]), document); err != nil {
				return err
			}

			return req.setPhysicalID(ctx, req.StackName+"-"+req.LogicalID+"-"+req.Engine.RandomHex(12))
		},
		Stabilize: func(_ context.Context, req *Request) error {
			req.Attributes["Id"] = req.PhysicalID
			return nil
		},
		Update: func(ctx context.Context, req *Request) error {
			_, fewer := diffLists(req.OldProperties["Topics"], req.Properties["Topics"])
			if err := IgnoreNotFound(put(ctx, req, fewer, "")); err != nil {
				return err
			}

			document := documentText(req.Properties["PolicyDocument"])

			return put(ctx, req, template.ListAt(req.Properties["Topics"]), document)
		},
		Delete: func(ctx context.Context, req *Request) error {
			return put(ctx, req, template.ListAt(req.Properties["Topics"]), "")
		},
	}
}

// subscriptionType is AWS::SNS::Subscription. Its physical ID is the ARN. A subscription whose
// creation was interrupted is created again: SNS returns the existing one.
func subscriptionType() Type {
	return Type{
		Create: func(ctx context.Context, req *Request) error {
			in := req.pickProperties("TopicArn", "Protocol", "Endpoint")
			attributes := req.omitProperties("TopicArn", "Protocol", "Endpoint", "Region")
			if len(attributes) > 0 {
				in["Attributes"] = attributes
			}

			out, err := req.callOperation(ctx, "sns", "Subscribe", in)
			if err != nil {
				return err
			}

			return req.setPhysicalID(ctx, out["SubscriptionArn"])
		},
		Stabilize: func(ctx context.Context, req *Request) error {
			req.Attributes["Arn"] = req.PhysicalID
			in := template.Object{"SubscriptionArn": req.PhysicalID}

			return req.runOperation(ctx, "sns", "GetSubscriptionAttributes", in)
		},
		Delete: func(ctx context.Context, req *Request) error {
			return req.runOperation(ctx, "sns", "Unsubscribe", template.Object{"SubscriptionArn": req.PhysicalID})
		},
	}
}

// syncNotifications gives a group the notifications of NotificationConfigurations, and removes
// those that it no longer has.
func (req *Request) syncNotifications(ctx context.Context, before any) error {
	const property = "NotificationConfigurations"
	more, fewer := diffLists(before, req.Properties[property])
	kept := map[string]bool{}
	for _, n := range template.ListAt(req.Properties[property]) {
		kept[template.StringAt(n, "TopicARN")] = true
	}

	for _, n := range more {
		in := template.Object{
			"AutoScalingGroupName": req.PhysicalID,
			"TopicARN":             template.ValueAt(n, "TopicARN"),
			"NotificationTypes":    template.ValueAt(n, "NotificationTypes"),
		}
		if err := req.runOperation(ctx, "autoscaling", "PutNotificationConfiguration", in); err != nil {
			return err
		}
	}

	for _, n := range fewer {
		topic := template.StringAt(n, "TopicARN")
		if kept[topic] {
			continue
		}

		in := template.Object{"AutoScalingGroupName": req.PhysicalID, "TopicARN": topic}
		if err := req.runOperation(ctx, "autoscaling", "DeleteNotificationConfiguration", in); err != nil {
			return err
		}
	}

	return nil
}
