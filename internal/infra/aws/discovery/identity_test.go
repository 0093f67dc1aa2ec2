// SPDX-License-Identifier: Apache-2.0

package discovery_test

import (
	"context"
	"testing"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/config"

	"github.com/slipway-k8s/slipway/internal/infra/aws/discovery"
)

// TestAccountOfCredentials: a role knows its account, and AWS_ACCOUNT_ID in the environment is not believed.
func TestAccountOfCredentials(t *testing.T) {
	for source, want := range map[string]string{"AssumeRoleProvider": "123456789012", config.CredentialsSourceName: ""} {
		found := aws.Credentials{AccessKeyID: "AKIAEXAMPLE", SecretAccessKey: "secret", AccountID: "123456789012", Source: source}
		cfg := aws.Config{ // has no region, so that STS cannot be asked
			Credentials: aws.CredentialsProviderFunc(func(context.Context) (aws.Credentials, error) { return found, nil }),
		}
		account, err := discovery.FindAccount(t.Context(), cfg)
		if account != want || (err == nil) != (want != "") {
			t.Errorf("credentials from %s: account %q, %v, want %q", source, account, err, want)
		}
	}
}
