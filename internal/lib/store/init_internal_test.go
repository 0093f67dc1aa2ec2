// SPDX-License-Identifier: Apache-2.0

package store

import (
	"context"
	"testing"

	"github.com/aws/aws-sdk-go-v2/service/s3"
	"github.com/aws/smithy-go"
)

// policyBucket is a bucket that has a policy, or none.
type policyBucket struct {
	bucketAPI
	policy string
	puts   int
}

func (b *policyBucket) GetBucketPolicy(context.Context, *s3.GetBucketPolicyInput, ...func(*s3.Options)) (*s3.GetBucketPolicyOutput, error) {
	if b.policy == "" {
		return nil, &smithy.GenericAPIError{Code: "NoSuchBucketPolicy"}
	}
	return &s3.GetBucketPolicyOutput{Policy: &b.policy}, nil
}

func (b *policyBucket) PutBucketPolicy(_ context.Context, in *s3.PutBucketPolicyInput, _ ...func(*s3.Options)) (*s3.PutBucketPolicyOutput, error) {
	b.puts++
	b.policy = *in.Policy
	return &s3.PutBucketPolicyOutput{}, nil
}

// TestInitKeepsABucketsPolicy checks that the initialization does not replace the policy of an
// existing bucket.
func TestInitKeepsABucketsPolicy(t *testing.T) {
	const own = `{"Statement":[{"Effect":"Deny","Principal":"*","Action":"s3:DeleteObject","Resource":"*"}]}`
	const secure = `{"Statement":{"Effect":"Deny","Principal":{"AWS":"*"},"Action":"s3:*","Resource":["arn:aws:s3:::b","arn:aws:s3:::b/*"],` +
		`"Condition":{"Bool":{"aws:SecureTransport":false}}}}`
	for name, c := range map[string]struct {
		policy string
		puts   int
		fails  bool
	}{
		"none":             {puts: 1},
		"one of its own":   {policy: own, fails: true},
		"that wants TLS":   {policy: secure},
		"no policy at all": {policy: "x", fails: true},
	} {
		t.Run(name, func(t *testing.T) {
			b := &policyBucket{policy: c.policy}
			m := s3Initializer{buckets: b, bucket: "b", region: "us-east-1"}
			if err := m.putBucketPolicy(t.Context()); (err != nil) != c.fails {
				t.Errorf("got %v", err)
			}
			if err := m.putBucketPolicy(t.Context()); (err != nil) != c.fails { // a run that was cut short is run again
				t.Errorf("again: %v", err)
			}
			if b.puts != c.puts || c.fails && b.policy != c.policy {
				t.Errorf("put %d policies, now %s", b.puts, b.policy)
			}
		})
	}
}
