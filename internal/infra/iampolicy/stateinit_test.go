// SPDX-License-Identifier: Apache-2.0

package iampolicy_test

import (
	"encoding/json"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/slipway-k8s/slipway/internal/infra/iampolicy"
	"github.com/slipway-k8s/slipway/internal/manifest"
)

// TestStateInitAliasOfDottedBucket: the alias of a store's key has no dots, whatever the bucket's name has.
func TestStateInitAliasOfDottedBucket(t *testing.T) {
	in := iampolicy.Input{Partition: "aws", Region: "us-east-1", Account: "123456789012"}
	p := iampolicy.BuildStateInitPolicy(in, iampolicy.StoreLocation{Bucket: "state.example.com"})
	const want = "arn:aws:kms:us-east-1:123456789012:alias/slipway-state_example_com"
	if !slices.ContainsFunc(p.Statement, func(s iampolicy.Statement) bool { return slices.Contains(s.Resource, want) }) {
		t.Errorf("no statement is for %s: %+v", want, p)
	}
}

// TestBoundarySize: a managed policy has at most 6,144 characters, not counting white space. The boundary, with what an
// administrator adds for load balancers of Services, leaves a reserve with the longest names.
func TestBoundarySize(t *testing.T) {
	const (
		own     = 3600
		reserve = 30
	)
	in := iampolicy.Input{Partition: "aws-us-gov", Account: "123456789012"}
	bucket := "a-bucket-with-the-longest-name-that-s3-allows-which-is-63-chars"
	p := iampolicy.BuildBoundary(in, iampolicy.StoreLocation{Bucket: bucket, Prefix: "clusters/production"})
	if len(bucket) != 63 || p.Size() > own {
		t.Errorf("the boundary has %d characters: leave room for what administrators add", p.Size())
	}

	text, err := os.ReadFile("../../../examples/addons/aws-cloud-controller-manager-boundary.json")
	if err != nil {
		t.Fatal(err)
	}
	name := strings.Repeat("c", 40)
	if !manifest.ValidName(name) || manifest.ValidName(name+"c") {
		t.Errorf("%s is not the longest name of a cluster", name)
	}
	longest := strings.NewReplacer("CLUSTER", name, "arn:aws:", "arn:aws-us-gov:")
	var more struct{ Statement []json.RawMessage }
	if err := json.Unmarshal([]byte(longest.Replace(string(text))), &more); err != nil {
		t.Fatal(err)
	}
	size := p.Size()
	for _, s := range more.Statement {
		size += 1 + len(strings.Join(strings.Fields(string(s)), "")) // and a comma
	}
	if size > iampolicy.MaxPolicySize-reserve {
		t.Errorf("with the statements of the cloud controller manager, the boundary has %d characters", size)
	}
	t.Logf("COUNT characters of the permissions boundary with the longest names: %d, with load balancers %d of %d", p.Size(), size, iampolicy.MaxPolicySize)
}
