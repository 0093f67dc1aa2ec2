// SPDX-License-Identifier: Apache-2.0

package lambda

import (
	"context"
	"encoding/json"
	"maps"
	"net/http"
	"slices"
	"strings"

	sdk "github.com/aws/aws-sdk-go/service/lambda"

	"github.com/slipway-k8s/slipway/internal/region/authz"
	"github.com/slipway-k8s/slipway/internal/region/sdkshape"
	"github.com/slipway-k8s/slipway/internal/region/wire"
)

func (s *Service) getFunction(in *sdk.GetFunctionInput) (*sdk.GetFunctionOutput, error) {
	f, err := s.findFunction(in.FunctionName)
	if err != nil {
		return nil, err
	}

	out := &sdk.GetFunctionOutput{
		Configuration: s.toConfiguration(s.functionName(in.FunctionName)),
		Code:          &sdk.FunctionCodeLocation{RepositoryType: new("S3")},
	}
	if len(f.Tags) > 0 {
		out.Tags = tagMap(f.Tags)
	}

	return out, nil
}

func (s *Service) getFunctionConfiguration(
	in *sdk.GetFunctionConfigurationInput,
) (*sdk.FunctionConfiguration, error) {
	if _, err := s.findFunction(in.FunctionName); err != nil {
		return nil, err
	}

	return s.toConfiguration(s.functionName(in.FunctionName)), nil
}

func (s *Service) listFunctions(in *sdk.ListFunctionsInput) (*sdk.ListFunctionsOutput, error) {
	size := int64(maxPageSize)
	if in.MaxItems != nil {
		size = min(size, *in.MaxItems)
	}

	names, next, err := sdkshape.Paginate(
		sdkshape.SortedKeys(s.st.Functions),
		size,
		in.Marker,
		invalidParameter("Invalid marker."),
	)
	out := &sdk.ListFunctionsOutput{Functions: []*sdk.FunctionConfiguration{}, NextMarker: next}

	for _, name := range names {
		out.Functions = append(out.Functions, s.toConfiguration(name))
	}

	return out, err
}

// updateFunctionCode replaces the code of a function. Running environments end after their invocation.
func (s *Service) updateFunctionCode(
	ctx context.Context,
	in *sdk.UpdateFunctionCodeInput,
) (*sdk.FunctionConfiguration, error) {
	name := s.functionName(in.FunctionName)
	code, err := s.fetchCode(ctx, name, codeSource{in.S3Bucket, in.S3Key, in.S3ObjectVersion})
	if err != nil {
		return nil, err
	}

	return s.change(name, in.RevisionId, func(f *function) error {
		if err := f.setArchitecture(in.Architectures); err != nil {
			return err
		}

		f.setCode(code)

		return nil
	})
}

func (s *Service) updateFunctionConfiguration(
	_ context.Context,
	in *sdk.UpdateFunctionConfigurationInput,
) (*sdk.FunctionConfiguration, error) {
	return s.change(s.functionName(in.FunctionName), in.RevisionId, func(f *function) error {
		return s.apply(f, settings{
			role:        in.Role,
			description: in.Description,
			handler:     in.Handler,
			runtime:     in.Runtime,
			memoryMB:    in.MemorySize,
			timeoutS:    in.Timeout,
			environment: in.Environment,
			logging:     in.LoggingConfig,
		})
	})
}

// change changes a function that is ready, and ends its environments. revision must be the function's if it is given.
func (s *Service) change(
	name string,
	revision *string,
	do func(f *function) error,
) (*sdk.FunctionConfiguration, error) {
	var out *sdk.FunctionConfiguration
	err := s.store.Update(func() error {
		f, err := s.findFunction(&name)
		if err != nil {
			return err
		}

		if revision != nil && *revision != f.Revision {
			return newError(codePreconditionFailed)
		}

		if err := s.checkReady(name, f); err != nil {
			return err
		}

		after := *f
		if err := do(&after); err != nil {
			return err
		}

		s.touch(&after)
		s.st.Functions[name] = &after
		out = s.toConfiguration(name)

		return nil
	})
	if err == nil {
		s.pool.retire(name)
	}

	return out, err
}

