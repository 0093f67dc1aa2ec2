// SPDX-License-Identifier: Apache-2.0

package iampolicy_test

import (
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/slipway-k8s/slipway/internal/infra/iampolicy"
)

// TestDeclaredCalls compares the policies with the calls that the drivers and the store declare: every
// declared call is an allowed action, and the reverse.
func TestDeclaredCalls(t *testing.T) {
	in := iampolicy.Input{Partition: "aws", Region: "us-east-1", Account: "123456789012", Cluster: "demo", RolePath: "/r/", KeyAlias: "alias/a", KeyARN: "arn:aws:kms:us-east-1:123456789012:key/k", Boundary: "arn:aws:iam::123456789012:policy/p", LoadBalancers: []string{"l"}, PeerVPCs: []string{"vpc-1"}, RouteTables: []string{"rtb-1"}, WarmPools: true, UnknownTypes: true, DNSNames: []string{"api.example.com"}, CreatesZones: true, Issuer: "https://oidc.s3.us-east-1.amazonaws.com/demo", Discovery: iampolicy.StoreLocation{Bucket: "oidc"}, Function: "slipway-dns-demo", FunctionRole: "demo.dns.us-east-1", HasTopic: true, Existing: iampolicy.ExistingResources{ManagedPolicies: []string{"arn:aws:iam::aws:policy/p"}}}
	st := iampolicy.StoreLocation{Bucket: "b"}
	in.Stores = []iampolicy.StoreLocation{st}
	allowed := iampolicy.AllowedActions(append(iampolicy.BuildPolicies(in), iampolicy.BuildStateInitPolicy(in, st), iampolicy.BuildDeletionPolicy(in), iampolicy.BuildDiscoveryInitPolicy(in, in.Discovery)))
	services := map[string]string{"elb": "elasticloadbalancing", "eventbridge": "events", "cloudwatchlogs": "logs"}
	names := map[string]string{
		"s3:DeleteObjects": "s3:DeleteObject", "s3:ListObjectsV2": "s3:ListBucket", "s3:HeadBucket": "s3:ListBucket", "s3:PutPublicAccessBlock": "s3:PutBucketPublicAccessBlock",
		"s3:PutBucketEncryption": "s3:PutEncryptionConfiguration", "lambda:Invoke": "lambda:InvokeFunction",
	}
	var declared []string
	call := regexp.MustCompile(`(?m)^\t(\w+)\(\s*context\.Context,\s*\*(\w+)\.\w+Input`)
	paginated := regexp.MustCompile(`(?m)^\t(\w+)\.(\w+)APIClient$`) // an embedded interface of the SDK
	for _, pattern := range []string{"../aws/*.go", "../aws/*/*.go", "../../lib/store/*.go", "../../cluster/rollingupdate/*.go", "../../cluster/permissions/*.go"} {
		files, err := filepath.Glob(pattern)
		if err != nil || len(files) == 0 {
			t.Fatal(err, files)
		}
		for _, f := range files {
			text, err := os.ReadFile(f)
			if err != nil {
				t.Fatal(err)
			}
			calls := call.FindAllStringSubmatch(string(text), -1)
			for _, m := range paginated.FindAllStringSubmatch(string(text), -1) {
				calls = append(calls, []string{m[0], m[2], m[1]})
			}
			for _, m := range calls {
				service := m[2]
				if s := services[service]; s != "" {
					service = s
				}
				action := service + ":" + m[1]
				if n := names[action]; n != "" {
					action = n
				}
				declared = append(declared, action)
			}
		}
	}
	slices.Sort(declared)
	declared = slices.Compact(declared)
	// No manifest turns a key or its rotation off. Only an administrator
	// changes the policy of a key or the trust of a role. The details of all the
	// account's roles save calls: whoever may not see them reads each role by itself. The two that are added
	// are asked by AWS without a call of ours. Everybody may ask STS who they are.
	spare := []string{"sts:GetCallerIdentity", "kms:DisableKey", "kms:DisableKeyRotation", "kms:PutKeyPolicy", "iam:UpdateAssumeRolePolicy", "iam:GetAccountAuthorizationDetails"}
	validates := []string{"elasticloadbalancing:DescribeTargetHealth", "iam:CreatePolicy"} // cluster/validate and cluster/permissions, without interfaces
	want := slices.DeleteFunc(append(append(declared, validates...), "ec2:RunInstances", "iam:PassRole"), func(a string) bool { return slices.Contains(spare, a) })
	slices.Sort(want)
	if diff := cmp.Diff(want, allowed); diff != "" {
		t.Errorf("declared calls and allowed actions differ (-declared +allowed):\n%s", diff)
	}
}
