// SPDX-License-Identifier: Apache-2.0

package attack_test

import (
	"strings"
	"testing"

	sdk "github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/s3"
)

// TestEtcdRecordsAreWrittenOnce: root on the machine of slot a cannot replace what decides which data of etcd counts (the marker of the
// bootstrap, generations, what is known of a backup), nor requests of operators, nor what other slots report. It writes what
// its agent writes. Seen to fail while a role could write all objects below etcd.
func TestEtcdRecordsAreWrittenOnce(t *testing.T) {
	l := newLab(t)
	l.createCluster()
	const etcd = "team/demo/machine/etcd/"
	const backup = "backups/20261122t101500z-abcdef/"
	role := l.s3(l.assumed(l.roleOfSlot("a")))
	put := func(key string, ifNoneMatch *string) error {
		_, err := role.PutObject(t.Context(), &s3.PutObjectInput{
			Bucket: sdk.String(bucket), Key: sdk.String(etcd + key), Body: strings.NewReader("{}"), IfNoneMatch: ifNoneMatch,
		})

		return err
	}

	for _, key := range []string{
		"initialized", "generations/000002", "restored/000002/a", backup + "backup.json",
		backup + "verification.json",
	} {
		l.check(put(key, sdk.String("*")))
		l.denied("replace "+key, put(key, nil))
		if err := put(key, sdk.String("*")); err == nil || !strings.Contains(err.Error(), "PreconditionFailed") {
			t.Errorf("create %s again: %v, want PreconditionFailed", key, err)
		}

		_, err := role.CopyObject(t.Context(), &s3.CopyObjectInput{
			Bucket: sdk.String(bucket), Key: sdk.String(etcd + key), CopySource: sdk.String(bucket + "/" + etcd + key),
		})
		l.denied("replace "+key+" by a copy", err)
	}

	for _, key := range []string{"quorum/b", "joined/b", "created/b", "restored/000002/b", "request.json"} {
		l.denied("write "+key, put(key, nil))
		l.denied("create "+key, put(key, sdk.String("*")))
	}

	for _, key := range []string{
		"quorum/a", "joined/a", "created/a", "absent/b", "resize", "answer.json", backup + "part-00000",
	} {
		l.check(put(key, nil))
		l.check(put(key, nil))
	}
}
