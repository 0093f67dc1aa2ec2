// SPDX-License-Identifier: Apache-2.0

package attack_test

import (
	"strings"
	"testing"

	sdk "github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/iam"
	iamtypes "github.com/aws/aws-sdk-go-v2/service/iam/types"
	"github.com/aws/aws-sdk-go-v2/service/s3"
	"github.com/aws/aws-sdk-go-v2/service/sts"

	"github.com/slipway-k8s/slipway/internal/region/regiontest"
)

// assumeNew creates a role that may do everything and has no boundary, and returns a session of it.
func (l *lab) assumeNew(path string, tags ...iamtypes.Tag) caller {
	l.Helper()
	const name = "mighty"
	operator := l.user("operator", nil)
	api := iam.NewFromConfig(l.config(caller{}))
	_, err := api.CreateRole(l.Context(), &iam.CreateRoleInput{
		RoleName:                 sdk.String(name),
		Path:                     &path,
		AssumeRolePolicyDocument: sdk.String(selfmade),
		Tags:                     tags,
	})
	l.check(err)
	_, err = api.PutRolePolicy(l.Context(), &iam.PutRolePolicyInput{
		RoleName: sdk.String(name), PolicyName: sdk.String("all"), PolicyDocument: sdk.String(anything),
	})
	l.check(err)
	got, err := sts.NewFromConfig(l.config(operator)).AssumeRole(l.Context(), &sts.AssumeRoleInput{
		RoleArn:         sdk.String("arn:aws:iam::" + regiontest.AccountID + ":role" + path + name),
		RoleSessionName: sdk.String("attack"),
	})
	l.check(err)

	return caller{
		key:    *got.Credentials.AccessKeyId,
		secret: *got.Credentials.SecretAccessKey,
		token:  *got.Credentials.SessionToken,
	}
}

// TestBucketKeepsKeysFromReaders: a role with the tag of readers, which somebody has given every permission, reads the sealed keys, and a
// backup of etcd, which has all Secrets. The backup was seen to be read before the bucket policy named backups.
func TestBucketKeepsKeysFromReaders(t *testing.T) {
	l := newLab(t)
	l.createCluster()
	_, err := l.s3(caller{}).PutObject(t.Context(), &s3.PutObjectInput{
		Bucket: sdk.String(bucket),
		Key:    sdk.String("team/demo/machine/etcd/backups/snapshot.db"),
		Body:   strings.NewReader("all Secrets"),
	})
	l.check(err)

	reader := l.assumeNew("/", iamtypes.Tag{Key: sdk.String("slipway.dev/access"), Value: sdk.String("read-only")})
	l.readDenied(reader, "team/demo/pki/private/", "team/demo/machine/secrets/", "team/demo/machine/etcd/")
	_, err = l.s3(reader).GetObject(t.Context(), &s3.GetObjectInput{
		Bucket: sdk.String(bucket), Key: sdk.String("team/demo/cluster.yaml"),
	})
	l.check(err)
}

// TestBucketKeepsKeysFromMachines: a role below /slipway/, which somebody has given every permission without a boundary, reads the keys that
// only operators need. It reads backups of etcd, which machines restore. Never open: the bucket policy came with the folder of these keys,
// and only its test was missing.
func TestBucketKeepsKeysFromMachines(t *testing.T) {
	l := newLab(t)
	l.createCluster()
	const backup = "team/demo/machine/etcd/backups/snapshot.db"
	_, err := l.s3(caller{}).PutObject(t.Context(), &s3.PutObjectInput{
		Bucket: sdk.String(bucket), Key: sdk.String(backup), Body: strings.NewReader("all Secrets"),
	})
	l.check(err)

	machine := l.assumeNew(rolePath)
	l.readDenied(machine, "team/demo/pki/private/")
	_, err = l.s3(machine).GetObject(t.Context(), &s3.GetObjectInput{Bucket: sdk.String(bucket), Key: sdk.String(backup)})
	l.check(err)
}

// readDenied checks that c reads no object with these prefixes, of which each has some.
func (l *lab) readDenied(c caller, prefixes ...string) {
	l.Helper()
	for _, prefix := range prefixes {
		keys := l.objectsBelow(prefix)
		if len(keys) == 0 {
			l.Errorf("there is no object below %s", prefix)
		}

		for _, key := range keys {
			_, err := l.s3(c).GetObject(l.Context(), &s3.GetObjectInput{Bucket: sdk.String(bucket), Key: &key})
			l.denied("read "+key, err)
		}
	}
}
