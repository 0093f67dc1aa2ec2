// SPDX-License-Identifier: Apache-2.0

package cloudformation

import (
	"context"
	"io"
	"net/http"
	"net/url"
	"regexp"
	"slices"
	"strings"

	sdk "github.com/aws/aws-sdk-go/service/cloudformation"
	"github.com/aws/aws-sdk-go/service/s3"

	"github.com/slipway-k8s/slipway/internal/region/cloudformation/resourcetype"
	"github.com/slipway-k8s/slipway/internal/region/cloudformation/template"
	"github.com/slipway-k8s/slipway/internal/region/sdkshape"
	"github.com/slipway-k8s/slipway/internal/region/wire"
)

// Limits of the size of a template, in bytes, which are CloudFormation's quotas.
const (
	maxInlineTemplate = 51200   // in a request
	maxS3Template     = 1 << 20 // in S3
)

// templateSource is where a request's template comes from; exactly one field is set.
type templateSource struct {
	body, url   *string
	usePrevious *bool
}

// stackRequest has the fields that CreateStack, UpdateStack and CreateChangeSet have in common.
type stackRequest struct {
	templateSource
	stackName    *string // or the ID of an existing stack
	parameters   []*sdk.Parameter
	tags         []*sdk.Tag
	capabilities []*string
}

// loadTemplate returns the text of a template and checks its size. before is the stack's current template.
func (s templateHandlers) loadTemplate(
	ctx context.Context,
	src templateSource,
	before string,
) (string, error) {
	given := 0
	for _, is := range []bool{src.body != nil, src.url != nil, src.usePrevious != nil && *src.usePrevious} {
		if is {
			given++
		}
	}

	switch {
	case given != 1:
		return "", template.ValidationError("Either Template URL or Template Body must be specified.")
	case src.usePrevious != nil && *src.usePrevious:
		if before == "" {
			return "", template.ValidationError("There is no previous template")
		}

		return before, nil

	case src.url != nil:
		return s.downloadTemplate(ctx, *src.url)
	case len(*src.body) > maxInlineTemplate:
		return "", template.ValidationError(
			"1 validation error detected: Value '%s...' at 'templateBody' failed to satisfy constraint: Member must have length less than or equal to %d",
			(*src.body)[:40],
			maxInlineTemplate,
		)
	}

	return *src.body, nil
}

// downloadTemplate reads a template from the region's S3, with the rights of the caller.
func (s templateHandlers) downloadTemplate(ctx context.Context, address string) (string, error) {
	bucket, key, err := parseTemplateURL(address)
	if err != nil {
		return "", err
	}

	v, ok := s.services["s3"]
	if !ok {
		return "", template.ValidationError("TemplateURL must be a supported URL.")
	}

	out, err := wire.CallOperation(ctx, v, "GetObject", func(in any) error {
		g, ok := in.(*s3.GetObjectInput)
		if !ok {
			return template.ValidationError("S3 error: %T", in)
		}

		g.Bucket = &bucket
		g.Key = &key

		return nil
	})
	if err != nil {
		e := wire.ToClientError(v, err)
		if e.Status == http.StatusForbidden {
			return "", template.ValidationError("S3 error: Access Denied")
		}

		return "", template.ValidationError("S3 error: %s", e.Message)
	}

	got, ok := out.(*s3.GetObjectOutput)
	if !ok || got.Body == nil {
		return "", template.ValidationError("S3 error: no body")
	}

	defer func() { _ = got.Body.Close() }()
	b, err := io.ReadAll(io.LimitReader(got.Body, maxS3Template+1))

	switch {
	case err != nil:
		return "", template.ValidationError("S3 error: the object cannot be read")
	case len(b) > maxS3Template:
		return "", template.ValidationError("Template may not exceed %d bytes in size.", maxS3Template)
	}

	return string(b), nil
}

// parseTemplateURL returns the bucket and the key of a URL of S3. The bucket may be in the host or in the
// path.
func parseTemplateURL(address string) (bucket, key string, err error) {
	bad := template.ValidationError("TemplateURL must be a supported URL.")
	u, err := url.Parse(address)
	if err != nil || u.Scheme != "https" && u.Scheme != "http" || u.Host == "" {
		return "", "", bad
	}

	path := strings.TrimPrefix(u.Path, "/")
	if m := regexp.MustCompile(`^(.+)\.s3[.-]`).FindStringSubmatch(u.Host); m != nil {
		return m[1], path, nil
	}

	bucket, key, ok := strings.Cut(path, "/")
	if !ok || bucket == "" || key == "" {
		return "", "", bad
	}

	return bucket, key, nil
}

