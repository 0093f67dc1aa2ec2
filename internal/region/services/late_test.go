// SPDX-License-Identifier: Apache-2.0

package services_test

import (
	"context"
	"errors"
	"maps"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/aws/aws-sdk-go-v2/aws"

	"github.com/slipway-k8s/slipway/internal/region/regiontest"
)

// lateLab is a region with what new resources need.
type lateLab struct {
	*testing.T
	visibility

	cfg aws.Config
}

// lateCase creates something new. It returns the error of a call that comes too early to see it, and the call.
type lateCase func(l *lateLab) (want string, call func(context.Context) error)

// must fails the test for an error of a call that prepares something.
func (l *lateLab) must(err error) {
	l.Helper()
	if err != nil {
		l.Fatal(err)
	}
}

// withoutDelay runs f with everything visible at once.
func (l *lateLab) withoutDelay(f func()) {
	l.r.DelayVisibility(0)
	f()
	l.r.DelayVisibility(delayed)
}

// errNotListed is the error of a call of a [lateCase] that lists what exists.
var errNotListed = errors.New("not listed")

// listed returns an error unless a list has an entry.
func listed(found bool, err error) error {
	if err == nil && !found {
		return errNotListed
	}

	return err
}

// TestEveryNewIDIsSeenLater walks over all operations of the region that create something. The first calls about each new id do not
// see it, as AWS documents or as its own waiters expect. An operation without a case must be consistent or have no id of its
// own, and says why.
func TestEveryNewIDIsSeenLater(t *testing.T) {
	cases := map[string]lateCase{}
	for _, some := range []map[string]lateCase{networkCases(), computeCases(), identityCases(), serviceCases()} {
		maps.Copy(cases, some)
	}

	operations := creatingOperations(t)
	for name := range maps.Keys(cases) {
		if !slices.Contains(operations, name) {
			t.Errorf("%s has a case and is no operation of the region that creates something", name)
		}
	}

	for _, name := range operations {
		reason := withoutNewID()[name]

		switch {
		case cases[name] == nil && reason == "":
			t.Errorf("%s has no case: show that its new id is seen late, or say why it has none", name)
		case cases[name] != nil && reason != "":
			t.Errorf("%s has a case and the reason %q", name, reason)
		case cases[name] != nil:
			t.Run(name, func(t *testing.T) {
				v := startVisibility(t)
				l := &lateLab{T: t, visibility: v, cfg: v.r.AWSConfig()}
				want, call := cases[name](l)
				l.late(name, want, call)
			})
		}
	}

	for name := range withoutNewID() {
		if !slices.Contains(operations, name) {
			t.Errorf("%s has a reason and is no operation of the region that creates something", name)
		}
	}
}

// creatingOperations returns the operations of the region that may create something, such as ec2.CreateVpc: all but those whose
// verb reads, changes or deletes what exists. TestOperationsPage keeps the page that lists them up to date.
func creatingOperations(t *testing.T) []string {
	t.Helper()
	page, err := os.ReadFile("../../../docs/reference/region-operations.md")
	if err != nil {
		t.Fatal(err)
	}

	harmless := regexp.MustCompile("^(Abort|Cancel|Continue|Decrypt|Delete|Deregister|Describe|Detach|Disable|Disassociate|" +
		"Enable|Encrypt|Enter|Exit|Filter|Generate|Get|Head|List|Modify|ReEncrypt|Reboot|Record|Release|Remove|Replace|" +
		"Resume|Revoke|Schedule|Set|Simulate|Start|Stop|Suspend|Terminate|Unassign|Untag|Update|Validate)[A-Z]?")

	var out []string
	service := ""
	for line := range strings.Lines(string(page)) {
		if name, ok := strings.CutPrefix(line, "## "); ok {
			service = strings.TrimSpace(name)
		}

		if !strings.Contains(line, " operations: ") {
			continue
		}

		for _, m := range regexp.MustCompile("`([A-Za-z0-9]+)`").FindAllStringSubmatch(line, -1) {
			if !harmless.MatchString(m[1]) {
				out = append(out, service+"."+m[1])
			}
		}
	}

	if len(out) < 80 {
		t.Fatalf("%d operations create something: the walk is broken", len(out))
	}

	return out
}

