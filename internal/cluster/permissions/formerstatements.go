// SPDX-License-Identifier: Apache-2.0

package permissions

import (
	"fmt"
	"slices"
)

// formerStatement is a statement that boundaries of earlier versions of Slipway have, and that this
// version does not need: its actions are in another statement now. testdata has such boundaries.
type formerStatement struct {
	sid     string
	actions []string
}

// formerStatements returns all of them. Add one when a statement of the boundary gets another Sid
// or goes.
func formerStatements() []formerStatement {
	return []formerStatement{
		{"List", []string{"s3:ListBucket"}},
		{"Objects", []string{"kms:Decrypt", "kms:GenerateDataKey"}},
		{"Sessions", []string{
			"ssm:UpdateInstanceInformation",
			"ssmmessages:CreateControlChannel",
			"ssmmessages:CreateDataChannel",
			"ssmmessages:OpenControlChannel",
			"ssmmessages:OpenDataChannel",
		}},
		{"Signal", []string{"cloudformation:SignalResource"}},
		{"ReadRecords", []string{"route53:ListResourceRecordSets"}},
		{"ListRecords", []string{"route53:ListResourceRecordSets"}},
		{"Logs", []string{"logs:CreateLogStream", "logs:PutLogEvents"}},
		{"Pull", []string{
			"ecr:BatchCheckLayerAvailability",
			"ecr:BatchGetImage",
			"ecr:GetAuthorizationToken",
			"ecr:GetDownloadUrlForLayer",
		}},
	}
}

// isFormer reports whether a statement in AWS is one that an earlier version of Slipway has
// written. A statement of somebody else may have the same Sid: it has other actions.
func isFormer(s map[string]any) bool {
	return slices.ContainsFunc(formerStatements(), func(former formerStatement) bool {
		if s["Sid"] != former.sid || s["Effect"] != "Allow" || s["NotAction"] != nil {
			return false
		}

		var actions []string
		for _, action := range listOf(s["Action"]) {
			actions = append(actions, fmt.Sprint(action))
		}

		slices.Sort(actions)

		return slices.Equal(actions, former.actions)
	})
}
