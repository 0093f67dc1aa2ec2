// SPDX-License-Identifier: Apache-2.0

package cloudformation

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"unicode/utf8"

	sdk "github.com/aws/aws-sdk-go/service/cloudformation"

	"github.com/slipway-k8s/slipway/internal/region/cloudformation/template"
	"github.com/slipway-k8s/slipway/internal/region/sdkshape"
	"github.com/slipway-k8s/slipway/internal/region/state"
	"github.com/slipway-k8s/slipway/internal/region/wire"
)

// templateHandlers serves templates. It also reads the template and the parameters of the requests that create
// or update a stack.
type templateHandlers struct{ *Service }

func (s templateHandlers) ops() []wire.Operation {
	return []wire.Operation{
		state.ReadOperation(s.store, "GetTemplate", s.getTemplate),
		wire.NewOperation("ValidateTemplate", s.validateTemplate),
		wire.NewOperation("GetTemplateSummary", s.getTemplateSummary),
	}
}

func (s templateHandlers) getTemplate(in *sdk.GetTemplateInput) (*sdk.GetTemplateOutput, error) {
	stages := sdkshape.StringPointers([]string{sdk.TemplateStageOriginal, sdk.TemplateStageProcessed})
	if in.ChangeSetName != nil {
		_, cs, err := s.state.findChangeSet(in.ChangeSetName, in.StackName)
		if err != nil {
			return nil, err
		}

		return &sdk.GetTemplateOutput{TemplateBody: new(replaceNonASCII(cs.Body)), StagesAvailable: stages}, nil
	}

	if in.StackName == nil {
		return nil, template.ValidationError("StackName is required if ChangeSetName is not specified.")
	}

	st, err := s.state.findStack(*in.StackName)
	if err != nil {
		return nil, err
	}

	return &sdk.GetTemplateOutput{TemplateBody: new(replaceNonASCII(st.Body)), StagesAvailable: stages}, nil
}

// replaceNonASCII replaces each character that is not ASCII by a question mark, as CloudFormation does when it returns a
// template.
func replaceNonASCII(body string) string {
	return strings.Map(func(r rune) rune {
		if r >= utf8.RuneSelf {
			return '?'
		}

		return r
	}, body)
}

func (s templateHandlers) validateTemplate(
	ctx context.Context,
	in *sdk.ValidateTemplateInput,
) (*sdk.ValidateTemplateOutput, error) {
	body, err := s.loadTemplate(ctx, templateSource{in.TemplateBody, in.TemplateURL, nil}, "")
	if err != nil {
		return nil, err
	}

	t, err := parseTemplate(body)
	if err != nil {
		return nil, err
	}

	out := &sdk.ValidateTemplateOutput{Parameters: []*sdk.TemplateParameter{}}
	setIfNotEmpty(&out.Description, t.Description)
	out.Capabilities, out.CapabilitiesReason = showCapabilities(t)

	for _, name := range sdkshape.SortedKeys(t.Parameters) {
		p := t.Parameters[name]
		one := &sdk.TemplateParameter{ParameterKey: new(name), NoEcho: new(p.NoEcho), DefaultValue: p.Default}
		setIfNotEmpty(&one.Description, p.Description)
		out.Parameters = append(out.Parameters, one)
	}

	return out, nil
}

func (s templateHandlers) getTemplateSummary(
	ctx context.Context,
	in *sdk.GetTemplateSummaryInput,
) (*sdk.GetTemplateSummaryOutput, error) {
	var body string
	var err error
	if in.StackName != nil {
		var before stackContent
		before, _, _, err = s.currentContent(*in.StackName)
		body = before.Body
	} else {
		body, err = s.loadTemplate(ctx, templateSource{in.TemplateBody, in.TemplateURL, nil}, "")
	}

	if err != nil {
		return nil, err
	}

	t, err := parseTemplate(body)
	if err != nil {
		return nil, err
	}

	return summarizeTemplate(t)
}

func summarizeTemplate(t *template.Template) (*sdk.GetTemplateSummaryOutput, error) {
	out := &sdk.GetTemplateSummaryOutput{
		Parameters: []*sdk.ParameterDeclaration{},
		Version:    new("2010-09-09"),
	}

	setIfNotEmpty(&out.Description, t.Description)
	out.Capabilities, out.CapabilitiesReason = showCapabilities(t)

	if t.Metadata != nil {
		b, err := json.Marshal(t.Metadata)
		if err != nil {
			return nil, fmt.Errorf("encode the template's metadata: %w", err)
		}

		out.Metadata = new(string(b))
	}

	types := map[string]bool{}
	for _, r := range t.Resources {
		types[r.Type] = true
	}

	out.ResourceTypes = sdkshape.StringPointers(sdkshape.SortedKeys(types))

	for _, name := range sdkshape.SortedKeys(t.Parameters) {
		p := t.Parameters[name]
		one := &sdk.ParameterDeclaration{
			ParameterKey:         new(name),
			ParameterType:        new(p.Type),
			NoEcho:               new(p.NoEcho),
			DefaultValue:         p.Default,
			ParameterConstraints: &sdk.ParameterConstraints{AllowedValues: sdkshape.StringPointers(p.Allowed)},
		}

		setIfNotEmpty(&one.Description, p.Description)
		out.Parameters = append(out.Parameters, one)
	}

	return out, nil
}

// showCapabilities returns the capabilities that a template requires, and the reason; nil for none.
func showCapabilities(t *template.Template) ([]*string, *string) {
	need, because := requiredCapabilities(t)
	if need == "" {
		return nil, nil
	}

	reason := fmt.Sprintf("The following resource(s) require capabilities: %v", because)

	return sdkshape.StringPointers([]string{need}), &reason
}
