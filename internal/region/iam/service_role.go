// SPDX-License-Identifier: Apache-2.0

package iam

import (
	"strings"

	"github.com/slipway-k8s/slipway/internal/region/wire"
)

// AssumeServiceRole returns the caller for a service of AWS, such as cloudformation.amazonaws.com, that assumes a
// role to act for a client. It returns ValidationError if the role does not exist or does not trust the
// service.
func (s *IAM) AssumeServiceRole(roleARN, service, session string) (wire.Caller, error) {
	name := roleARN[strings.LastIndex(roleARN, "/")+1:]
	if arn, ok := s.RoleARN(name); !ok || arn != roleARN || !s.TrustsService(name, service) {
		return wire.Caller{}, newErrorf(
			codeValidation,
			"Role %s is invalid or cannot be assumed",
			roleARN,
		)
	}

	c, who, err := s.issueCredentials(name, session, instanceSessionDuration, sessionLimits{})
	if err != nil {
		return wire.Caller{}, err
	}

	who.Account = s.cfg.Account
	who.AccessKeyID = c.AccessKeyID
	who.Role = name
	who.Session = session

	return who, nil
}
