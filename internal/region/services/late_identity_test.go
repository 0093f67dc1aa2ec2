// SPDX-License-Identifier: Apache-2.0

package services_test

import (
	"context"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/credentials"
	"github.com/aws/aws-sdk-go-v2/service/iam"
	"github.com/aws/aws-sdk-go-v2/service/sts"
)

// readPolicy is a policy that allows to describe.
const readPolicy = `{"Version":"2012-10-17","Statement":[{"Effect":"Allow","Action":"ec2:Describe*","Resource":"*"}]}`

func (l *lateLab) createUser() {
	l.Helper()
	_, err := l.iam.CreateUser(l.Context(), &iam.CreateUserInput{UserName: aws.String("operator")})
	l.must(err)
}

func (l *lateLab) createPolicy() {
	l.Helper()
	_, err := l.iam.CreatePolicy(l.Context(), &iam.CreatePolicyInput{
		PolicyName: aws.String("read"), PolicyDocument: aws.String(readPolicy),
	})
	l.must(err)
}

// identityCases are the cases of IAM. Its error about what does not exist is NoSuchEntity.
func identityCases() map[string]lateCase {
	const missing = "NoSuchEntity"

	return map[string]lateCase{
		"iam.CreateRole": func(l *lateLab) (string, func(context.Context) error) {
			l.createRole("worker")

			return missing, func(ctx context.Context) error {
				_, err := l.iam.GetRole(ctx, &iam.GetRoleInput{RoleName: aws.String("worker")})
				return err
			}
		},
		"iam.CreateServiceLinkedRole": func(l *lateLab) (string, func(context.Context) error) {
			out, err := l.iam.CreateServiceLinkedRole(l.Context(), &iam.CreateServiceLinkedRoleInput{
				AWSServiceName: aws.String("spot.amazonaws.com"),
			})
			l.must(err)

			return missing, func(ctx context.Context) error {
				_, err := l.iam.GetRole(ctx, &iam.GetRoleInput{RoleName: out.Role.RoleName})
				return err
			}
		},
		"iam.PutRolePolicy": func(l *lateLab) (string, func(context.Context) error) {
			l.withoutDelay(func() { l.createRole("worker") })
			_, err := l.iam.PutRolePolicy(l.Context(), &iam.PutRolePolicyInput{
				RoleName: aws.String("worker"), PolicyName: aws.String("read"), PolicyDocument: aws.String(readPolicy),
			})
			l.must(err)

			return missing, func(ctx context.Context) error {
				_, err := l.iam.GetRolePolicy(ctx, &iam.GetRolePolicyInput{
					RoleName: aws.String("worker"), PolicyName: aws.String("read"),
				})

				return err
			}
		},
		"iam.CreateUser": func(l *lateLab) (string, func(context.Context) error) {
			l.createUser()

			return missing, func(ctx context.Context) error {
				_, err := l.iam.GetUser(ctx, &iam.GetUserInput{UserName: aws.String("operator")})
				return err
			}
		},
		"iam.PutUserPolicy": func(l *lateLab) (string, func(context.Context) error) {
			l.withoutDelay(l.createUser)
			_, err := l.iam.PutUserPolicy(l.Context(), &iam.PutUserPolicyInput{
				UserName: aws.String("operator"), PolicyName: aws.String("read"), PolicyDocument: aws.String(readPolicy),
			})
			l.must(err)

			return missing, func(ctx context.Context) error {
				_, err := l.iam.GetUserPolicy(ctx, &iam.GetUserPolicyInput{
					UserName: aws.String("operator"), PolicyName: aws.String("read"),
				})

				return err
			}
		},
		"iam.CreateAccessKey": func(l *lateLab) (string, func(context.Context) error) {
			l.withoutDelay(l.createUser)
			out, err := l.iam.CreateAccessKey(l.Context(), &iam.CreateAccessKeyInput{UserName: aws.String("operator")})
			l.must(err)
			key := out.AccessKey
			user := sts.NewFromConfig(l.as(credentials.NewStaticCredentialsProvider(*key.AccessKeyId, *key.SecretAccessKey, "")))

			return "InvalidClientTokenId", func(ctx context.Context) error {
				_, err := user.GetCallerIdentity(ctx, &sts.GetCallerIdentityInput{})
				return err
			}
		},
		"iam.CreateInstanceProfile": func(l *lateLab) (string, func(context.Context) error) {
			_, err := l.iam.CreateInstanceProfile(l.Context(), &iam.CreateInstanceProfileInput{
				InstanceProfileName: aws.String("worker"),
			})
			l.must(err)

			return missing, func(ctx context.Context) error {
				_, err := l.iam.GetInstanceProfile(ctx, &iam.GetInstanceProfileInput{InstanceProfileName: aws.String("worker")})
				return err
			}
		},
		"iam.CreatePolicy": func(l *lateLab) (string, func(context.Context) error) {
			l.createPolicy()

			return missing, func(ctx context.Context) error {
				_, err := l.iam.GetPolicy(ctx, &iam.GetPolicyInput{PolicyArn: aws.String(iamARN("policy/read"))})
				return err
			}
		},
	}
}
