// SPDX-License-Identifier: Apache-2.0

package attack_test

import (
	"testing"

	sdk "github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/iam"
	"github.com/aws/aws-sdk-go-v2/service/kms"
	kmstypes "github.com/aws/aws-sdk-go-v2/service/kms/types"
	"github.com/aws/aws-sdk-go-v2/service/sts"

	"github.com/slipway-k8s/slipway/internal/infra/model"
	"github.com/slipway-k8s/slipway/internal/region/regiontest"
)

const (
	rolePath = "/slipway/us-east-1/demo/"
	anything = `{"Version":"2012-10-17","Statement":[{"Effect":"Allow","Action":"*","Resource":"*"}]}`
	selfmade = `{"Version":"2012-10-17","Statement":[{"Effect":"Allow","Action":"sts:AssumeRole",` +
		`"Principal":{"AWS":"arn:aws:iam::` + regiontest.AccountID + `:user/operator"}}]}`
)

// TestOperatorCannotMakeAnAdministrator: the operator creates a role below the cluster's path that trusts the
// operator, gives it every permission, assumes it, and creates an access key for another user. Seen to succeed before
// roles needed the permissions boundary.
func TestOperatorCannotMakeAnAdministrator(t *testing.T) {
	l := newLab(t)
	l.createCluster()
	l.user("somebody", nil)
	operator := l.user("operator", l.policies("demo"))
	api := iam.NewFromConfig(l.config(operator))
	_, err := api.CreateRole(t.Context(), &iam.CreateRoleInput{
		RoleName:                 sdk.String("own"),
		Path:                     sdk.String(rolePath),
		AssumeRolePolicyDocument: sdk.String(selfmade),
	})
	l.denied("create a role that trusts the operator", err)

	if err == nil {
		l.useOwnRole(operator, "own")
	}

	// An administrator has made the role without a boundary: it cannot be given permissions.
	_, err = iam.NewFromConfig(l.config(caller{})).CreateRole(t.Context(), &iam.CreateRoleInput{
		RoleName:                 sdk.String("old"),
		Path:                     sdk.String(rolePath),
		AssumeRolePolicyDocument: sdk.String(selfmade),
	})
	l.check(err)

	_, err = api.PutRolePolicy(t.Context(), &iam.PutRolePolicyInput{
		RoleName:       sdk.String("old"),
		PolicyName:     sdk.String("all"),
		PolicyDocument: sdk.String(anything),
	})
	l.denied("give a role without a boundary every permission", err)

	_, err = api.UpdateAssumeRolePolicy(t.Context(), &iam.UpdateAssumeRolePolicyInput{
		RoleName:       sdk.String(model.SlotRoleName("demo", regiontest.RegionName, "a")),
		PolicyDocument: sdk.String(selfmade),
	})
	l.denied("let the operator assume the role of the control plane", err)
}

// useOwnRole gives the operator's role every permission, assumes it and creates a key for somebody else.
func (l *lab) useOwnRole(operator caller, role string) {
	l.Helper()
	_, err := iam.NewFromConfig(l.config(operator)).PutRolePolicy(l.Context(), &iam.PutRolePolicyInput{
		RoleName:       &role,
		PolicyName:     sdk.String("all"),
		PolicyDocument: sdk.String(anything),
	})
	l.denied("put a policy that allows everything", err)

	got, err := sts.NewFromConfig(l.config(operator)).AssumeRole(l.Context(), &sts.AssumeRoleInput{
		RoleArn:         sdk.String("arn:aws:iam::" + regiontest.AccountID + ":role" + rolePath + role),
		RoleSessionName: sdk.String("attack"),
	})
	l.denied("assume the role", err)
	if err != nil {
		return
	}

	now := caller{
		key:    *got.Credentials.AccessKeyId,
		secret: *got.Credentials.SecretAccessKey,
		token:  *got.Credentials.SessionToken,
	}
	_, err = iam.NewFromConfig(l.config(now)).CreateAccessKey(l.Context(), &iam.CreateAccessKeyInput{UserName: sdk.String("somebody")})
	l.denied("create an access key for somebody else as the role", err)
}

// TestOperatorCannotTakeOverKeys: the operator marks a key of somebody else as the cluster's own, or creates the mark
// of a deletion, and then changes its policy and schedules its deletion. Seen to succeed before the region passed the
// tags of a request to kms:TagResource and the policies lost PutKeyPolicy and ScheduleKeyDeletion.
func TestOperatorCannotTakeOverKeys(t *testing.T) {
	l := newLab(t)
	l.createCluster()
	operator := l.user("operator", l.policies("demo"))
	made, err := kms.NewFromConfig(l.config(caller{})).CreateKey(t.Context(), &kms.CreateKeyInput{
		Tags: []kmstypes.Tag{{TagKey: sdk.String("team"), TagValue: sdk.String("payments")}},
	})
	l.check(err)

	key := made.KeyMetadata.KeyId
	api := kms.NewFromConfig(l.config(operator))

	for _, name := range []string{"slipway.dev/cluster", "slipway.dev/former-cluster"} {
		_, err = api.TagResource(t.Context(), &kms.TagResourceInput{
			KeyId: key,
			Tags:  []kmstypes.Tag{{TagKey: &name, TagValue: sdk.String("demo")}},
		})
		l.denied("tag the key of somebody else with "+name, err)
	}

	_, err = api.PutKeyPolicy(t.Context(), &kms.PutKeyPolicyInput{
		KeyId:      key,
		PolicyName: sdk.String("default"),
		Policy: sdk.String(`{"Version":"2012-10-17","Statement":[{"Effect":"Allow","Action":"kms:*","Resource":"*",` +
			`"Principal":{"AWS":"arn:aws:iam::` + regiontest.AccountID + `:user/operator"}}]}`),
	})
	l.denied("take over the key of somebody else", err)

	_, err = api.ScheduleKeyDeletion(t.Context(), &kms.ScheduleKeyDeletionInput{KeyId: key})
	l.denied("delete the key of somebody else", err)

	own, err := kms.NewFromConfig(l.config(caller{})).DescribeKey(t.Context(), &kms.DescribeKeyInput{KeyId: sdk.String("alias/slipway/demo")})
	l.check(err)

	_, err = api.PutKeyPolicy(t.Context(), &kms.PutKeyPolicyInput{
		KeyId:      own.KeyMetadata.KeyId,
		PolicyName: sdk.String("default"),
		Policy: sdk.String(`{"Version":"2012-10-17","Statement":[{"Effect":"Allow","Action":"kms:*","Resource":"*",` +
			`"Principal":{"AWS":"arn:aws:iam::` + regiontest.AccountID + `:root"}}]}`),
	})
	l.denied("change the policy of the cluster's key", err)

	_, err = api.ScheduleKeyDeletion(t.Context(), &kms.ScheduleKeyDeletionInput{KeyId: own.KeyMetadata.KeyId})
	l.denied("delete the cluster's key with the everyday policy", err)
}
