// SPDX-License-Identifier: Apache-2.0

// Package ecrlogin gets the tokens with which clients log in to the private registries of Amazon
// ECR. It stores nothing: whoever gets a token must keep it secret.
package ecrlogin

import (
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/ecr"

	"github.com/slipway-k8s/slipway/internal/lib/plainerror"
)

// Token lets its owner use the registries of Amazon ECR in a region with the permissions of who got
// it.
type Token struct {
	User     string
	Password string
	Expires  time.Time // 12 hours after it was issued
}

// API is the call of Amazon ECR that issues a token.
type API interface {
	GetAuthorizationToken(
		context.Context,
		*ecr.GetAuthorizationTokenInput,
		...func(*ecr.Options),
	) (*ecr.GetAuthorizationTokenOutput, error)
}

// GetToken returns a new token. Its errors never contain it.
func GetToken(ctx context.Context, api API) (Token, error) {
	out, err := api.GetAuthorizationToken(ctx, &ecr.GetAuthorizationTokenInput{})
	if err != nil {
		return Token{}, fmt.Errorf("log in to Amazon ECR: %w", plainerror.Wrap(err))
	}

	if len(out.AuthorizationData) == 0 {
		return Token{}, errors.New("log in to Amazon ECR: it returned no token")
	}

	data := out.AuthorizationData[0]
	text, err := base64.StdEncoding.DecodeString(aws.ToString(data.AuthorizationToken))
	user, password, ok := strings.Cut(string(text), ":")
	if err != nil || !ok {
		return Token{}, errors.New("log in to Amazon ECR: its token is not USER:PASSWORD in base64")
	}

	return Token{User: user, Password: password, Expires: aws.ToTime(data.ExpiresAt)}, nil
}
