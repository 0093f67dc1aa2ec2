// SPDX-License-Identifier: Apache-2.0

package driver

import (
	"context"
	"errors"
	"fmt"
	"maps"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/lambda"
	lambdatypes "github.com/aws/aws-sdk-go-v2/service/lambda/types"

	"github.com/slipway-k8s/slipway/internal/infra/aws/transport"
	"github.com/slipway-k8s/slipway/internal/infra/awskind"
	"github.com/slipway-k8s/slipway/internal/infra/graph"
	"github.com/slipway-k8s/slipway/internal/infra/plan"
)

type lambdaAPI interface {
	GetFunction(
		context.Context,
		*lambda.GetFunctionInput,
		...func(*lambda.Options),
	) (*lambda.GetFunctionOutput, error)
	CreateFunction(
		context.Context,
		*lambda.CreateFunctionInput,
		...func(*lambda.Options),
	) (*lambda.CreateFunctionOutput, error)
	UpdateFunctionCode(
		context.Context,
		*lambda.UpdateFunctionCodeInput,
		...func(*lambda.Options),
	) (*lambda.UpdateFunctionCodeOutput, error)
	UpdateFunctionConfiguration(
		context.Context,
		*lambda.UpdateFunctionConfigurationInput,
		...func(*lambda.Options),
	) (*lambda.UpdateFunctionConfigurationOutput, error)
	DeleteFunction(
		context.Context,
		*lambda.DeleteFunctionInput,
		...func(*lambda.Options),
	) (*lambda.DeleteFunctionOutput, error)
	functionTagAPI
	functionPolicyAPI
	functionInvokeAPI
}

type functionTagAPI interface {
	TagResource(
		context.Context,
		*lambda.TagResourceInput,
		...func(*lambda.Options),
	) (*lambda.TagResourceOutput, error)
	UntagResource(
		context.Context,
		*lambda.UntagResourceInput,
		...func(*lambda.Options),
	) (*lambda.UntagResourceOutput, error)
}

// FindFunction makes [Cloud.Read] read the Lambda function with a name, and the rule and the log group that belong to it.
// If known is false, the manifests are lost: a caller who may not read them is then assumed to have none. Call it before
// Read.
func (c *Cloud) FindFunction(name string, known bool) {
	c.function = functionSearch{name: name, isKnown: known}
}

// functionSearch is which function, or which topic, [Cloud.Read] reads; the zero value is none.
type functionSearch struct {
	name    string
	isKnown bool
}

// readWith returns what read finds; nothing without a name.
func (s functionSearch) readWith(read func(name string) ([]plan.ActualResource, error)) ([]plan.ActualResource, error) {
	if s.name == "" {
		return nil, nil
	}

	found, err := read(s.name)
	if !s.isKnown && plan.ErrorClassOf(err) == plan.AccessDenied {
		return nil, nil
	}

	return found, err
}

// registerFunctions registers the drivers of a Lambda function, of its policy and of its invocation.
func registerFunctions(c *Cloud, api lambdaAPI, scope Scope) {
	c.addReader(func(ctx context.Context) ([]plan.ActualResource, error) {
		return c.function.readWith(func(name string) ([]plan.ActualResource, error) {
			return readFunction(ctx, api, name, scope)
		})
	}, awskind.LambdaFunction{}, awskind.LambdaPermission{})

	registerDriver(c, driver[awskind.LambdaFunction]{
		create: func(ctx context.Context, t task[awskind.LambdaFunction]) (plan.StepResult, error) {
			return createFunction(ctx, api, t.want)
		},
		update: func(ctx context.Context, t task[awskind.LambdaFunction]) (plan.StepResult, error) {
			return updateFunction(ctx, api, t)
		},
		remove: func(ctx context.Context, t task[awskind.LambdaFunction]) error {
			_, err := api.DeleteFunction(ctx, &lambda.DeleteFunctionInput{FunctionName: &t.id})
			return transport.Wrap(err, "delete")
		},
	})

	registerFunctionPermissions(c, api)
	registerInvocations(c, api)
}

// readFunction returns the function with a name, its permissions and its last invocation; nothing if there is none.
func readFunction(ctx context.Context, api lambdaAPI, name string, scope Scope) ([]plan.ActualResource, error) {
	out, err := api.GetFunction(ctx, &lambda.GetFunctionInput{FunctionName: &name})
	err = transport.Wrap(err, "read function %s", name)
	if plan.ErrorClassOf(err) == plan.NotFound {
		return nil, nil
	}

	if err != nil {
		return nil, err
	}

	function := fromFunction(out.Configuration, out.Tags)
	found := []plan.ActualResource{function}
	if out.Tags[awskind.TagCluster] != scope.Cluster { // the caller drops it
		return found, nil
	}

	found = append(found, readInvocation(function, out.Tags)...)
	permissions, err := readPermissions(ctx, api, name)

	return append(found, permissions...), err
}

