// SPDX-License-Identifier: Apache-2.0

package driver

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/lambda"

	"github.com/slipway-k8s/slipway/internal/infra/aws/transport"
	"github.com/slipway-k8s/slipway/internal/infra/awskind"
	"github.com/slipway-k8s/slipway/internal/infra/graph"
	"github.com/slipway-k8s/slipway/internal/infra/plan"
)

type functionPolicyAPI interface {
	GetPolicy(context.Context, *lambda.GetPolicyInput, ...func(*lambda.Options)) (*lambda.GetPolicyOutput, error)
	AddPermission(
		context.Context,
		*lambda.AddPermissionInput,
		...func(*lambda.Options),
	) (*lambda.AddPermissionOutput, error)
	RemovePermission(
		context.Context,
		*lambda.RemovePermissionInput,
		...func(*lambda.Options),
	) (*lambda.RemovePermissionOutput, error)
}

// permissionStatement returns the id of the statement that Slipway adds to the policy of a function for a service.
func permissionStatement(principal string) string {
	const base = "slipway"
	if principal == awskind.PrincipalEventBridge {
		return base
	}

	service, _, _ := strings.Cut(principal, ".")

	return base + "-" + service
}

// registerFunctionPermissions registers the driver of the permissions of functions. They are read with their function.
func registerFunctionPermissions(c *Cloud, api functionPolicyAPI) {
	registerDriver(c, driver[awskind.LambdaPermission]{
		create: func(ctx context.Context, t task[awskind.LambdaPermission]) (plan.StepResult, error) {
			function := t.want.Function.Literal()
			source, _ := t.want.SourceARN.Literal()
			statement := permissionStatement(t.want.Principal)
			_, err := api.AddPermission(ctx, &lambda.AddPermissionInput{
				FunctionName: &function,
				StatementId:  &statement,
				Action:       &t.want.Action,
				Principal:    &t.want.Principal,
				SourceArn:    stringOrNil(source),
			})

			return plan.StepResult{ID: permissionID(function, statement)},
				transport.Wrap(err, "let %s invoke function %s", t.want.Principal, function)
		},
		remove: func(ctx context.Context, t task[awskind.LambdaPermission]) error {
			function := t.have.Function.Literal()
			statement := t.id[len(permissionID(function, "")):]
			in := &lambda.RemovePermissionInput{FunctionName: &function, StatementId: &statement}
			_, err := api.RemovePermission(ctx, in)

			return transport.Wrap(err, "remove statement %s from the policy of function %s", statement, function)
		},
	})
}

// permissionID returns the id of a permission.
func permissionID(function, statement string) string { return function + ":" + statement }

// functionPolicy has those parts of the policy of a function that a permission consists of.
type functionPolicy struct {
	Statement []struct {
		Sid       string
		Action    string
		Principal json.RawMessage
		Condition struct {
			ArnLike map[string]string
		}
	}
}

// readPermissions returns the permissions of services to invoke a function.
func readPermissions(ctx context.Context, api functionPolicyAPI, function string) ([]plan.ActualResource, error) {
	res, err := api.GetPolicy(ctx, &lambda.GetPolicyInput{FunctionName: &function})
	err = transport.Wrap(err, "read the policy of function %s", function)
	if plan.ErrorClassOf(err) == plan.NotFound {
		return nil, nil
	}

	if err != nil {
		return nil, err
	}

	var policy functionPolicy
	if err := json.Unmarshal([]byte(aws.ToString(res.Policy)), &policy); err != nil {
		return nil, fmt.Errorf("read the policy of function %s: %w", function, err)
	}

	var out []plan.ActualResource
	for _, s := range policy.Statement {
		out = append(out, plan.ActualResource{
			ID: permissionID(function, s.Sid),
			Resource: awskind.LambdaPermission{
				Function:  graph.UnmanagedRef[awskind.LambdaFunction](function),
				Action:    s.Action,
				Principal: principalName(s.Principal),
				SourceARN: graph.LiteralText(s.Condition.ArnLike["AWS:SourceArn"]),
			},
		})
	}

	return out, nil
}

// principalName returns the service of a principal, or the principal as it is in the policy.
func principalName(principal json.RawMessage) string {
	var service struct{ Service string }
	if json.Unmarshal(principal, &service) == nil && service.Service != "" {
		return service.Service
	}

	return string(principal)
}
