// SPDX-License-Identifier: Apache-2.0

package driver

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/aws/arn"
	"github.com/aws/aws-sdk-go-v2/service/sns"
	snstypes "github.com/aws/aws-sdk-go-v2/service/sns/types"
	"github.com/aws/aws-sdk-go-v2/service/sts"

	"github.com/slipway-k8s/slipway/internal/infra/aws/transport"
	"github.com/slipway-k8s/slipway/internal/infra/awskind"
	"github.com/slipway-k8s/slipway/internal/infra/graph"
	"github.com/slipway-k8s/slipway/internal/infra/plan"
)

type topicAPI interface {
	CreateTopic(context.Context, *sns.CreateTopicInput, ...func(*sns.Options)) (*sns.CreateTopicOutput, error)
	GetTopicAttributes(
		context.Context,
		*sns.GetTopicAttributesInput,
		...func(*sns.Options),
	) (*sns.GetTopicAttributesOutput, error)
	SetTopicAttributes(
		context.Context,
		*sns.SetTopicAttributesInput,
		...func(*sns.Options),
	) (*sns.SetTopicAttributesOutput, error)
	DeleteTopic(context.Context, *sns.DeleteTopicInput, ...func(*sns.Options)) (*sns.DeleteTopicOutput, error)
	topicTagAPI
	subscriptionAPI
}

type topicTagAPI interface {
	ListTagsForResource(
		context.Context,
		*sns.ListTagsForResourceInput,
		...func(*sns.Options),
	) (*sns.ListTagsForResourceOutput, error)
	TagResource(context.Context, *sns.TagResourceInput, ...func(*sns.Options)) (*sns.TagResourceOutput, error)
	UntagResource(context.Context, *sns.UntagResourceInput, ...func(*sns.Options)) (*sns.UntagResourceOutput, error)
}

type callerAPI interface {
	GetCallerIdentity(
		context.Context,
		*sts.GetCallerIdentityInput,
		...func(*sts.Options),
	) (*sts.GetCallerIdentityOutput, error)
}

// FindTopic makes [Cloud.Read] read the SNS topic with a name in the caller's account, its
// subscription, and the notifications that Auto Scaling groups send to it. known is as for
// [Cloud.FindFunction]. Call it before Read.
func (c *Cloud) FindTopic(name string, known bool) {
	c.topic = functionSearch{name: name, isKnown: known}
}

// topicDriver is the driver of topics and of their subscriptions.
type topicDriver struct {
	api    topicAPI
	caller callerAPI
	region string
}

// registerTopics registers the drivers of an SNS topic and of the subscription of a function to it.
func registerTopics(c *Cloud, api topicAPI, caller callerAPI, scope Scope) {
	d := topicDriver{api: api, caller: caller, region: scope.Region}
	c.addReader(func(ctx context.Context) ([]plan.ActualResource, error) {
		return c.topic.readWith(func(name string) ([]plan.ActualResource, error) { return d.read(ctx, name) })
	}, awskind.SNSTopic{}, awskind.SNSSubscription{})

	registerDriver(c, driver[awskind.SNSTopic]{
		create: d.create,
		update: d.update,
		remove: func(ctx context.Context, t task[awskind.SNSTopic]) error {
			_, err := api.DeleteTopic(ctx, &sns.DeleteTopicInput{TopicArn: &t.id})
			return transport.Wrap(err, "delete")
		},
	})

	registerSubscriptions(c, api)
}

// topicARN returns the ARN of the topic with a name. SNS finds topics by their ARN only.
func (d topicDriver) topicARN(ctx context.Context, name string) (string, error) {
	who, err := d.caller.GetCallerIdentity(ctx, &sts.GetCallerIdentityInput{})
	if err != nil {
		return "", transport.Wrap(err, "read the account of topic %s", name)
	}

	caller, err := arn.Parse(aws.ToString(who.Arn))
	if err != nil {
		return "", fmt.Errorf("read the partition of topic %s: %w", name, err)
	}

	return arn.ARN{
		Partition: caller.Partition,
		Service:   "sns",
		Region:    d.region,
		AccountID: aws.ToString(who.Account),
		Resource:  name,
	}.String(), nil
}

