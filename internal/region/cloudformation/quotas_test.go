// SPDX-License-Identifier: Apache-2.0

package cloudformation_test

import (
	"strings"
	"testing"

	"github.com/aws/aws-sdk-go-v2/aws"
	cfn "github.com/aws/aws-sdk-go-v2/service/cloudformation"
	"github.com/aws/aws-sdk-go-v2/service/cloudformation/types"

	"github.com/slipway-k8s/slipway/internal/region/regiontest"
)

// TestStackQuota: a region has as many stacks as the quota allows, with those that only have change sets. Deleted ones do not
// count.
func TestStackQuota(t *testing.T) {
	t.Parallel()
	const body = `{"Resources":{"Handle":{"Type":"AWS::CloudFormation::WaitConditionHandle"}}}`
	l := labOf(t, regiontest.StartWith(t, regiontest.Options{NoDefaultVPC: true, MaxStacks: 2}))
	l.create("one", body)
	review := func(name string) error {
		_, err := l.cfn.CreateChangeSet(l.ctx(), &cfn.CreateChangeSetInput{
			StackName: &name, ChangeSetName: aws.String("first"), ChangeSetType: types.ChangeSetTypeCreate, TemplateBody: aws.String(body),
		})
		return err
	}
	if err := review("two"); err != nil {
		t.Fatal(err)
	}

	const want = "LimitExceededException: Limit for stack has been exceeded"
	if got := refused(review("three")); got != want {
		t.Errorf("a third stack by a change set: %q", got)
	}
	create := func(name string) error {
		_, err := l.cfn.CreateStack(l.ctx(), &cfn.CreateStackInput{StackName: &name, TemplateBody: aws.String(body)})
		return err
	}
	if got := refused(create("three")); got != want {
		t.Errorf("a third stack: %q", got)
	}

	l.remove("one")
	if err := create("three"); err != nil {
		t.Errorf("a stack in place of a deleted one: %v", err)
	}
	if err := create("two"); err != nil {
		t.Errorf("the stack of the change set: %v", err)
	}
}

// TestNotificationsAreRefused: the region sends no events of stacks to topics, so it refuses topics by name.
func TestNotificationsAreRefused(t *testing.T) {
	t.Parallel()
	const body = `{"Resources":{"Handle":{"Type":"AWS::CloudFormation::WaitConditionHandle"}}}`
	l := labOf(t, regiontest.StartWith(t, regiontest.Options{NoDefaultVPC: true}))
	topics := []string{"arn:aws:sns:eu-west-1:123456789012:stacks"}
	_, err := l.cfn.CreateStack(l.ctx(), &cfn.CreateStackInput{
		StackName: aws.String("one"), TemplateBody: aws.String(body), NotificationARNs: topics,
	})
	if got := refused(err); !strings.Contains(got, "NotificationARNs") {
		t.Errorf("a stack with topics: %q", got)
	}
	_, err = l.cfn.CreateChangeSet(l.ctx(), &cfn.CreateChangeSetInput{
		StackName: aws.String("two"), ChangeSetName: aws.String("first"), ChangeSetType: types.ChangeSetTypeCreate, TemplateBody: aws.String(body),
		NotificationARNs: topics,
	})
	if got := refused(err); !strings.Contains(got, "NotificationARNs") {
		t.Errorf("a change set with topics: %q", got)
	}
}