// fromFunction returns a function. The tag that records its invocation is not among its tags.
func fromFunction(f *lambdatypes.FunctionConfiguration, tags map[string]string) plan.ActualResource {
	own := maps.Clone(tags)
	delete(own, awskind.TagInvoked)

	r := awskind.LambdaFunction{
		Name:        aws.ToString(f.FunctionName),
		Description: aws.ToString(f.Description),
		Role:        graph.LiteralText(aws.ToString(f.Role)),
		Runtime:     string(f.Runtime),
		Handler:     aws.ToString(f.Handler),
		MemorySize:  int(aws.ToInt32(f.MemorySize)),
		Timeout:     int(aws.ToInt32(f.Timeout)),
		CodeSHA256:  aws.ToString(f.CodeSha256),
		Tags:        own,
	}

	for _, a := range f.Architectures {
		r.Architectures = append(r.Architectures, string(a))
	}

	if f.Environment != nil {
		v := f.Environment.Variables
		r.Environment.Variables = awskind.FunctionVariables{
			Cluster:   v[variableCluster],
			ClusterID: v[variableClusterID],
			Zone:      graph.UnmanagedRef[awskind.HostedZone](v[variableZone]),
		}
	}

	out := newActual(f.FunctionName, own, r)
	out.Attributes = map[string]string{"Arn": aws.ToString(f.FunctionArn)}

	return out
}

// The environment variables of cmd/slipway-dns.
const (
	variableCluster   = "SLIPWAY_CLUSTER"
	variableClusterID = "SLIPWAY_CLUSTER_ID"
	variableZone      = "SLIPWAY_ZONE"
)

// toEnvironment returns the environment of a function.
func toEnvironment(f awskind.LambdaFunction) *lambdatypes.Environment {
	v := f.Environment.Variables

	return &lambdatypes.Environment{Variables: map[string]string{
		variableCluster:   v.Cluster,
		variableClusterID: v.ClusterID,
		variableZone:      v.Zone.Literal(),
	}}
}

func toArchitectures(names []string) []lambdatypes.Architecture {
	var out []lambdatypes.Architecture
	for _, n := range names {
		out = append(out, lambdatypes.Architecture(n))
	}

	return out
}

// createFunction creates a function. Lambda refuses a role that IAM created seconds ago: the operation is then retried.
func createFunction(ctx context.Context, api lambdaAPI, w awskind.LambdaFunction) (plan.StepResult, error) {
	role, _ := w.Role.Literal()
	out, err := api.CreateFunction(ctx, &lambda.CreateFunctionInput{
		FunctionName:  &w.Name,
		Description:   stringOrNil(w.Description),
		Role:          &role,
		Runtime:       lambdatypes.Runtime(w.Runtime),
		Handler:       &w.Handler,
		Architectures: toArchitectures(w.Architectures),
		MemorySize:    int32OrNil(w.MemorySize),
		Timeout:       int32OrNil(w.Timeout),
		Code:          &lambdatypes.FunctionCode{S3Bucket: &w.Code.Bucket, S3Key: &w.Code.Key},
		Environment:   toEnvironment(w),
		Tags:          w.Tags,
	})
	if err != nil {
		return plan.StepResult{}, transport.Wrap(err, "create function %s", w.Name)
	}

	if err := checkFunctionCode(ctx, api, w, out.CodeSha256); err != nil {
		return plan.StepResult{}, err
	}

	return plan.StepResult{ID: w.Name, Attributes: map[string]string{"Arn": aws.ToString(out.FunctionArn)}}, nil
}

// updateFunction changes the code and the settings of a function. Lambda accepts one change at a time and needs a few seconds
// for each: a later one fails and the operation is retried, so the function is read each time.
func updateFunction(
	ctx context.Context,
	api lambdaAPI,
	t task[awskind.LambdaFunction],
) (plan.StepResult, error) {
	now, err := api.GetFunction(ctx, &lambda.GetFunctionInput{FunctionName: &t.id})
	if err != nil {
		return plan.StepResult{}, transport.Wrap(err, "read function %s", t.id)
	}

	found := fromFunction(now.Configuration, now.Tags)
	result := plan.StepResult{ID: t.id, Attributes: found.Attributes}
	have, ok := found.Resource.(awskind.LambdaFunction)
	if !ok {
		return result, nil
	}

	w := t.want
	if err := updateFunctionCode(ctx, api, w, have); err != nil {
		return result, err
	}

	if err := updateFunctionSettings(ctx, api, w, have); err != nil {
		return result, err
	}

	return result, retagFunction(ctx, api, result.Attributes["Arn"], w.Tags, have.Tags)
}

