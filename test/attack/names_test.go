// SPDX-License-Identifier: Apache-2.0

package attack_test

import (
	"errors"
	"testing"

	sdk "github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/iam"
	"github.com/aws/aws-sdk-go-v2/service/s3"
	"github.com/aws/aws-sdk-go-v2/service/s3/types"

	"github.com/slipway-k8s/slipway/internal/lib/store"
)

// assumed returns a user with the policies of a machine's role.
func (l *lab) assumed(role string) caller {
	l.Helper()

	return l.assumedWith(role, "machine")
}

// assumedWith returns a user with one policy of a role.
func (l *lab) assumedWith(role, policy string) caller {
	l.Helper()
	api := iam.NewFromConfig(l.config(caller{}))
	found, err := api.GetRolePolicy(l.Context(), &iam.GetRolePolicyInput{RoleName: &role, PolicyName: &policy})
	l.check(err)

	user := l.user("as-"+role, nil)
	made, err := api.CreatePolicy(l.Context(), &iam.CreatePolicyInput{
		PolicyName: sdk.String("as-" + role), PolicyDocument: sdk.String(l.unescape(*found.PolicyDocument)),
	})
	l.check(err)
	_, err = api.AttachUserPolicy(l.Context(), &iam.AttachUserPolicyInput{
		UserName: sdk.String("as-" + role), PolicyArn: made.Policy.Arn,
	})
	l.check(err)

	return user
}

// TestControlPlaneListsOnlyItsOwn: with the role of the control plane, the names of all objects of the bucket, so of
// all clusters, are listed. Seen to succeed before the policy required a prefix: no prefix was no other prefix.
func TestControlPlaneListsOnlyItsOwn(t *testing.T) {
	l := newLab(t)
	l.createCluster()
	machine := l.assumed("demo.control-plane-a.us-east-1")

	for _, prefix := range []*string{nil, sdk.String(""), sdk.String("team/"), sdk.String("team/demo/"), sdk.String("team/demo-2/machine/etcd/")} {
		_, err := l.s3(machine).ListObjectsV2(t.Context(), &s3.ListObjectsV2Input{Bucket: sdk.String(bucket), Prefix: prefix})
		l.denied("list "+sdk.ToString(prefix), err)
	}

	// What the agent relies on: it must know that a marker is missing, and must not take "denied" for "missing".
	s := store.NewS3Store(l.s3(machine), bucket, "team")
	if _, err := s.Get(t.Context(), "demo/machine/etcd/initialized"); !errors.Is(err, store.ErrNotFound) {
		t.Errorf("a missing marker: %v", err)
	}

	// Agents of an earlier version only read the object, and need the answer of S3 itself.
	_, err := l.s3(machine).GetObject(t.Context(), &s3.GetObjectInput{
		Bucket: sdk.String(bucket), Key: sdk.String("team/demo/machine/etcd/backups/request.json"),
	})
	if _, missing := errors.AsType[*types.NoSuchKey](err); !missing {
		t.Errorf("S3 answers %v for a missing object", err)
	}

	_, err = s.Create(t.Context(), "demo/machine/etcd/initialized", []byte("x"))
	l.check(err)
	_, err = s.Get(t.Context(), "demo/machine/etcd/initialized")
	l.check(err)

	for _, key := range []string{"demo/pki/private/kubernetes-ca", "demo/cluster.yaml", "demo/pki/private/missing"} {
		if _, err := s.Get(t.Context(), key); err == nil || errors.Is(err, store.ErrNotFound) {
			t.Errorf("%s: %v", key, err)
		}
	}
}
