// SPDX-License-Identifier: Apache-2.0

// Package sts is the region's Security Token Service: GetCallerIdentity, AssumeRole and AssumeRoleWithWebIdentity. It
// does not know the roles: a [CredentialIssuer] and a [WebIdentityIssuer] check the request and issue the credentials.
package sts

import (
	"context"
	"strings"

	"github.com/aws/aws-sdk-go/service/sts"

	"github.com/slipway-k8s/slipway/internal/region/iam"
	"github.com/slipway-k8s/slipway/internal/region/wire"
)

// CredentialIssuer issues temporary credentials. IAM implements it.
type CredentialIssuer interface {
	// AssumeRole returns credentials of a role for the caller in ctx, and the caller that they identify. The error is a
	// [wire.Error] if the caller may not assume the role.
	AssumeRole(ctx context.Context, in iam.RoleRequest) (iam.Credentials, wire.Caller, error)
}

// WebIdentityIssuer issues temporary credentials for tokens of OpenID Connect providers. [iam.WebIdentities]
// implements it.
type WebIdentityIssuer interface {
	// AssumeRole returns the session of a role. The error is a [wire.Error] if the token or the role's trust
	// policy does not allow it.
	AssumeRole(ctx context.Context, in iam.WebIdentityRequest) (iam.WebIdentitySession, error)
}

// Service returns STS's operations for the wire layer.
func Service(i CredentialIssuer, web WebIdentityIssuer) wire.Service {
	return wire.Service{
		Name:      "sts",
		Protocol:  wire.QueryProtocol,
		Version:   "2011-06-15",
		Namespace: "https://sts.amazonaws.com/doc/2011-06-15/",
		// GetCallerIdentity needs no permission, and the issuer checks AssumeRole.
		Authorize: wire.AuthorizedInHandlers,
		Operations: []wire.Operation{
			wire.NewOperation("GetCallerIdentity", getCallerIdentity),
			wire.NewOperation(
				"AssumeRole",
				func(ctx context.Context, in *sts.AssumeRoleInput) (*sts.AssumeRoleOutput, error) {
					return assumeRole(ctx, i, in)
				},
			),
			withWebIdentity(web),
		},
	}
}

func getCallerIdentity(
	ctx context.Context,
	_ *sts.GetCallerIdentityInput,
) (*sts.GetCallerIdentityOutput, error) {
	c := wire.CallerFrom(ctx)
	return &sts.GetCallerIdentityOutput{Account: new(c.Account), Arn: new(c.ARN), UserId: new(c.UserID)}, nil
}

func assumeRole(
	ctx context.Context,
	i CredentialIssuer,
	in *sts.AssumeRoleInput,
) (*sts.AssumeRoleOutput, error) {
	name := *in.RoleSessionName
	if err := validateSessionName(name); err != nil {
		return nil, err
	}

	request := iam.RoleRequest{RoleARN: *in.RoleArn, SessionName: name}
	if in.DurationSeconds != nil {
		request.Life = *in.DurationSeconds
	}

	if in.Policy != nil {
		request.Policies = []string{*in.Policy}
	}

	if len(in.PolicyArns) > 0 || len(in.TransitiveTagKeys) > 0 {
		return nil, newErrorf(
			codeValidation,
			"transitive session tags and managed session policies are not supported by this region",
		)
	}

	var err error
	if request.Tags, err = readSessionTags(in.Tags); err != nil {
		return nil, err
	}

	c, assumed, err := i.AssumeRole(ctx, request)
	if err != nil {
		return nil, err
	}

	return &sts.AssumeRoleOutput{
		AssumedRoleUser: &sts.AssumedRoleUser{Arn: new(assumed.ARN), AssumedRoleId: new(assumed.UserID)},
		Credentials:     toCredentials(c),
	}, nil
}

// readSessionTags returns the tags of a session by key. Keys differ by more than their case.
func readSessionTags(tags []*sts.Tag) (map[string]string, error) {
	if len(tags) == 0 {
		return nil, nil
	}

	out := map[string]string{}
	seen := map[string]bool{}

	for _, t := range tags {
		key := *t.Key
		if seen[strings.ToLower(key)] {
			return nil, newErrorf(
				codeValidation,
				"Duplicate tag keys found. Please note that Tag keys are case insensitive.",
			)
		}

		seen[strings.ToLower(key)] = true
		out[key] = *t.Value
	}

	return out, nil
}

func toCredentials(c iam.Credentials) *sts.Credentials {
	return &sts.Credentials{
		AccessKeyId:     new(c.AccessKeyID),
		SecretAccessKey: new(c.SecretAccessKey),
		SessionToken:    new(c.Token),
		Expiration:      new(c.Expiration),
	}
}

func validateSessionName(name string) error {
	if len(name) > 64 || strings.ContainsFunc(name, isInvalidSessionRune) {
		return newErrorf(
			codeValidation,
			"Value '%s' at 'roleSessionName' failed to satisfy constraint: "+
				"Member must have up to 64 characters and satisfy regular expression pattern: [\\w+=,.@-]*",
			name,
		)
	}

	return nil
}

func isInvalidSessionRune(r rune) bool {
	return !strings.ContainsRune("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_+=,.@-", r)
}
