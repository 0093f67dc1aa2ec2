// SPDX-License-Identifier: Apache-2.0

package iampolicy_test

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/slipway-k8s/slipway/internal/infra/iampolicy"
)

// TestBoundaryOfVPCCNI: the boundary has what the role of the Amazon VPC CNI has, for the cluster of the role's own tag, and only if a
// cluster has that CNI. With it, a managed policy has room for both.
func TestBoundaryOfVPCCNI(t *testing.T) {
	in := iampolicy.Input{Partition: "aws-us-gov", Account: "123456789012"}
	bucket := "a-bucket-with-the-longest-name-that-s3-allows-which-is-63-chars"
	store := iampolicy.StoreLocation{Bucket: bucket, Prefix: "clusters/production"}
	without := iampolicy.BuildBoundary(in, store)
	in.VPCCNI = true
	with := iampolicy.BuildBoundary(in, store)
	if with.Size() > iampolicy.MaxPolicySize {
		t.Errorf("the boundary has %d characters of %d", with.Size(), iampolicy.MaxPolicySize)
	}
	t.Logf("COUNT characters of the permissions boundary with the Amazon VPC CNI: %d of %d", with.Size(), iampolicy.MaxPolicySize)

	encode := func(v any) string {
		text, err := json.Marshal(v)
		if err != nil {
			t.Fatal(err)
		}

		return string(text)
	}
	if encode(with.Statement[:len(without.Statement)]) != encode(without.Statement) {
		t.Error("the CNI changes other statements")
	}

	const cluster = "${aws:PrincipalTag/slipway.dev/cluster}"
	role := encode(iampolicy.BuildVPCCNIPolicy("aws-us-gov", cluster).Statement)
	if added := encode(with.Statement[len(without.Statement):]); added != role {
		t.Errorf("the boundary has %s\nand the role %s", added, role)
	}

	for _, s := range iampolicy.BuildVPCCNIPolicy("aws", "demo").Statement {
		reads := strings.Contains(strings.Join(s.Action, " "), "Describe")
		if !reads && !strings.Contains(encode(s.Condition), `"demo"`) {
			t.Errorf("%s is not limited to the cluster: %s", s.Sid, encode(s))
		}
	}
}
