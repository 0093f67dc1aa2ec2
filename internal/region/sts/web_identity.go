// SPDX-License-Identifier: Apache-2.0

package sts

import (
	"context"

	"github.com/aws/aws-sdk-go/service/sts"

	"github.com/slipway-k8s/slipway/internal/region/iam"
	"github.com/slipway-k8s/slipway/internal/region/wire"
)

// maxTokenLength is STS's limit for a token, in characters.
const maxTokenLength = 20000

// withWebIdentity returns the operation AssumeRoleWithWebIdentity. Its requests need no signature: the token proves
// who the caller is.
func withWebIdentity(i WebIdentityIssuer) wire.Operation {
	op := wire.NewOperation(
		"AssumeRoleWithWebIdentity",
		func(
			ctx context.Context,
			in *sts.AssumeRoleWithWebIdentityInput,
		) (*sts.AssumeRoleWithWebIdentityOutput, error) {
			return assumeRoleWithWebIdentity(ctx, i, in)
		},
	)
	op.Unsigned = true

	return op
}

func assumeRoleWithWebIdentity(
	ctx context.Context,
	i WebIdentityIssuer,
	in *sts.AssumeRoleWithWebIdentityInput,
) (*sts.AssumeRoleWithWebIdentityOutput, error) {
	if err := validateSessionName(*in.RoleSessionName); err != nil {
		return nil, err
	}

	if len(*in.WebIdentityToken) > maxTokenLength {
		return nil, newErrorf(
			codeValidation,
			"Value at 'webIdentityToken' failed to satisfy constraint: Member must have length less than or equal to %d",
			maxTokenLength,
		)
	}

	request := iam.WebIdentityRequest{
		RoleARN:     *in.RoleArn,
		SessionName: *in.RoleSessionName,
		Token:       *in.WebIdentityToken,
	}
	if in.DurationSeconds != nil {
		request.Life = *in.DurationSeconds
	}

	if in.Policy != nil {
		request.Policies = []string{*in.Policy}
	}

	session, err := i.AssumeRole(ctx, request)
	if err != nil {
		return nil, err
	}

	return &sts.AssumeRoleWithWebIdentityOutput{
		AssumedRoleUser: &sts.AssumedRoleUser{
			Arn:           new(session.Caller.ARN),
			AssumedRoleId: new(session.Caller.UserID),
		},
		Audience:                    new(session.Audience),
		Credentials:                 toCredentials(session.Credentials),
		Provider:                    new(session.ProviderARN),
		SubjectFromWebIdentityToken: new(session.Subject),
	}, nil
}
