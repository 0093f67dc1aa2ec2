// SPDX-License-Identifier: Apache-2.0

package stack_test

import (
	"strings"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/cloudformation"

	"github.com/slipway-k8s/slipway/internal/infra/plan"
	"github.com/slipway-k8s/slipway/internal/infra/stack"
	"github.com/slipway-k8s/slipway/internal/lib/diag"
	"github.com/slipway-k8s/slipway/internal/region/regiontest"
)

// TestTooManyStacks: the plan of a cluster in an account with too many stacks names the quota.
func TestTooManyStacks(t *testing.T) {
	const body = `{"Resources":{"Handle":{"Type":"AWS::CloudFormation::WaitConditionHandle"}}}`
	api := cloudformation.NewFromConfig(regiontest.StartWith(t, regiontest.Options{MaxStacks: 1}).AWSConfig())
	_, err := api.CreateStack(t.Context(), &cloudformation.CreateStackInput{StackName: aws.String("one"), TemplateBody: aws.String(body)})
	if err != nil {
		t.Fatal(err)
	}

	s := stack.Stack{API: api, Name: "two", Now: time.Now, OnEvent: func(plan.Event) {}, OnNotice: func(string) {}}
	_, err = s.CreateChangeSet(t.Context(), stack.Template{Body: body, Name: "x"}, stack.Info{})
	if err == nil || !strings.Contains(err.Error(), "Limit for stack has been exceeded") {
		t.Fatal(err)
	}

	if hints := strings.Join(diag.Hints(err), " "); !strings.Contains(hints, `the quota "Stack count" (L-0485CB21)`) {
		t.Errorf("hints: %s", hints)
	}
}
