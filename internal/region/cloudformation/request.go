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

	"github.com/slipway-k8s/slipway/internal/region/record"
	"github.com/slipway-k8s/slipway/internal/region/wire"
)

// source is where a request's template comes from.
type source struct {
	body, url *string
	previous  *bool
}

// request is what the operations that make or change a stack have in common.
type request struct {
	source
	params []*sdk.Parameter
	tags   []*sdk.Tag
	caps   []*string
}

// fetch reads a template and enforces its size.
func (s *Service) fetch(ctx context.Context, src source, before string) (string, error) {
	given := 0
	for _, is := range []bool{src.body != nil, src.url != nil, src.previous != nil && *src.previous} {
		if is {
			given++
		}
	}
	switch {
	case given != 1:
		return "", invalid("Either Template URL or Template Body must be specified.")
	case src.previous != nil && *src.previous:
		if before == "" {
			return "", invalid("There is no previous template")
		}
		return before, nil
	case src.url != nil:
		return s.download(ctx, *src.url)
	case len(*src.body) > maxBody:
		return "", invalid("1 validation error detected: Value '%s...' at 'templateBody' failed to satisfy constraint: Member must have length less than or equal to %d", (*src.body)[:40], maxBody)
	}
	return *src.body, nil
}

// download reads a template from the region's S3, with the caller's rights.
func (s *Service) download(ctx context.Context, address string) (string, error) {
	bucket, key, err := objectOf(address)
	if err != nil {
		return "", err
	}
	v, ok := s.services["s3"]
	if !ok {
		return "", invalid("TemplateURL must be a supported URL.")
	}
	out, err := wire.Call(ctx, v, "GetObject", func(in any) error {
		g, ok := in.(*s3.GetObjectInput)
		if !ok {
			return invalid("S3 error: %T", in)
		}
		g.Bucket, g.Key = &bucket, &key
		return nil
	})
	if err != nil {
		e := wire.Refusal(v, err)
		if e.Status == http.StatusForbidden {
			return "", invalid("S3 error: Access Denied")
		}
		return "", invalid("S3 error: %s", e.Message)
	}
	got, ok := out.(*s3.GetObjectOutput)
	if !ok || got.Body == nil {
		return "", invalid("S3 error: no body")
	}
	defer got.Body.Close() //nolint:errcheck // read only
	b, err := io.ReadAll(io.LimitReader(got.Body, maxURL+1))
	switch {
	case err != nil:
		return "", invalid("S3 error: the object cannot be read")
	case len(b) > maxURL:
		return "", invalid("Template may not exceed %d bytes in size.", maxURL)
	}
	return string(b), nil
}

// objectOf finds bucket and key in a URL of S3, with the bucket in the host or in the path.
func objectOf(address string) (bucket, key string, err error) {
	bad := invalid("TemplateURL must be a supported URL.")
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

// prepare reads everything that a request says a stack is to be. before is what the stack is now.
func (s *Service) prepare(ctx context.Context, r request, before content) (content, error) {
	body, err := s.fetch(ctx, r.source, before.Body)
	if err != nil {
		return content{}, err
	}
	t, err := Parse(body)
	if err != nil {
		return content{}, err
	}
	if err := capable(t, record.Strs(r.caps)); err != nil {
		return content{}, err
	}
	var given []input
	for _, p := range r.params {
		given = append(given, input{record.Str(p.ParameterKey), record.Str(p.ParameterValue), p.UsePreviousValue != nil && *p.UsePreviousValue})
	}
	params, err := s.resolve(ctx, t, given, before.Params)
	if err != nil {
		return content{}, err
	}
	tags, err := tagMap(r.tags)
	if r.tags == nil && before.Body != "" {
		tags = before.Tags
	}
	return content{Body: body, Params: params, Tags: tags, Described: t.Description, Capability: record.Strs(r.caps)}, err
}

func tagMap(tags []*sdk.Tag) (map[string]string, error) {
	out := map[string]string{}
	for _, t := range tags {
		k := record.Str(t.Key)
		switch _, twice := out[k]; {
		case strings.HasPrefix(strings.ToLower(k), "aws:"):
			return nil, invalid("aws: prefixed tag key names are not allowed for external use.")
		case twice:
			return nil, invalid("Duplicate tag keys found: %s", k)
		}
		out[k] = record.Str(t.Value)
	}
	if len(out) > 50 {
		return nil, invalid("A stack may have at most 50 tags")
	}
	return out, nil
}

// needs are the capabilities that a template asks for, and why.
func needs(t *Template) (capability string, because []string) {
	for _, name := range record.Keys(t.Resources) {
		r := t.Resources[name]
		kind := types()[r.Type]
		if !kind.iam {
			continue
		}
		because = append(because, r.Type)
		if capability == "" {
			capability = sdk.CapabilityCapabilityIam
		}
		if _, named := r.Properties[kind.name]; named && r.Type != "AWS::IAM::RolePolicy" && r.Type != "AWS::IAM::Policy" {
			capability = sdk.CapabilityCapabilityNamedIam
		}
	}
	slices.Sort(because)
	return capability, slices.Compact(because)
}

// capable refuses a template that makes IAM's things without the caller's word.
func capable(t *Template, given []string) error {
	for _, c := range given {
		if !slices.Contains(sdk.Capability_Values(), c) {
			return invalid("1 validation error detected: Value '[%s]' at 'capabilities' failed to satisfy constraint: Member must satisfy enum value set: [CAPABILITY_IAM, CAPABILITY_NAMED_IAM, CAPABILITY_AUTO_EXPAND]", c)
		}
	}
	need, _ := needs(t)
	if need == "" || slices.Contains(given, sdk.CapabilityCapabilityNamedIam) || need == sdk.CapabilityCapabilityIam && slices.Contains(given, need) {
		return nil
	}
	return wire.Errorf(sdk.ErrCodeInsufficientCapabilitiesException, "Requires capabilities : [%s]", need)
}

// caller is as whom a stack's resources are made: the caller, or the role that the stack is given.
func (s *Service) caller(ctx context.Context, role string) (wire.Caller, error) {
	if role == "" {
		return wire.CallerFrom(ctx), nil
	}
	if err := wire.Authorize(ctx, wire.Check{Action: "iam:PassRole", Resource: role}); err != nil {
		return wire.Caller{}, err
	}
	return s.cfg.Roles.ServiceCaller(role, "cloudformation.amazonaws.com", "AWSCloudFormation")
}

func badToken() error { return invalid("The NextToken is not valid") }

// pageSize is how many entries a page has.
const pageSize = 100
