// SPDX-License-Identifier: Apache-2.0

package attack_test

import (
	"strings"
	"testing"

	sdk "github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/s3"
)

// TestAuditLogCannotBeCleaned: with the role of the control plane, an attacker adds to the audit log that machines upload,
// and neither replaces nor removes an object, nor reads one, nor writes to that of another cluster. Seen to fail without the condition s3:if-none-match (replace), and with the
// log below the objects of the machine store (remove).
func TestAuditLogCannotBeCleaned(t *testing.T) {
	l := newLab(t)
	l.createCluster()
	const log = "team/_audit/demo/i-0123456789abcdef0/20261123T120000.000Z-one.log.gz"
	cluster := l.must(caller{}, 0, "get", "cluster", "demo", "-o", "yaml")
	edited := l.temporaryFile("cluster.yaml", strings.TrimRight(cluster, "\n")+"\n  kubeAPIServer:\n    auditLogUpload: true\n")
	l.must(caller{}, 0, "replace", "-f", edited, "--yes")
	l.must(caller{}, 0, "apply", "demo", "--yes")
	role := l.s3(l.assumed("demo.control-plane-a.us-east-1"))
	put := func(key string, ifNoneMatch *string) error {
		_, err := role.PutObject(t.Context(), &s3.PutObjectInput{
			Bucket: sdk.String(bucket), Key: &key, Body: strings.NewReader("event"), IfNoneMatch: ifNoneMatch,
		})

		return err
	}
	l.check(put(log, sdk.String("*")))
	l.denied("replace a part", put(log, nil))
	if err := put(log, sdk.String("*")); err == nil || !strings.Contains(err.Error(), "PreconditionFailed") {
		t.Errorf("create a part that exists: %v, want PreconditionFailed", err)
	}

	l.denied("write the log of another cluster", put(strings.Replace(log, "/demo/", "/other/", 1), sdk.String("*")))

	for _, key := range l.objectsBelow("team/_audit/") {
		_, err := role.DeleteObject(t.Context(), &s3.DeleteObjectInput{Bucket: sdk.String(bucket), Key: &key})
		l.denied("delete a part", err)
		_, err = role.GetObject(t.Context(), &s3.GetObjectInput{Bucket: sdk.String(bucket), Key: &key})
		l.denied("read a part", err)
	}

	_, err := role.CopyObject(t.Context(), &s3.CopyObjectInput{
		Bucket: sdk.String(bucket), Key: sdk.String(log), CopySource: sdk.String(bucket + "/" + log),
	})
	l.denied("replace a part by a copy", err)

	l.must(caller{}, 0, "delete", "cluster", "demo", "--yes")
	if left := l.objectsBelow("team/_audit/"); len(left) != 1 {
		t.Errorf("after the deletion of the cluster its log has the parts %q, want one", left)
	}

	if left := l.must(caller{}, 0, "get", "clusters", "-o", "name"); strings.TrimSpace(left) != "" {
		t.Errorf("clusters %q", left)
	}
}
