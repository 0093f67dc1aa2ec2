// SPDX-License-Identifier: Apache-2.0

package s3

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strings"

	"github.com/aws/aws-sdk-go/service/s3"

	"github.com/slipway-k8s/slipway/internal/region/authz"
	"github.com/slipway-k8s/slipway/internal/region/wire"
)

// IdentityEvaluator decides by the policies of the caller in ctx. IAM implements it.
type IdentityEvaluator interface {
	EvaluateIdentity(ctx context.Context, c wire.Check) authz.Decision
	BuildRequest(ctx context.Context, c wire.Check) authz.Request
}

// KeyService is KMS as S3 needs it: it says whether the caller in ctx may do an action with a key by way of a service, and
// returns the key's ARN.
type KeyService interface {
	UseKey(ctx context.Context, action, name, via string, encryption map[string]string) (string, error)
}

// accessRules is what a bucket's own settings say of who may do what.
type accessRules struct {
	policy     authz.Policy
	public     bool // the policy lets everybody do something
	restricted bool // a public policy counts for nobody outside of the account
}

// refreshAccess reads a bucket's access anew from its settings. It has a lock of its own, for rights are asked under mu too.
func (s *Service) refreshAccess(b *bucket) error {
	var a accessRules
	var document string
	if raw, ok := b.Config[policySettingName]; ok {
		if err := json.Unmarshal(raw, &document); err != nil {
			return fmt.Errorf("read the policy of bucket %s: %w", b.Name, err)
		}

		p, err := authz.Parse(authz.ResourcePolicy, document)
		if err != nil {
			return fmt.Errorf("read the policy of bucket %s: %w", b.Name, err)
		}

		a.policy, a.public = p, isPublicPolicy(p)
	}

	a.restricted = isTrue(b.publicAccessBlock().RestrictPublicBuckets)
	s.accessMu.Lock()
	defer s.accessMu.Unlock()
	s.access[b.Name] = a

	return nil
}

func (s *Service) findAccessRules(name string) accessRules {
	s.accessMu.RLock()
	defer s.accessMu.RUnlock()
	return s.access[name]
}

const (
	policySettingName      = "BucketPolicy"
	publicBlockSettingName = "PublicAccessBlock"
)

// publicAccessBlock is the bucket's public access block; its zero value blocks nothing.
func (b *bucket) publicAccessBlock() s3.PublicAccessBlockConfiguration {
	var c s3.PublicAccessBlockConfiguration
	if raw, ok := b.Config[publicBlockSettingName]; ok && json.Unmarshal(raw, &c) != nil {
		return s3.PublicAccessBlockConfiguration{
			RestrictPublicBuckets: new(true),
		} // unreadable: rather too strict
	}

	return c
}

func isTrue(flag *bool) bool { return flag != nil && *flag }

// isPublicPolicy tells whether a policy allows something to everybody. A condition may narrow it, so one that has any is not
// taken for public; AWS looks closer at which.
func isPublicPolicy(p authz.Policy) bool {
	return slices.ContainsFunc(p.Statements, func(st authz.Statement) bool {
		return st.Allow && len(st.Conditions) == 0 &&
			(slices.Contains(st.Principal["AWS"], "*") || st.NotPrincipal != nil)
	})
}

// validatePolicy refuses what is no policy of this bucket.
func (s *Service) validatePolicy(b *bucket, document string) error {
	p, err := authz.Parse(authz.ResourcePolicy, document)
	if err != nil {
		return wire.Errorf("MalformedPolicy", "%v", err)
	}

	for _, st := range p.Statements {
		for _, r := range slices.Concat(st.Resource, st.NotResource) {
			rest, ok := strings.CutPrefix(r, "arn:aws:s3:::"+b.Name)
			if !ok || rest != "" && rest != "*" && rest[0] != '/' {
				return wire.Errorf("MalformedPolicy", "Policy has invalid resource: %s", r)
			}
		}
	}

	if isPublicPolicy(p) && isTrue(b.publicAccessBlock().BlockPublicPolicy) {
		return &wire.Error{
			Code:    "AccessDenied",
			Message: "the bucket's public access block forbids a public policy",
			Status:  http.StatusForbidden,
		}
	}

	return nil
}

// authorizeObject asks whether the caller may do an action on an object, or on the bucket where key is empty.
func (s *Service) authorizeObject(ctx context.Context, action, bucket, key string) error {
	arn := "arn:aws:s3:::" + bucket
	if key != "" {
		arn += "/" + key
	}

	return s.evaluateAccess(ctx, bucket, wire.Check{Action: "s3:" + action, Resource: arn})
}

// authorizeList asks whether the caller may list a bucket below a prefix.
func (s *Service) authorizeList(ctx context.Context, bucket, prefix string) error {
	return s.evaluateAccess(ctx, bucket, wire.Check{
		Action: "s3:ListBucket", Resource: "arn:aws:s3:::" + bucket, Context: map[string][]string{"s3:prefix": {prefix}},
	})
}

// evaluateAccess joins the bucket's policy and the caller's own: either may allow, and a Deny in one of them wins.
func (s *Service) evaluateAccess(ctx context.Context, bucket string, c wire.Check) error {
	caller := wire.CallerFrom(ctx)
	if s.cfg.Identities == nil || caller.IsUnrestricted() {
		return wire.Authorize(ctx, c)
	}

	c.Context = conditionKeys(ctx, c.Context)
	a := s.findAccessRules(bucket)
	r := s.cfg.Identities.BuildRequest(ctx, c)
	own := s.cfg.Identities.EvaluateIdentity(ctx, c)
	byBucket := authz.Decide([]authz.Policy{a.policy}, r)
	foreign := caller.IsAnonymous()

	switch {
	case byBucket.Denied:
		return wire.AccessDenied(ctx, c, byBucket.Reason)
	case own.Denied:
		return wire.AccessDenied(ctx, c, own.Reason)
	case own.Allowed, byBucket.Allowed && (!foreign || !a.restricted || !a.public):
		return nil
	}

	return wire.AccessDenied(ctx, c, own.Reason)
}

// conditionKeys adds the condition keys that S3 takes from a request's headers and query.
func conditionKeys(ctx context.Context, keys map[string][]string) map[string][]string {
	out := map[string][]string{}
	r := wire.HTTPRequest(ctx)
	if r != nil {
		for _, name := range []string{
			"x-amz-acl", "x-amz-copy-source", "x-amz-server-side-encryption", "x-amz-server-side-encryption-aws-kms-key-id",
			"x-amz-content-sha256", "x-amz-storage-class", "if-match", "if-none-match",
		} {
			if v := r.Header.Get(name); v != "" {
				out["s3:"+name] = []string{v}
			}
		}

		q := r.URL.Query()
		for key, name := range map[string]string{"s3:delimiter": "delimiter", "s3:max-keys": "max-keys", "s3:VersionId": "versionId"} {
			if q.Has(name) {
				out[key] = []string{q.Get(name)}
			}
		}
	}

	maps.Copy(out, keys)

	return out
}
