// SPDX-License-Identifier: Apache-2.0

package engine_test

import (
	sdk "github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/iam"
)

// podDrifts are changes of what pods need to assume their roles.
func podDrifts() []drift {
	return []drift{
		{description: "IAM accepts tokens of pods for another audience", change: func(h awsClients) error {
			_, err := h.iam.AddClientIDToOpenIDConnectProvider(h, &iam.AddClientIDToOpenIDConnectProviderInput{
				OpenIDConnectProviderArn: h.resourceID("iam-oidc-provider/pods"), ClientID: sdk.String("vault"),
			})
			return err
		}, want: []string{"~ iam-oidc-provider/pods", `  ClientIdList: ["sts.amazonaws.com","vault"] → ["sts.amazonaws.com"]`}},
		{description: "IAM does not accept tokens of pods any more", change: func(h awsClients) error {
			_, err := h.iam.RemoveClientIDFromOpenIDConnectProvider(h, &iam.RemoveClientIDFromOpenIDConnectProviderInput{
				OpenIDConnectProviderArn: h.resourceID("iam-oidc-provider/pods"), ClientID: sdk.String("sts.amazonaws.com"),
			})
			return err
		}, want: []string{"~ iam-oidc-provider/pods", `  ClientIdList: [] → ["sts.amazonaws.com"]`}},
		{description: "a tag of an OpenID Connect provider is changed", change: func(h awsClients) error {
			_, err := h.iam.TagOpenIDConnectProvider(h, &iam.TagOpenIDConnectProviderInput{
				OpenIDConnectProviderArn: h.resourceID("iam-oidc-provider/pods"), Tags: iamTags("Name", "mine"),
			})
			return err
		}, want: []string{"~ iam-oidc-provider/pods", `  Tags[Name]: "mine" → "pods.demo"`}},
		{description: "an OpenID Connect provider gets a tag with Slipway's prefix", change: func(h awsClients) error {
			_, err := h.iam.TagOpenIDConnectProvider(h, &iam.TagOpenIDConnectProviderInput{
				OpenIDConnectProviderArn: h.resourceID("iam-oidc-provider/pods"), Tags: iamTags("slipway.dev/role", "worker"),
			})
			return err
		}, want: []string{"~ iam-oidc-provider/pods", `  Tags[slipway.dev/role]: "worker" → (not set)`}},
		{description: "an OpenID Connect provider is deleted", change: func(h awsClients) error {
			_, err := h.iam.DeleteOpenIDConnectProvider(h, &iam.DeleteOpenIDConnectProviderInput{OpenIDConnectProviderArn: h.resourceID("iam-oidc-provider/pods")})
			return err
		}, want: []string{"+ iam-oidc-provider/pods"}},
		{description: "tokens of every service account may assume a role", change: func(h awsClients) error {
			arn := *h.resourceID("iam-oidc-provider/pods")
			_, err := h.iam.UpdateAssumeRolePolicy(h, &iam.UpdateAssumeRolePolicyInput{RoleName: h.resourceID("iam-role/sa-shop-reader"), PolicyDocument: sdk.String(
				`{"Version":"2012-10-17","Statement":[{"Effect":"Allow","Principal":{"Federated":"` + arn + `"},"Action":"sts:AssumeRoleWithWebIdentity"}]}`)})
			return err
		}, want: []string{"~ iam-role/sa-shop-reader", "  AssumeRolePolicyDocument:"}},
	}
}
