// SPDX-License-Identifier: Apache-2.0

package attack_test

import (
	"strings"
	"testing"

	sdk "github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/iam"
	"github.com/aws/aws-sdk-go-v2/service/kms"
	kmstypes "github.com/aws/aws-sdk-go-v2/service/kms/types"
	"github.com/aws/aws-sdk-go-v2/service/s3"
	"github.com/aws/aws-sdk-go-v2/service/sts"
	ststypes "github.com/aws/aws-sdk-go-v2/service/sts/types"

	"github.com/slipway-k8s/slipway/internal/region/regiontest"
)

// taggable is the trust policy of a role that the operator may assume with tags of the session.
const taggable = `{"Version":"2012-10-17","Statement":[{"Effect":"Allow","Action":["sts:AssumeRole","sts:TagSession"],` +
	`"Principal":{"AWS":"arn:aws:iam::` + regiontest.AccountID + `:user/operator"}}]}`

// TestSessionTagsOfOtherClusters: the operator of one cluster creates a role with the permissions boundary, gives it every
// permission, and assumes it with a tag of the session that names another cluster. That tag takes the place of the role's own
// one, by which the boundary limits it. The operator then has what a control-plane machine of the other cluster has: its
// sealed keys, and the right to open them. Seen to succeed.
func TestSessionTagsOfOtherClusters(t *testing.T) {
	l := newLab(t)
	l.createCluster()
	l.must(caller{}, 0, "create", "cluster", "demo-2", "--zones", "us-east-1a", "--yes")
	l.must(caller{}, 0, "apply", "demo-2", "--yes")
	operator := l.user("operator", l.policies("demo"))

	for name, c := range map[string]struct{ path, cluster string }{
		"another cluster's tag":                  {rolePath, "demo-2"},
		"a path below the cluster's that has it": {rolePath + "demo-2/", "demo-2"},
		"a path that ends in it":                 {rolePath + "slipway/us-east-1/demo-2/", "demo-2"},
	} {
		l.tryTagOfOthers(operator, name, c.path, c.cluster)
	}

	l.checkOwnTag(operator)
}

// tryTagOfOthers assumes a role of the operator's own with the tag of another cluster, and does what a machine of that may.
func (l *lab) tryTagOfOthers(operator caller, what, path, cluster string) {
	l.Helper()
	now := l.assumeTagged(operator, path, cluster)
	secrets := l.objectsBelow("team/" + cluster + "/machine/secrets/")
	if len(secrets) == 0 {
		l.Fatalf("cluster %s has no sealed keys: %q", cluster, l.objects())
	}

	_, err := l.s3(now).GetObject(l.Context(), &s3.GetObjectInput{Bucket: sdk.String(bucket), Key: &secrets[0]})
	l.denied(what+": read "+secrets[0], err)
	_, err = l.s3(now).PutObject(l.Context(), &s3.PutObjectInput{
		Bucket: sdk.String(bucket),
		Key:    sdk.String("team/" + cluster + "/machine/etcd/x.json"),
		Body:   strings.NewReader("{}"),
	})
	l.denied(what+": write a record about etcd", err)
	_, err = kms.NewFromConfig(l.config(now)).GenerateDataKey(l.Context(), &kms.GenerateDataKeyInput{
		KeyId:             sdk.String("alias/slipway-" + bucket),
		KeySpec:           kmstypes.DataKeySpecAes256,
		EncryptionContext: map[string]string{"slipway.dev/cluster": cluster},
	})
	l.denied(what+": use the key for the sealed keys", err)
}

// assumeTagged creates a role below path with every permission that the boundary leaves, and assumes it with a tag.
func (l *lab) assumeTagged(operator caller, path, cluster string) caller {
	l.Helper()
	api := iam.NewFromConfig(l.config(operator))
	name := sdk.String(strings.NewReplacer("/", "").Replace(path) + "." + cluster)
	made, err := api.CreateRole(l.Context(), &iam.CreateRoleInput{
		RoleName:                 name,
		Path:                     &path,
		AssumeRolePolicyDocument: sdk.String(taggable),
		PermissionsBoundary:      sdk.String(boundary),
	})
	l.check(err)

	_, err = api.PutRolePolicy(l.Context(), &iam.PutRolePolicyInput{
		RoleName:       name,
		PolicyName:     sdk.String("all"),
		PolicyDocument: sdk.String(anything),
	})
	l.check(err)

	got, err := sts.NewFromConfig(l.config(operator)).AssumeRole(l.Context(), &sts.AssumeRoleInput{
		RoleArn:         made.Role.Arn,
		RoleSessionName: sdk.String("attack"),
		Tags:            []ststypes.Tag{{Key: sdk.String("slipway.dev/cluster"), Value: &cluster}},
	})
	l.check(err)

	return caller{
		key:    *got.Credentials.AccessKeyId,
		secret: *got.Credentials.SecretAccessKey,
		token:  *got.Credentials.SessionToken,
	}
}

// checkOwnTag checks that a role of the cluster still has what the boundary leaves it.
func (l *lab) checkOwnTag(operator caller) {
	l.Helper()
	now := l.assumeTagged(operator, rolePath, "demo")
	key := l.objectsBelow("team/demo/machine/")[0]
	_, err := l.s3(now).GetObject(l.Context(), &s3.GetObjectInput{Bucket: sdk.String(bucket), Key: &key})
	l.check(err)
}