// prepareContent returns the content of a stack that a request describes. before is the stack's current
// content.
func (s templateHandlers) prepareContent(
	ctx context.Context,
	r stackRequest,
	before stackContent,
) (stackContent, error) {
	body, err := s.loadTemplate(ctx, r.templateSource, before.Body)
	if err != nil {
		return stackContent{}, err
	}

	t, err := parseTemplate(body)
	if err != nil {
		return stackContent{}, err
	}

	if err := checkCapabilities(t, sdkshape.Strings(r.capabilities)); err != nil {
		return stackContent{}, err
	}

	var given []template.ParameterInput

	for _, p := range r.parameters {
		given = append(given, template.ParameterInput{
			Name:        sdkshape.String(p.ParameterKey),
			Value:       sdkshape.String(p.ParameterValue),
			UsePrevious: p.UsePreviousValue != nil && *p.UsePreviousValue,
		})
	}

	params, err := s.resolveParameters(ctx, t, given, before.Params)
	if err != nil {
		return stackContent{}, err
	}

	tags, err := parseTags(r.tags)
	if r.tags == nil && before.Body != "" {
		tags = before.Tags
	}

	if err != nil {
		return stackContent{}, err
	}

	c := stackContent{
		Body:      body,
		Params:    params,
		Tags:      tags,
		Described: t.Description,
	}
	if need, _ := requiredCapabilities(t); need != "" { // AWS tells them only then
		c.Capability = sdkshape.Strings(r.capabilities)
	}

	return c, s.checkContent(sdkshape.String(r.stackName), c, t)
}

// checkContent refuses references to resources whose conditions are false, and functions that return invalid
// policies.
func (s templateHandlers) checkContent(name string, c stackContent, t *template.Template) error {
	var err error

	s.store.View(func() {
		st := &stack{Name: name}
		if existing, found := s.state.findStack(name); found == nil {
			st = existing
		}

		sc := s.newScope(st, c, t)
		if err = sc.CheckEnabledReferences(); err == nil {
			err = sc.CheckPolicies(resourcetype.Catalog())
		}
	})

	return err
}

// CloudFormation's limits of the tags of a stack, in characters (API reference, Tag).
const (
	maxTagKeyLength   = 128
	maxTagValueLength = 256
)

func parseTags(tags []*sdk.Tag) (map[string]string, error) {
	out := map[string]string{}
	for _, t := range tags {
		k := sdkshape.String(t.Key)
		switch _, twice := out[k]; {
		case strings.HasPrefix(strings.ToLower(k), "aws:"):
			return nil, template.ValidationError("aws: prefixed tag key names are not allowed for external use.")
		case twice:
			return nil, template.ValidationError("Duplicate tag keys found: %s", k)
		case k == "" || len([]rune(k)) > maxTagKeyLength || len([]rune(sdkshape.String(t.Value))) > maxTagValueLength:
			return nil, template.ValidationError(
				"1 validation error detected: the tag '%s' failed to satisfy constraint: "+
					"Member must have a key of 1 to %d and a value of at most %d characters",
				k,
				maxTagKeyLength,
				maxTagValueLength,
			)
		}

		out[k] = sdkshape.String(t.Value)
	}

	if len(out) > 50 {
		return nil, template.ValidationError("A stack may have at most 50 tags")
	}

	return out, nil
}

// requiredCapabilities returns the capability that a template requires, and the types that require it.
func requiredCapabilities(t *template.Template) (capability string, because []string) {
	for _, name := range sdkshape.SortedKeys(t.Resources) {
		r := t.Resources[name]
		kind := lookupType(r.Type)
		if !kind.NeedsCapability {
			continue
		}

		because = append(because, r.Type)
		if capability == "" {
			capability = sdk.CapabilityCapabilityIam
		}

		if _, named := r.Properties[kind.NameProperty]; named && r.Type != "AWS::IAM::RolePolicy" &&
			r.Type != "AWS::IAM::Policy" {
			capability = sdk.CapabilityCapabilityNamedIam
		}
	}

	slices.Sort(because)
	return capability, slices.Compact(because)
}

// checkCapabilities refuses a template with IAM resources if the caller did not acknowledge the capability.
func checkCapabilities(t *template.Template, given []string) error {
	for _, c := range given {
		if !slices.Contains(sdk.Capability_Values(), c) {
			return template.ValidationError(
				"1 validation error detected: Value '[%s]' at 'capabilities' failed to satisfy constraint: Member must satisfy enum value set: [CAPABILITY_IAM, CAPABILITY_NAMED_IAM, CAPABILITY_AUTO_EXPAND]",
				c,
			)
		}
	}

	need, _ := requiredCapabilities(t)
	if need == "" || slices.Contains(given, sdk.CapabilityCapabilityNamedIam) ||
		need == sdk.CapabilityCapabilityIam && slices.Contains(given, need) {
		return nil
	}

	return newErrorf(codeInsufficientCapabilities, "Requires capabilities : [%s]", need)
}

// stackCaller returns the identity that creates a stack's resources: the caller, or the role that the request
// names.
func (s *Service) stackCaller(ctx context.Context, role string) (wire.Caller, error) {
	if role == "" {
		return wire.CallerFrom(ctx), nil
	}

	if err := wire.Authorize(ctx, wire.AccessCheck{
		Action:   "iam:PassRole",
		Resource: role,
		Context:  map[string][]string{"iam:PassedToService": {"cloudformation.amazonaws.com"}},
	}); err != nil {
		return wire.Caller{}, err
	}

	return s.cfg.Roles.AssumeServiceRole(role, "cloudformation.amazonaws.com", "AWSCloudFormation")
}

func invalidTokenError() error { return template.ValidationError("The NextToken is not valid") }

// pageSize is the number of entries of a page.
const pageSize = 100
