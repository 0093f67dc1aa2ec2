// SPDX-License-Identifier: Apache-2.0

package services

import (
	"context"
	"crypto/rand"

	"github.com/slipway-k8s/slipway/internal/region/cloudwatchlogs"
	"github.com/slipway-k8s/slipway/internal/region/eventbridge"
	"github.com/slipway-k8s/slipway/internal/region/iam"
	"github.com/slipway-k8s/slipway/internal/region/lambda"
	"github.com/slipway-k8s/slipway/internal/region/sns"
	"github.com/slipway-k8s/slipway/internal/region/wire"
)

// functionRoles adapts IAM to what Lambda asks about the roles of functions.
type functionRoles struct{ *iam.IAM }

// IssueRoleCredentials returns new credentials of a role.
func (r functionRoles) IssueRoleCredentials(role, session string) (lambda.Credentials, error) {
	c, err := r.IAM.IssueRoleCredentials(role, session)

	return lambda.Credentials{
		AccessKeyID:     c.AccessKeyID,
		SecretAccessKey: c.SecretAccessKey,
		Token:           c.Token,
	}, err
}

// MayDo reports whether the holder of credentials is allowed an action on a resource.
func (r functionRoles) MayDo(ctx context.Context, accessKeyID, action, resource string) bool {
	key, ok := r.FindKey(accessKeyID)
	if !ok {
		return false
	}

	caller := key.Caller
	caller.AccessKeyID = accessKeyID
	check := wire.AccessCheck{Action: action, Resource: resource}

	return r.EvaluateIdentity(wire.WithCaller(ctx, caller), check).Allowed
}

// buildFunctions builds CloudWatch Logs, Lambda, EventBridge and SNS: each calls those before it.
func (s *Services) buildFunctions() (err error) {
	s.Logs, err = cloudwatchlogs.New(cloudwatchlogs.Config{
		Region:  s.cfg.Region,
		Account: s.cfg.Account,
		Now:     s.cfg.Now,
		State:   s.cfg.State,
	})
	if err != nil {
		return err
	}

	s.Lambda, err = lambda.New(lambda.Config{
		Region:   s.cfg.Region,
		Account:  s.cfg.Account,
		Now:      s.cfg.Now,
		Rand:     rand.Reader,
		Delay:    s.cfg.TransitionDelay,
		State:    s.cfg.State,
		Dir:      s.cfg.FunctionDir,
		Endpoint: s.cfg.Endpoint,
		Roles:    functionRoles{s.IAM},
		Objects:  s.S3,
		Logs:     s.Logs,
		Log:      s.cfg.Log,
	})
	if err != nil {
		return err
	}

	s.EventBridge, err = eventbridge.New(eventbridge.Config{
		Region:    s.cfg.Region,
		Account:   s.cfg.Account,
		Now:       s.cfg.Now,
		Rand:      rand.Reader,
		State:     s.cfg.State,
		Functions: s.Lambda,
		Log:       s.cfg.Log,
	})
	if err != nil {
		return err
	}

	s.SNS, err = sns.New(sns.Config{
		Region:     s.cfg.Region,
		Account:    s.cfg.Account,
		Now:        s.cfg.Now,
		Rand:       rand.Reader,
		State:      s.cfg.State,
		Functions:  s.Lambda,
		Identities: s.IAM,
		Log:        s.cfg.Log,
	})

	return err
}
