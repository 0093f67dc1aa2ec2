// SPDX-License-Identifier: Apache-2.0

package iampolicy_test

import (
	"slices"
	"testing"

	"github.com/slipway-k8s/slipway/internal/infra/iampolicy"
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

// TestBoundarySize: a managed policy has at most 6,144 characters.
func TestBoundarySize(t *testing.T) {
	in := iampolicy.Input{Partition: "aws-us-gov", Account: "123456789012"}
	p := iampolicy.BuildBoundary(in, iampolicy.StoreLocation{Bucket: "a-bucket-with-the-longest-name-that-s3-allows-which-is-63-chars", Prefix: "clusters/production"})
	const own = 3600 // for the longest names
	if p.Size() > own {
		t.Errorf("the boundary has %d characters: leave room for what administrators add", p.Size())
	}
}
