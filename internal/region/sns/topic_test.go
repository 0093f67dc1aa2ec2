// SPDX-License-Identifier: Apache-2.0

package sns_test

import (
	"errors"
	"strings"
	"testing"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/credentials"
	"github.com/aws/aws-sdk-go-v2/service/iam"
	"github.com/aws/aws-sdk-go-v2/service/sns"
	snstypes "github.com/aws/aws-sdk-go-v2/service/sns/types"
	"github.com/aws/smithy-go"

	"github.com/slipway-k8s/slipway/internal/region/regiontest"
)

// errorText returns the code and the message of an error of the region.
func errorText(err error) string {
	if api, ok := errors.AsType[smithy.APIError](err); ok {
		return api.ErrorCode() + ": " + api.ErrorMessage()
	}

	return ""
}

// policyFor returns a policy of the topic with one statement.
func policyFor(effect, principal, action, resource string) string {
	return `{"Version":"2012-10-17","Statement":[{"Effect":"` + effect + `","Principal":{"AWS":"` + principal + `"},"Action":"` + action + `","Resource":"` + resource + `"}]}`
}

// TestTopics: a topic is created once, described with the policy that AWS gives it, and tagged.
func TestTopics(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	api := sns.NewFromConfig(regiontest.StartWith(t, regiontest.Options{}).AWSConfig())
	tags := []snstypes.Tag{{Key: aws.String("team"), Value: aws.String("a")}}
	create := func(in *sns.CreateTopicInput) string {
		in.Name = aws.String("launches")
		out, err := api.CreateTopic(ctx, in)
		if err == nil && *out.TopicArn != topicARN {
			t.Errorf("the ARN is %s", *out.TopicArn)
		}

		return errorText(err)
	}
	for _, c := range []struct {
		in   sns.CreateTopicInput
		want string
	}{
		{sns.CreateTopicInput{Tags: tags}, ""},
		{sns.CreateTopicInput{Tags: tags}, ""},
		{sns.CreateTopicInput{}, ""},
		{sns.CreateTopicInput{Tags: []snstypes.Tag{{Key: aws.String("team"), Value: aws.String("b")}}}, "InvalidParameter: Invalid parameter: Tags Reason: Topic already exists with different tags"},
		{sns.CreateTopicInput{Attributes: map[string]string{"DisplayName": "x"}}, "InvalidParameter: Invalid parameter: Attributes Reason: Topic already exists with different attributes"},
		{sns.CreateTopicInput{Attributes: map[string]string{"FifoTopic": "true"}}, "NotImplemented: "},
		{sns.CreateTopicInput{Attributes: map[string]string{"x": "y"}}, "InvalidParameter: Invalid parameter: AttributeName"},
	} {
		if have := create(&c.in); !strings.HasPrefix(have, c.want) || c.want == "" && have != "" {
			t.Errorf("create %+v: %s, want %s", c.in, have, c.want)
		}
	}

	if _, err := api.CreateTopic(ctx, &sns.CreateTopicInput{Name: aws.String("a.b")}); errorText(err) != "InvalidParameter: Invalid parameter: Topic Name" {
		t.Errorf("a name with a dot: %v", err)
	}

	have, err := api.GetTopicAttributes(ctx, &sns.GetTopicAttributesInput{TopicArn: aws.String(topicARN)})
	if err != nil || !strings.Contains(have.Attributes["Policy"], `"AWS:SourceOwner":"123456789012"`) || have.Attributes["Owner"] != "123456789012" {
		t.Errorf("the attributes are %v, %v", have, err)
	}

	_, err = api.UntagResource(ctx, &sns.UntagResourceInput{ResourceArn: aws.String(topicARN), TagKeys: []string{"team"}})
	list, listErr := api.ListTagsForResource(ctx, &sns.ListTagsForResourceInput{ResourceArn: aws.String(topicARN)})
	if err != nil || listErr != nil || len(list.Tags) != 0 {
		t.Errorf("tags: %v, %v, %v", list, err, listErr)
	}

	for range 2 { // the second one finds nothing
		if _, err := api.DeleteTopic(ctx, &sns.DeleteTopicInput{TopicArn: aws.String(topicARN)}); err != nil {
			t.Error(err)
		}
	}

	for arn, want := range map[string]string{
		topicARN: "NotFound: Topic does not exist",
		"x":      "InvalidParameter: Invalid parameter: TopicArn Reason: An ARN must have at least 6 elements, not 1",
		"arn:aws:sns:eu-west-1:123456789012:launches": "InvalidParameter: Invalid parameter: TopicArn",
	} {
		if _, err := api.GetTopicAttributes(ctx, &sns.GetTopicAttributesInput{TopicArn: &arn}); errorText(err) != want {
			t.Errorf("%s: %v, want %s", arn, err, want)
		}
	}
}