func (s *Service) deleteFunction(
	ctx context.Context,
	in *sdk.DeleteFunctionInput,
) (*sdk.DeleteFunctionOutput, error) {
	if _, err := s.findFunction(in.FunctionName); err != nil {
		return nil, err
	}

	name := s.functionName(in.FunctionName)
	delete(s.st.Functions, name)
	s.st.Queue = slices.DeleteFunc(s.st.Queue, func(e queuedEvent) bool { return e.Function == name })
	s.pool.retire(name)
	wire.SetResponseStatus(ctx, http.StatusNoContent)

	return &sdk.DeleteFunctionOutput{}, nil
}

// permission is a statement of a function's policy that allows a service to invoke the function.
type permission struct {
	ID            string
	Service       string // such as events.amazonaws.com
	SourceARN     string // empty: any
	SourceAccount string // empty: any
}

// addPermission adds a statement to the policy of a function. The region has permissions of services only.
func (s *Service) addPermission(
	ctx context.Context,
	in *sdk.AddPermissionInput,
) (*sdk.AddPermissionOutput, error) {
	f, err := s.findFunction(in.FunctionName)
	if err != nil {
		return nil, err
	}

	if in.RevisionId != nil && *in.RevisionId != f.Revision {
		return nil, newError(codePreconditionFailed)
	}

	if *in.Action != "lambda:InvokeFunction" {
		return nil, wire.NotImplemented("a permission for " + *in.Action)
	}

	if !strings.HasSuffix(*in.Principal, ".amazonaws.com") {
		return nil, wire.NotImplemented("a permission for a principal that is no service: " + *in.Principal)
	}

	if slices.ContainsFunc(f.Statements, func(p permission) bool { return p.ID == *in.StatementId }) {
		return nil, newErrorf(
			codeResourceConflict,
			"The statement id (%s) provided already exists. "+
				"Please provide a new statement id, or remove the existing statement.",
			*in.StatementId,
		)
	}

	p := permission{
		ID:            *in.StatementId,
		Service:       *in.Principal,
		SourceARN:     sdkshape.String(in.SourceArn),
		SourceAccount: sdkshape.String(in.SourceAccount),
	}
	f.Statements = append(slices.Clone(f.Statements), p)
	name := s.functionName(in.FunctionName)
	s.unseen.Track(permissionID(name, p.ID))
	text, err := json.Marshal(s.statement(name, p))
	wire.SetResponseStatus(ctx, http.StatusCreated)

	return &sdk.AddPermissionOutput{Statement: new(string(text))}, err
}

// statement returns a permission as a statement of a policy.
func (s *Service) statement(name string, p permission) map[string]any {
	out := map[string]any{
		"Sid":       p.ID,
		"Effect":    "Allow",
		"Principal": map[string]string{"Service": p.Service},
		"Action":    "lambda:InvokeFunction",
		"Resource":  s.functionARN(name),
	}
	condition := map[string]any{}
	if p.SourceARN != "" {
		condition["ArnLike"] = map[string]string{"AWS:SourceArn": p.SourceARN}
	}

	if p.SourceAccount != "" {
		condition["StringEquals"] = map[string]string{"AWS:SourceAccount": p.SourceAccount}
	}

	if len(condition) > 0 {
		out["Condition"] = condition
	}

	return out
}

// allows reports whether a permission lets a service invoke the function for a resource of an account.
func (p permission) allows(service, source, account string) bool {
	return p.Service == service &&
		(p.SourceARN == "" || authz.MatchPattern(p.SourceARN, source)) &&
		(p.SourceAccount == "" || p.SourceAccount == account)
}

// newMissingStatementError returns the error about a statement that a function's policy does not have.
func newMissingStatementError(id string) error {
	return newErrorf(codeResourceNotFound, "Statement %s is not found in resource policy.", id)
}