// updateFunctionCode changes the code and the architecture of a function.
func updateFunctionCode(ctx context.Context, api lambdaAPI, w, have awskind.LambdaFunction) error {
	if w.CodeSHA256 == have.CodeSHA256 && !differsInAny(w, have, "Architectures") {
		return nil
	}

	out, err := api.UpdateFunctionCode(ctx, &lambda.UpdateFunctionCodeInput{
		FunctionName:  &w.Name,
		S3Bucket:      &w.Code.Bucket,
		S3Key:         &w.Code.Key,
		Architectures: toArchitectures(w.Architectures),
	})
	if err != nil {
		return transport.Wrap(err, "update the code of function %s", w.Name)
	}

	return checkFunctionCode(ctx, api, w, out.CodeSha256)
}

// checkFunctionCode compares the hash of the code that Lambda has read from S3 with that of the code in the graph, and deletes
// a function with other code: whoever wrote the object would otherwise have the permissions of the function's role.
func checkFunctionCode(ctx context.Context, api lambdaAPI, w awskind.LambdaFunction, got *string) error {
	if aws.ToString(got) == w.CodeSHA256 {
		return nil
	}

	err := fmt.Errorf(
		"function %s: Lambda read code with the SHA-256 %s from s3://%s/%s, want %s; somebody replaced the object, "+
			"so the function was deleted; find out who wrote the object, delete it and apply again",
		w.Name,
		aws.ToString(got),
		w.Code.Bucket,
		w.Code.Key,
		w.CodeSHA256,
	)
	removeErr := deleteNewFunction(ctx, api, w.Name)

	return errors.Join(err, transport.Wrap(removeErr, "delete function %s, which has the wrong code", w.Name))
}

// deleteNewFunction deletes a function that was created a moment ago. A deletion ends if Lambda does not find the function,
// which may only be too new: the function is read first, because a read is repeated until Lambda sees it.
func deleteNewFunction(ctx context.Context, api lambdaAPI, name string) error {
	if _, err := api.GetFunction(ctx, &lambda.GetFunctionInput{FunctionName: &name}); err != nil {
		return err
	}

	_, err := api.DeleteFunction(ctx, &lambda.DeleteFunctionInput{FunctionName: &name})

	return err
}

// updateFunctionSettings changes everything of a function but its code and tags.
func updateFunctionSettings(ctx context.Context, api lambdaAPI, w, have awskind.LambdaFunction) error {
	if !differsInAny(w, have, "Description", "Role", "Runtime", "Handler", "MemorySize", "Timeout", "Environment") {
		return nil
	}

	role, _ := w.Role.Literal()
	_, err := api.UpdateFunctionConfiguration(ctx, &lambda.UpdateFunctionConfigurationInput{
		FunctionName: &w.Name,
		Description:  &w.Description,
		Role:         &role,
		Runtime:      lambdatypes.Runtime(w.Runtime),
		Handler:      &w.Handler,
		MemorySize:   int32OrNil(w.MemorySize),
		Timeout:      int32OrNil(w.Timeout),
		Environment:  toEnvironment(w),
	})

	return transport.Wrap(err, "update the settings of function %s", w.Name)
}

// differsInAny reports whether two resources differ in one of the properties with these names.
func differsInAny(want, have graph.Resource, names ...string) bool {
	values := map[string]any{}
	for _, f := range graph.Fields(have) {
		values[f.Property] = f.Value
	}

	for _, f := range graph.Fields(want) {
		for _, n := range names {
			if f.Property == n && !graph.EqualValues(f.Value, values[n]) {
				return true
			}
		}
	}

	return false
}

func retagFunction(ctx context.Context, api functionTagAPI, arn string, want, have awskind.Tags) error {
	set, remove := diffTags(want, have)
	if len(set) > 0 {
		if _, err := api.TagResource(ctx, &lambda.TagResourceInput{Resource: &arn, Tags: set}); err != nil {
			return transport.Wrap(err, "tag %s", arn)
		}
	}

	if len(remove) > 0 {
		in := &lambda.UntagResourceInput{Resource: &arn, TagKeys: remove}
		if _, err := api.UntagResource(ctx, in); err != nil {
			return transport.Wrap(err, "untag %s", arn)
		}
	}

	return nil
}
