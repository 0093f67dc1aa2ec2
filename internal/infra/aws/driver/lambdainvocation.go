// SPDX-License-Identifier: Apache-2.0

package driver

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"maps"
	"strings"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/lambda"

	"github.com/slipway-k8s/slipway/internal/infra/aws/transport"
	"github.com/slipway-k8s/slipway/internal/infra/awskind"
	"github.com/slipway-k8s/slipway/internal/infra/graph"
	"github.com/slipway-k8s/slipway/internal/infra/plan"
)

type functionInvokeAPI interface {
	Invoke(context.Context, *lambda.InvokeInput, ...func(*lambda.Options)) (*lambda.InvokeOutput, error)
}

// The actions that a function gets with the input of an invocation, in the form in which Terraform passes them.
const (
	invokeCreate = "create"
	invokeUpdate = "update"
	invokeDelete = "delete"
)

// registerInvocations registers the driver of invocations of functions. AWS does not know them: a tag of the function records
// the input of the last one.
func registerInvocations(c *Cloud, api lambdaAPI) {
	run := func(ctx context.Context, t task[awskind.LambdaInvocation], action string) (plan.StepResult, error) {
		arn, _ := t.want.Function.Literal()
		result := plan.StepResult{ID: arn}
		if err := invokeFunction(ctx, api, arn, t.want.Input, action); err != nil {
			return result, err
		}

		in := &lambda.TagResourceInput{
			Resource: &arn,
			Tags:     map[string]string{awskind.TagInvoked: encodeInput(t.want.Input)},
		}
		_, err := api.TagResource(ctx, in)

		return result, transport.Wrap(err, "record the invocation of %s in a tag", arn)
	}

	registerDriver(c, driver[awskind.LambdaInvocation]{
		create: func(ctx context.Context, t task[awskind.LambdaInvocation]) (plan.StepResult, error) {
			return run(ctx, t, invokeCreate)
		},
		update: func(ctx context.Context, t task[awskind.LambdaInvocation]) (plan.StepResult, error) {
			return run(ctx, t, invokeUpdate)
		},
		remove: func(ctx context.Context, t task[awskind.LambdaInvocation]) error {
			return invokeFunction(ctx, api, t.id, t.have.Input, invokeDelete)
		},
	})
}

// invokeFunction invokes a function and waits for its answer. A failure of the function is retried: its role may be too
// new to be seen everywhere.
func invokeFunction(ctx context.Context, api functionInvokeAPI, arn string, input graph.JSON, action string) error {
	fields := map[string]any{}
	if err := json.Unmarshal([]byte(input), &fields); err != nil {
		return fmt.Errorf("read the input of function %s: %w", arn, err)
	}

	event := maps.Clone(fields)
	event["tf"] = map[string]string{"action": action}
	payload, err := json.Marshal(event)
	if err != nil {
		return fmt.Errorf("encode the input of function %s: %w", arn, err)
	}

	out, err := api.Invoke(ctx, &lambda.InvokeInput{FunctionName: &arn, Payload: payload})
	if err != nil {
		return transport.Wrap(err, "invoke function %s to %s", arn, action)
	}

	if out.FunctionError == nil {
		return nil
	}

	var failure struct {
		Message string `json:"errorMessage"`
	}
	if json.Unmarshal(out.Payload, &failure) != nil || failure.Message == "" {
		failure.Message = aws.ToString(out.FunctionError)
	}

	return transport.NotYet("function %s failed to %s: %s", arn, action, failure.Message)
}

// encodeInput returns an input in the characters that the value of a tag may have.
func encodeInput(input graph.JSON) string { return base64.StdEncoding.EncodeToString([]byte(input)) }

// readInvocation returns the invocation that the tags of a function record. It has the function's name in the graph.
func readInvocation(function plan.ActualResource, tags map[string]string) []plan.ActualResource {
	value, recorded := tags[awskind.TagInvoked]
	if !recorded {
		return nil
	}

	input, err := base64.StdEncoding.DecodeString(value)
	if err != nil || !json.Valid(input) {
		input = []byte("{}") // somebody has changed the tag: the next apply invokes the function again
	}

	arn := function.Attributes["Arn"]
	_, name, _ := strings.Cut(string(function.Addr), "/")

	return []plan.ActualResource{{
		Addr: graph.Address(awskind.LambdaInvocation{}.Kind(), name),
		ID:   arn,
		Resource: awskind.LambdaInvocation{
			Function: graph.LiteralText(arn),
			Input:    graph.JSON(input),
		},
	}}
}
