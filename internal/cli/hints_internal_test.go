// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/aws/smithy-go"

	"github.com/slipway-k8s/slipway/internal/lib/diag"
)

// TestEachFailureOfAWSHasItsNextStep: the cause of a failed call decides the hint.
func TestEachFailureOfAWSHasItsNextStep(t *testing.T) {
	code := func(code, message string) error { return &smithy.GenericAPIError{Code: code, Message: message} }
	for name, test := range map[string]struct {
		err  error
		want string
	}{
		"no credentials":  {errors.New("get identity: get credentials: failed to refresh cached credentials, no EC2 IMDS role found, operation error ec2imds: GetMetadata, x"), "aws sso login"},
		"expired token":   {code("ExpiredToken", "The provided token has expired."), "get new ones"},
		"expired session": {errors.New("get identity: get credentials: failed to refresh cached credentials, the SSO session has expired or is invalid: open x"), "log in again"},
		"unknown key":     {code("InvalidClientTokenId", "The security token included in the request is invalid."), "check AWS_PROFILE"},
		"skew of S3":      {code("RequestTimeTooSkewed", "The difference between the request time and the current time is too large."), "set the clock"},
		"skew of others":  {code("SignatureDoesNotMatch", "Signature expired: 20260101T000000Z is now earlier than 20260101T001000Z"), "set the clock"},
		"no permission":   {code("UnauthorizedOperation", "You are not authorized"), "slipway iam operator-policy"},
		"other region":    {code("AuthorizationHeaderMalformed", "the region 'us-east-1' is wrong; expecting 'eu-central-1'"), "--region eu-central-1"},
		"wrong scope":     {code("SignatureDoesNotMatch", "Credential should be scoped to region us-east-1 and service s3."), "omit --region, or give --region us-east-1"},
		"no region":       {code("SignatureDoesNotMatch", "Credential should be scoped to a valid region."), "check the region"},
		"redirect":        {code("PermanentRedirect", "use the specified endpoint"), "in another region"},
		"no bucket":       {code("NoSuchBucket", "The specified bucket does not exist"), "slipway state init"},
		"too many calls":  {code("RequestLimitExceeded", "Request limit exceeded."), "in a minute"},
		"volume's limit":  {code("VolumeModificationRateExceeded", "You've reached the maximum modification rate per volume limit."), "four times in 24 hours"},
		"refused":         {errors.New("request send failed, Post \"http://127.0.0.1:1/\": dial tcp 127.0.0.1:1: connect: connection refused"), "nothing answers there"},
		"no such region":  {errors.New("request send failed, Post \"https://ec2.mars-1.amazonaws.com/\": dial tcp: lookup ec2.mars-1.amazonaws.com: no such host"), "check the region's name"},
		"timeout":         {errors.New("request send failed, Post \"https://x/\": dial tcp 10.0.0.1:443: i/o timeout"), "check the network"},
		"certificate":     {errors.New("tls: failed to verify certificate: x509: certificate signed by unknown authority"), "AWS_CA_BUNDLE"},
	} {
		t.Run(name, func(t *testing.T) {
			err := fmt.Errorf("read x: %w", &smithy.OperationError{ServiceID: "S3", OperationName: "GetObject", Err: test.err})
			hints := errorHints(err)
			if len(hints) != 1 || !strings.Contains(hints[0], test.want) {
				t.Errorf("got %q, want %q", hints, test.want)
			}
			if own := errorHints(diag.WithHint(err, "own")); len(own) != 1 || own[0] != "own" {
				t.Errorf("the error's own hint is not the only one: %q", own)
			}
		})
	}
	if hints := errorHints(errors.New("connect to 127.0.0.1:1: connection refused")); hints != nil {
		t.Errorf("an error that is not AWS's has hints: %q", hints)
	}
}
