// SPDX-License-Identifier: Apache-2.0

package s3

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"slices"

	"github.com/aws/aws-sdk-go/service/s3"

	"github.com/slipway-k8s/slipway/internal/region/authz"
	"github.com/slipway-k8s/slipway/internal/region/wire"
)

// IdentityEvaluator evaluates the policies of the caller in ctx. IAM implements it.
type IdentityEvaluator interface {
	// EvaluateIdentity decides a check by the caller's own policies.
	EvaluateIdentity(ctx context.Context, c wire.AccessCheck) authz.Decision
	// BuildRequest returns a check with the caller and all condition keys, for the evaluation of bucket
	// policies.
	BuildRequest(ctx context.Context, c wire.AccessCheck) authz.Request
}

// KeyService is the part of KMS that S3 needs.
type KeyService interface {
	// UseKey checks whether the caller in ctx may do an action, such as Decrypt, with a key through a
	// service, such as s3. It returns the key's ARN. A refusal is a [wire.Error].
	UseKey(ctx context.Context, action, name, via string, encryption map[string]string) (string, error)
}

// accessRules are the access rules in a bucket's settings.
type accessRules struct {
	policy     authz.Policy // the bucket policy; no statements without one
	public     bool         // the policy allows something to everyone
	restricted bool         // RestrictPublicBuckets: a public policy applies to the bucket's account only
}

// refreshAccess sets a bucket's access rules from its settings. The caller holds the lock, or is [New].
func (s *Service) refreshAccess(b *bucket) error {
	var a accessRules
	var document string
	if raw, ok := b.Config[policySettingName]; ok {
		if err := json.Unmarshal(raw, &document); err != nil {
			return fmt.Errorf("read the policy of bucket %s: %w", b.Name, err)
		}

		p, err := authz.ParsePolicy(authz.ResourcePolicy, document)
		if err != nil {
			return fmt.Errorf("read the policy of bucket %s: %w", b.Name, err)
		}

		a.policy = p
		a.public = isPublicPolicy(p)
	}

	a.restricted = isTrue(b.publicAccessBlock().RestrictPublicBuckets)
	s.access[b.Name] = a

	return nil
}

func (s *Service) findAccessRules(name string) accessRules {
	s.store.Lock()
	defer s.store.Unlock()
	return s.access[name]
}

// publicAccessBlock returns the bucket's public access block. The zero value blocks nothing.
func (b *bucket) publicAccessBlock() s3.PublicAccessBlockConfiguration {
	var c s3.PublicAccessBlockConfiguration
	if raw, ok := b.Config[publicBlockSettingName]; ok && json.Unmarshal(raw, &c) != nil {
		return s3.PublicAccessBlockConfiguration{RestrictPublicBuckets: new(true)} // unreadable: the strict choice
	}

	return c
}

func isTrue(flag *bool) bool { return flag != nil && *flag }

// validatePolicy checks that a document is a valid policy, that its resources are in this bucket, and that
// the public access block allows it.
func (s *Service) validatePolicy(b *bucket, document string) error {
	p, err := authz.ParsePolicy(authz.ResourcePolicy, document)
	if err != nil {
		return newErrorf(malformedPolicy, "%s", policyMessage(document, err)).with()
	}

	for _, st := range p.Statements {
		if err := validateStatement(st, b.Name); err != nil {
			return err
		}
	}

	if find := s.cfg.MissingPrincipal; find != nil {
		if _, missing := find(p); missing {
			return newErrorf(malformedPolicy, "Invalid principal in policy").with()
		}
	}

	if isPublicPolicy(p) && isTrue(b.publicAccessBlock().BlockPublicPolicy) {
		return newErrorf(accessDenied, "the bucket's public access block forbids a public policy").with()
	}

	return nil
}

// authorizeObject checks whether the caller may do an action on an object, or on the bucket if key is empty.
func (s *Service) authorizeObject(ctx context.Context, action, bucket, key string) error {
	arn := "arn:aws:s3:::" + bucket
	if key != "" {
		arn += "/" + key
	}

	return s.evaluateAccess(ctx, bucket, wire.AccessCheck{Action: "s3:" + action, Resource: arn})
}

// authorizeList checks whether the caller may list the keys of a bucket that begin with prefix.
func (s *Service) authorizeList(ctx context.Context, bucket, prefix string) error {
	return s.evaluateAccess(ctx, bucket, wire.AccessCheck{
		Action:   "s3:ListBucket",
		Resource: "arn:aws:s3:::" + bucket,
		Context:  map[string][]string{"s3:prefix": {prefix}},
	})
}

// evaluateAccess checks the bucket's policy and the caller's own policies: one of them must allow the action,
// and a Deny in either wins. It locks the store, so the caller must not hold the lock.
func (s *Service) evaluateAccess(ctx context.Context, bucket string, c wire.AccessCheck) error {
	caller := wire.CallerFrom(ctx)
	if s.cfg.Identities == nil || caller.System {
		return wire.Authorize(ctx, c)
	}

	c.Context = conditionKeys(ctx, c.Context)
	rules := s.findAccessRules(bucket)
	r := s.cfg.Identities.BuildRequest(ctx, c)
	own := s.cfg.Identities.EvaluateIdentity(ctx, c)
	byBucket := authz.EvaluateResource(rules.policy, r, own)
	countsForCaller := !caller.IsAnonymous() || !rules.restricted || !rules.public

	switch {
	case byBucket.Denied && !isRootsOwn(caller, c.Action):
		return wire.AccessDenied(ctx, c, byBucket.Reason)
	case own.Denied:
		return wire.AccessDenied(ctx, c, own.Reason)
	case own.Allowed, byBucket.Allowed && countsForCaller:
		return nil
	}

	return wire.AccessDenied(ctx, c, own.Reason)
}

// isRootsOwn reports whether an action stays with the account's root whatever a bucket policy denies: else nobody
// could correct a policy that denies everything to everyone.
func isRootsOwn(caller wire.Caller, action string) bool {
	return caller.Root && slices.Contains([]string{
		"s3:DeleteBucketPolicy",
		"s3:GetBucketPolicy",
		"s3:PutBucketPolicy",
	}, action)
}

// conditionKeys returns keys with the condition keys that S3 takes from a request's headers and query. keys
// win.
func conditionKeys(ctx context.Context, keys map[string][]string) map[string][]string {
	out := map[string][]string{}
	if r := wire.HTTPRequest(ctx); r != nil {
		addRequestKeys(out, r)
	}

	maps.Copy(out, keys)

	return out
}

func addRequestKeys(out map[string][]string, r *http.Request) {
	for _, name := range []string{
		"if-match",
		"if-none-match",
		"x-amz-acl",
		"x-amz-content-sha256",
		"x-amz-copy-source",
		"x-amz-server-side-encryption",
		"x-amz-server-side-encryption-aws-kms-key-id",
		"x-amz-storage-class",
	} {
		if v := r.Header.Get(name); v != "" {
			out["s3:"+name] = []string{v}
		}
	}

	q := r.URL.Query()
	for key, name := range map[string]string{
		"s3:delimiter": "delimiter",
		"s3:max-keys":  "max-keys",
		"s3:VersionId": "versionId",
	} {
		if q.Has(name) {
			out[key] = []string{q.Get(name)}
		}
	}
}
