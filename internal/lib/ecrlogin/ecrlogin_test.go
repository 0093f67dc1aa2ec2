// SPDX-License-Identifier: Apache-2.0

package ecrlogin_test

import (
	"context"
	"encoding/base64"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/service/ecr"
	"github.com/aws/aws-sdk-go-v2/service/ecr/types"

	"github.com/slipway-k8s/slipway/internal/lib/ecrlogin"
)

type fakeECR struct {
	out *ecr.GetAuthorizationTokenOutput
	err error
}

func (f fakeECR) GetAuthorizationToken(
	context.Context, *ecr.GetAuthorizationTokenInput, ...func(*ecr.Options),
) (*ecr.GetAuthorizationTokenOutput, error) {
	return f.out, f.err
}

// TestGetToken: the token is the user and the password in base64. An answer without one is an error
// that does not show it.
func TestGetToken(t *testing.T) {
	t.Parallel()
	expires := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	answer := func(token string) *ecr.GetAuthorizationTokenOutput {
		return &ecr.GetAuthorizationTokenOutput{
			AuthorizationData: []types.AuthorizationData{{AuthorizationToken: &token, ExpiresAt: &expires}},
		}
	}

	encoded := base64.StdEncoding.EncodeToString([]byte("AWS:secret:with:colons"))
	got, err := ecrlogin.GetToken(t.Context(), fakeECR{out: answer(encoded)})
	want := ecrlogin.Token{User: "AWS", Password: "secret:with:colons", Expires: expires}
	if err != nil || got != want {
		t.Errorf("%+v, %v, want %+v", got, err, want)
	}

	for name, api := range map[string]fakeECR{
		"no answer":   {err: errors.New("AccessDeniedException")},
		"no token":    {out: &ecr.GetAuthorizationTokenOutput{}},
		"no base64":   {out: answer("sup:er:secret")},
		"no password": {out: answer(base64.StdEncoding.EncodeToString([]byte("supersecret")))},
	} {
		_, err := ecrlogin.GetToken(t.Context(), api)
		if err == nil || !strings.Contains(err.Error(), "log in to Amazon ECR") || strings.Contains(err.Error(), "secret") {
			t.Errorf("%s: %v", name, err)
		}
	}
}