// The reasons why an operation has no case.
const (
	// noOwnID: the operation sets something of a resource, or relates two, and no other call names what it created.
	noOwnID = "no id of its own"
	// strongObjects: docs.aws.amazon.com/AmazonS3/latest/userguide/Welcome.html#ConsistencyModel.
	strongObjects = "S3 reads objects after they were written since December 2020"
	// readAtOnce: autoscaling/group.go and lifecycle_hook.go, ec2/ebs_snapshot.go, ec2_key_pair.go, ec2_launch_template.go and
	// vpc_dhcp_options.go, events/target.go, iam/openid_connect_provider.go and policy.go, logs/group.go and ssm/parameter.go
	// below internal/service in github.com/hashicorp/terraform-provider-aws. Its version 5.100.0 was seen to fail when groups,
	// snapshots, key pairs, DHCP options, OIDC providers and log groups were hidden.
	readAtOnce = "Terraform's provider reads it in the next call and does not try again"
	// strongStacks: the waiters StackCreateComplete and ChangeSetCreateComplete of aws-sdk-go-v2 end with the first
	// ValidationError, the error about a stack that does not exist.
	strongStacks = "the SDK's waiters do not expect that a new stack or change set is not found"
)

// withoutNewID returns the operations that create nothing that is seen late, and why.
func withoutNewID() map[string]string {
	out := map[string]string{
		"autoscaling.CreateAutoScalingGroup": readAtOnce,
		"autoscaling.PutLifecycleHook":       readAtOnce,
		"ec2.CreateDhcpOptions":              readAtOnce,
		"ec2.CreateLaunchTemplateVersion":    readAtOnce,
		"ec2.CreateSnapshot":                 readAtOnce,
		"ec2.ImportKeyPair":                  readAtOnce,
		"events.PutTargets":                  readAtOnce,
		"iam.CreateOpenIDConnectProvider":    readAtOnce,
		"iam.CreatePolicyVersion":            readAtOnce,
		"logs.CreateLogGroup":                readAtOnce,
		"ssm.PutParameter":                   readAtOnce,

		"cloudformation.CreateChangeSet":  strongStacks,
		"cloudformation.CreateStack":      strongStacks,
		"cloudformation.ExecuteChangeSet": noOwnID,
		"cloudformation.SignalResource":   noOwnID,

		"ec2.CreateKeyPair": "the region refuses it",
		"ec2.CreateTags":    "filters see tags late: TestNewTagsAreFoundLater",

		"iam.PutRolePermissionsBoundary": "decisions see it late: TestNewPoliciesDecideLater",
		"iam.AttachRolePolicy":           "decisions see it late: TestNewPoliciesDecideLater",

		// ListResourceRecordSets: "returns the most current version of the records. This includes records that are PENDING".
		"route53.ChangeResourceRecordSets": "Route 53 lists new records at once",

		"sns.Unsubscribe": "it deletes",

		// The credentials are valid when the call returns: all SDKs use them in the next call, without retries.
		"sts.AssumeRole":                "credentials are no id that calls look up",
		"sts.AssumeRoleWithWebIdentity": "credentials are no id that calls look up",
	}

	for _, name := range []string{
		"CompleteMultipartUpload", "CopyObject", "CreateMultipartUpload", "PutObject", "UploadPart", "UploadPartCopy",
	} {
		out["s3."+name] = strongObjects
	}

	for service, names := range map[string][]string{
		"autoscaling": {"AttachLoadBalancerTargetGroups", "CompleteLifecycleAction", "CreateOrUpdateTags", "PutNotificationConfiguration", "PutWarmPool"},
		"ec2": {
			"AcceptVpcPeeringConnection", "AssignPrivateIpAddresses", "AssociateDhcpOptions", "AttachInternetGateway",
			"AttachVolume", "CreateRoute",
		},
		"elasticloadbalancing": {"AddTags", "RegisterTargets"},
		"events":               {"TagResource"},
		"iam": {
			"AddClientIDToOpenIDConnectProvider", "AddRoleToInstanceProfile", "AttachUserPolicy",
			"PutUserPermissionsBoundary", "TagInstanceProfile", "TagOpenIDConnectProvider", "TagPolicy", "TagRole",
		},
		"kms":     {"PutKeyPolicy", "TagResource"},
		"lambda":  {"Invoke", "TagResource"},
		"logs":    {"PutRetentionPolicy", "TagResource"},
		"route53": {"AssociateVPCWithHostedZone", "ChangeTagsForResource"},
		"s3": {
			"PutBucketEncryption", "PutBucketLifecycleConfiguration", "PutBucketOwnershipControls", "PutBucketPolicy",
			"PutBucketTagging", "PutBucketVersioning", "PutPublicAccessBlock",
		},
		"sns": {"TagResource"},
	} {
		for _, name := range names {
			out[service+"."+name] = noOwnID
		}
	}

	return out
}

// iamARN returns the ARN of a resource of IAM, such as role/x.
func iamARN(resource string) string { return "arn:aws:iam::" + regiontest.AccountID + ":" + resource }