// TestSubscriptions: a function is subscribed once, and the region refuses what it does not deliver to.
func TestSubscriptions(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	api := sns.NewFromConfig(regiontest.StartWith(t, regiontest.Options{}).AWSConfig())
	if _, err := api.CreateTopic(ctx, &sns.CreateTopicInput{Name: aws.String("launches")}); err != nil {
		t.Fatal(err)
	}

	subscribe := func(protocol, endpoint string) (string, error) {
		out, err := api.Subscribe(ctx, &sns.SubscribeInput{TopicArn: aws.String(topicARN), Protocol: &protocol, Endpoint: &endpoint})
		if err != nil {
			return "", err
		}

		return *out.SubscriptionArn, nil
	}
	first, err := subscribe("lambda", functionARN)
	second, again := subscribe("lambda", functionARN)
	if err != nil || again != nil || first != second || !strings.HasPrefix(first, topicARN+":") {
		t.Errorf("subscriptions %s, %v and %s, %v", first, err, second, again)
	}

	for want, in := range map[string][2]string{
		"NotImplemented: ": {"email", "a@example.com"},
		"InvalidParameter: Invalid parameter: Amazon SNS does not support this protocol string: fax": {"fax", "1"},
		"InvalidParameter: Invalid parameter: Lambda endpoint ARN":                                   {"lambda", "f"},
	} {
		if _, err := subscribe(in[0], in[1]); !strings.HasPrefix(errorText(err), want) {
			t.Errorf("subscribe %v: %v, want %s", in, err, want)
		}
	}

	attributes, err := api.GetSubscriptionAttributes(ctx, &sns.GetSubscriptionAttributesInput{SubscriptionArn: &first})
	if err != nil || attributes.Attributes["Endpoint"] != functionARN || attributes.Attributes["PendingConfirmation"] != "false" {
		t.Errorf("the attributes are %v, %v", attributes, err)
	}

	for _, arn := range []string{first, first} { // the second one finds nothing
		if _, err := api.Unsubscribe(ctx, &sns.UnsubscribeInput{SubscriptionArn: &arn}); err != nil {
			t.Error(err)
		}
	}

	if _, err := api.Unsubscribe(ctx, &sns.UnsubscribeInput{SubscriptionArn: aws.String(topicARN + ":x")}); errorText(err) != "InvalidParameter: Invalid parameter: SubscriptionId" {
		t.Errorf("an id of another form: %v", err)
	}

	list, err := api.ListSubscriptionsByTopic(ctx, &sns.ListSubscriptionsByTopicInput{TopicArn: aws.String(topicARN)})
	if err != nil || len(list.Subscriptions) != 0 {
		t.Errorf("subscriptions: %v, %v", list, err)
	}
}

// TestAccess: without a policy of its own, everybody in the account may use a topic. With one, only those whom it or IAM allows.
func TestAccess(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	cfg := regiontest.StartWith(t, regiontest.Options{}).AWSConfig()
	api := sns.NewFromConfig(cfg)
	if _, err := api.CreateTopic(ctx, &sns.CreateTopicInput{Name: aws.String("launches")}); err != nil {
		t.Fatal(err)
	}

	users := iam.NewFromConfig(cfg)
	if _, err := users.CreateUser(ctx, &iam.CreateUserInput{UserName: aws.String("u")}); err != nil {
		t.Fatal(err)
	}
	key, err := users.CreateAccessKey(ctx, &iam.CreateAccessKeyInput{UserName: aws.String("u")})
	if err != nil {
		t.Fatal(err)
	}

	own := cfg.Copy()
	own.Credentials = credentials.NewStaticCredentialsProvider(*key.AccessKey.AccessKeyId, *key.AccessKey.SecretAccessKey, "")
	user := sns.NewFromConfig(own)
	read := func() string {
		_, err := user.GetTopicAttributes(ctx, &sns.GetTopicAttributesInput{TopicArn: aws.String(topicARN)})
		return errorText(err)
	}
	setPolicy := func(policy string) string {
		_, err := api.SetTopicAttributes(ctx, &sns.SetTopicAttributesInput{
			TopicArn: aws.String(topicARN), AttributeName: aws.String("Policy"), AttributeValue: &policy,
		})

		return errorText(err)
	}

	const denied = "AuthorizationError: User: arn:aws:iam::123456789012:user/u is not authorized to perform: SNS:GetTopicAttributes on resource: " + topicARN
	const userARN = "arn:aws:iam::123456789012:user/u"
	for _, c := range []struct{ policy, set, want string }{
		{"", "", ""},
		{policyFor("Allow", "arn:aws:iam::123456789012:root", "sns:Publish", topicARN), "", denied},
		{policyFor("Allow", userARN, "sns:GetTopicAttributes", topicARN), "", ""},
		{policyFor("Deny", userARN, "sns:GetTopicAttributes", topicARN), "", denied},
		{policyFor("Allow", userARN, "s3:GetObject", topicARN), "InvalidParameter: Invalid parameter: Policy statement action out of service scope!", denied},
		{policyFor("Allow", userARN, "sns:Publish", topicARN+"x"), "InvalidParameter: Invalid parameter: Policy Reason: the resource", denied},
		{policyFor("Allow", scalingRole, "sns:Publish", topicARN), "InvalidParameter: Invalid parameter: Policy Error: PrincipalNotFound", denied},
		{"{", "InvalidParameter: Invalid parameter: Policy failed to parse JSON", denied},
	} {
		if have := setPolicy(c.policy); !strings.HasPrefix(have, c.set) || c.set == "" && have != "" {
			t.Errorf("set policy %s: %s, want %s", c.policy, have, c.set)
		}

		if have := read(); !strings.HasPrefix(have, c.want) || c.want == "" && have != "" {
			t.Errorf("read with policy %s: %s, want %s", c.policy, have, c.want)
		}
	}

	if _, err := user.CreateTopic(ctx, &sns.CreateTopicInput{Name: aws.String("mine")}); !strings.HasPrefix(errorText(err), "AuthorizationError: ") {
		t.Errorf("create a topic: %v", err)
	}
}