// read returns the topic with a name and the subscription of the function of that name; nothing if
// there is no topic.
func (d topicDriver) read(ctx context.Context, name string) ([]plan.ActualResource, error) {
	id, err := d.topicARN(ctx, name)
	if err != nil {
		return nil, err
	}

	topic, err := d.api.GetTopicAttributes(ctx, &sns.GetTopicAttributesInput{TopicArn: &id})
	err = transport.Wrap(err, "read topic %s", name)
	if plan.ErrorClassOf(err) == plan.NotFound {
		return nil, nil
	}

	if err != nil {
		return nil, err
	}

	r := awskind.SNSTopic{
		Name:   name,
		Policy: awskind.TopicPolicy{Document: graph.CanonicalJSON(topic.Attributes[policyAttribute])},
		Tags:   awskind.Tags{},
	}

	tags, err := d.api.ListTagsForResource(ctx, &sns.ListTagsForResourceInput{ResourceArn: &id})
	if err != nil {
		return nil, transport.Wrap(err, "list the tags of topic %s", name)
	}

	for _, t := range tags.Tags {
		r.Tags[aws.ToString(t.Key)] = aws.ToString(t.Value)
	}

	out := newActual(&id, r.Tags, r)
	out.Attributes = map[string]string{topicARNAttribute: id}
	subscriptions, err := readSubscriptions(ctx, d.api, id, name)

	return append([]plan.ActualResource{out}, subscriptions...), err
}

const (
	// policyAttribute is the attribute of a topic that is its policy.
	policyAttribute = "Policy"
	// topicARNAttribute is CloudFormation's name of the attribute of a topic that is its ARN.
	topicARNAttribute = "TopicArn"
)

// create creates a topic with its policy, or finds the one that an earlier attempt has created.
func (d topicDriver) create(ctx context.Context, t task[awskind.SNSTopic]) (plan.StepResult, error) {
	w := t.want
	out, err := d.api.CreateTopic(ctx, &sns.CreateTopicInput{
		Name:       &w.Name,
		Attributes: map[string]string{policyAttribute: string(w.Policy.Document)},
		Tags:       toTopicTags(w.Tags),
	})
	if err != nil {
		return plan.StepResult{}, transport.Wrap(err, "create topic %s", w.Name)
	}

	id := aws.ToString(out.TopicArn)

	return plan.StepResult{ID: id, Attributes: map[string]string{topicARNAttribute: id}}, nil
}

// update changes the policy and the tags of a topic.
func (d topicDriver) update(ctx context.Context, t task[awskind.SNSTopic]) (plan.StepResult, error) {
	result := plan.StepResult{ID: t.id, Attributes: map[string]string{topicARNAttribute: t.id}}
	if policy := t.want.Policy.Document; policy != t.have.Policy.Document {
		_, err := d.api.SetTopicAttributes(ctx, &sns.SetTopicAttributesInput{
			TopicArn:       &t.id,
			AttributeName:  aws.String(policyAttribute),
			AttributeValue: aws.String(string(policy)),
		})
		if err != nil {
			return result, transport.Wrap(err, "set the policy of topic %s", t.want.Name)
		}
	}

	set, remove := diffTags(t.want.Tags, t.have.Tags)
	if len(set) > 0 {
		in := &sns.TagResourceInput{ResourceArn: &t.id, Tags: toTopicTags(set)}
		if _, err := d.api.TagResource(ctx, in); err != nil {
			return result, transport.Wrap(err, "tag %s", t.id)
		}
	}

	if len(remove) > 0 {
		in := &sns.UntagResourceInput{ResourceArn: &t.id, TagKeys: remove}
		if _, err := d.api.UntagResource(ctx, in); err != nil {
			return result, transport.Wrap(err, "untag %s", t.id)
		}
	}

	return result, nil
}

func toTopicTags(tags awskind.Tags) []snstypes.Tag {
	var out []snstypes.Tag
	for _, k := range slices.Sorted(maps.Keys(tags)) {
		out = append(out, snstypes.Tag{Key: &k, Value: aws.String(tags[k])})
	}

	return out
}

// isTopicNamed reports whether an ARN is that of the topic with a name.
func isTopicNamed(topic, name string) bool { return strings.HasSuffix(topic, ":"+name) }