func (s *Service) removePermission(
	ctx context.Context,
	in *sdk.RemovePermissionInput,
) (*sdk.RemovePermissionOutput, error) {
	f, err := s.findFunction(in.FunctionName)
	if err != nil {
		return nil, err
	}

	if in.RevisionId != nil && *in.RevisionId != f.Revision {
		return nil, newError(codePreconditionFailed)
	}

	i := slices.IndexFunc(f.Statements, func(p permission) bool { return p.ID == sdkshape.String(in.StatementId) })
	if i < 0 {
		return nil, newMissingStatementError(sdkshape.String(in.StatementId))
	}

	f.Statements = slices.Delete(slices.Clone(f.Statements), i, i+1)
	wire.SetResponseStatus(ctx, http.StatusNoContent)

	return &sdk.RemovePermissionOutput{}, nil
}

func (s *Service) getPolicy(in *sdk.GetPolicyInput) (*sdk.GetPolicyOutput, error) {
	f, err := s.findFunction(in.FunctionName)
	if err != nil {
		return nil, err
	}

	name := s.functionName(in.FunctionName)
	statements := []map[string]any{}
	for _, p := range f.Statements {
		if !s.unseen.Hides(permissionID(name, p.ID)) {
			statements = append(statements, s.statement(name, p))
		}
	}

	if len(statements) == 0 {
		return nil, newErrorf(codeResourceNotFound, "The resource you requested does not exist.")
	}

	text, err := json.Marshal(map[string]any{
		"Version":   "2012-10-17",
		"Id":        "default",
		"Statement": statements,
	})

	return &sdk.GetPolicyOutput{Policy: new(string(text)), RevisionId: &f.Revision}, err
}

// The limits of tags (Lambda developer guide, tags).
const (
	maxTags           = 50
	maxTagKeyLength   = 128
	maxTagValueLength = 256
)

// addTags adds the tags of a request, or refuses all of them.
func (f *function) addTags(tags map[string]*string) error {
	after := maps.Clone(f.Tags)

	for _, k := range sdkshape.SortedKeys(tags) {
		v := sdkshape.String(tags[k])
		if k == "" || len([]rune(k)) > maxTagKeyLength || len([]rune(v)) > maxTagValueLength ||
			strings.HasPrefix(strings.ToLower(k), "aws:") {
			return invalidParameter(
				"The tag '%s' is not valid: a key has 1 to %d characters and does not begin with aws:, a value has up "+
					"to %d characters",
				k,
				maxTagKeyLength,
				maxTagValueLength,
			)
		}

		after[k] = v
	}

	if len(after) > maxTags {
		return invalidParameter("A function can have no more than %d tags.", maxTags)
	}

	f.Tags = after

	return nil
}

func tagMap(tags map[string]string) map[string]*string {
	out := map[string]*string{}
	for k, v := range tags {
		out[k] = &v
	}

	return out
}

func (s *Service) tagResource(ctx context.Context, in *sdk.TagResourceInput) (*sdk.TagResourceOutput, error) {
	f, err := s.findFunction(in.Resource)
	if err != nil {
		return nil, err
	}

	wire.SetResponseStatus(ctx, http.StatusNoContent)

	return &sdk.TagResourceOutput{}, f.addTags(in.Tags)
}

func (s *Service) untagResource(ctx context.Context, in *sdk.UntagResourceInput) (*sdk.UntagResourceOutput, error) {
	f, err := s.findFunction(in.Resource)
	if err != nil {
		return nil, err
	}

	for _, k := range in.TagKeys {
		delete(f.Tags, sdkshape.String(k))
	}

	wire.SetResponseStatus(ctx, http.StatusNoContent)

	return &sdk.UntagResourceOutput{}, nil
}

func (s *Service) listTags(in *sdk.ListTagsInput) (*sdk.ListTagsOutput, error) {
	f, err := s.findFunction(in.Resource)
	if err != nil {
		return nil, err
	}

	return &sdk.ListTagsOutput{Tags: tagMap(f.Tags)}, nil
}
