// SPDX-License-Identifier: Apache-2.0

package iampolicy

import (
	"slices"
	"strings"

	"github.com/slipway-k8s/slipway/internal/infra/awskind"
)

// identityStatements allows managing the cluster's roles, instance profiles and KMS key.
//
// They are no way to more permissions: a role gets its permissions only with the boundary, and can be passed only to
// EC2. A role's trust can be set only when it is created. A key gets its policy only when it is created, and its
// deletion needs [BuildDeletionPolicy].
func (s policyBuilder) identityStatements() []Statement {
	out := []Statement{
		newStatement(
			"ChangeRoles",
			qualifyActions(
				"iam", "AddRoleToInstanceProfile", "CreateInstanceProfile", "DeleteInstanceProfile",
				"DeleteRole", "DeleteRolePolicy", "DetachRolePolicy", "GetInstanceProfile",
				"RemoveRoleFromInstanceProfile", "UntagRole", "UpdateRole",
			),
			[]string{s.iamARN("role"), s.iamARN("instance-profile")},
			nil,
		),
		// The boundary limits a role to the cluster of its tag.
		newStatement(
			"TagRoles",
			qualifyActions("iam", "TagRole"),
			[]string{s.iamARN("role")},
			condition{"StringEqualsIfExists": {"aws:RequestTag/" + awskind.TagCluster: {s.Cluster}}},
		),
		newStatement(
			"ChangeBoundedRoles",
			qualifyActions("iam", "CreateRole", "PutRolePermissionsBoundary", "PutRolePolicy"),
			[]string{s.iamARN("role")},
			stringEquals("iam:PermissionsBoundary", s.Boundary),
		),
		newStatement(
			"PassRoles",
			qualifyActions("iam", "PassRole"),
			[]string{s.iamARN("role")},
			stringEquals("iam:PassedToService", "ec2."+s.dnsSuffix()),
		),
	}

	return slices.Concat(out, s.karpenterRoleStatements(), s.keyStatements())
}

// karpenterRoleStatements allow the one role with the boundary of Karpenter. No machine gets that boundary.
func (s policyBuilder) karpenterRoleStatements() []Statement {
	if s.KarpenterRole == "" {
		return nil
	}

	return []Statement{newStatement(
		"ChangeKarpenterRole",
		qualifyActions("iam", "CreateRole", "PutRolePermissionsBoundary", "PutRolePolicy"),
		[]string{strings.TrimSuffix(s.iamARN("role"), "*") + s.KarpenterRole},
		stringEquals("iam:PermissionsBoundary", s.KarpenterBoundary),
	)}
}

// keyStatements allows creating the cluster's key and changing it, by its tag. A new key has no tag: its policy
// allows the first one, so that no permission to tag the keys of others is needed. The tag of the cluster can be emptied, as a
// deletion does, and not set to another cluster.
func (s policyBuilder) keyStatements() []Statement {
	change := s.staysInCluster()
	change["StringEqualsIfExists"]["aws:RequestTag/"+awskind.TagCluster] = []string{s.Cluster, ""}
	untag := s.resourceHasClusterTag() // a key without the tag is a new one, which its own policy lets everybody tag
	untag["ForAllValues:StringNotEquals"] = map[string][]string{"aws:TagKeys": {awskind.TagCluster}}

	return []Statement{
		newStatement("CreateKey", qualifyActions("kms", "CreateKey"), []string{"*"}, nil),
		newStatement(
			"ChangeKey",
			qualifyActions(
				"kms", "CreateAlias", "DeleteAlias", "EnableKey", "EnableKeyRotation", "TagResource",
				"UpdateAlias", "UpdateKeyDescription",
			),
			[]string{s.regionalARN("kms", "key/*")},
			change,
		),
		newStatement(
			"UntagKey",
			qualifyActions("kms", "UntagResource"),
			[]string{s.regionalARN("kms", "key/*")},
			untag,
		),
		newStatement(
			"ChangeAlias",
			qualifyActions("kms", "CreateAlias", "DeleteAlias", "UpdateAlias"),
			[]string{s.regionalARN("kms", s.KeyAlias)},
			nil,
		),
	}
}

// BuildDeletionPolicy returns the policy that 'slipway delete cluster --destroy-data' needs in addition: it names
// the one key that may be deleted.
func BuildDeletionPolicy(in Input) Policy {
	return Policy{Version: policyVersion, Statement: []Statement{newStatement(
		"DeleteKey",
		// Before its deletion is scheduled, the tags of its cluster are emptied.
		qualifyActions("kms", "ScheduleKeyDeletion", "TagResource"),
		[]string{in.KeyARN},
		condition{"StringEqualsIfExists": {"aws:RequestTag/" + awskind.TagCluster: {""}}},
	)}}
}
