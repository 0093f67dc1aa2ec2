// SPDX-License-Identifier: Apache-2.0

package cloudformation_test

import (
	"strings"
	"testing"

	"github.com/aws/aws-sdk-go-v2/aws"
	cfn "github.com/aws/aws-sdk-go-v2/service/cloudformation"
	"github.com/aws/aws-sdk-go-v2/service/ec2"
	"github.com/google/go-cmp/cmp"
)

// volumes is a template whose policies depend on parameters.
const volumes = `
Parameters:
  Stage: {Type: String, Default: prod}
  Policy: {Type: String, Default: Delete}
  Enc: {Type: String, Default: "false"}
Conditions: {Prod: !Equals [!Ref Stage, prod]}
Resources:
  Volume:
    Type: AWS::EC2::Volume
    DeletionPolicy: !If [Prod, Retain, Delete]
    UpdateReplacePolicy: !Ref Policy
    Properties: {AvailabilityZone: us-east-1a, Size: 1, Encrypted: !Ref Enc}
`

// volumeCount returns the number of volumes of the region.
func (l *lab) volumeCount() int {
	l.t.Helper()
	return len(must[*ec2.DescribeVolumesOutput](l)(l.ec2.DescribeVolumes(l.ctx(), &ec2.DescribeVolumesInput{})).Volumes)
}

// TestPolicyFunctions: the policies of a resource follow the parameters of the last successful operation.
func TestPolicyFunctions(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		create, update []string // parameters
		broken         bool     // the update fails and is rolled back
		want           int      // volumes that the deletion of the stack leaves
	}{
		"retained":              {create: []string{"Stage", "prod"}, want: 1},
		"deleted":               {create: []string{"Stage", "dev"}},
		"now retained":          {create: []string{"Stage", "dev"}, update: []string{"Stage", "prod"}, want: 1},
		"no longer retained":    {create: []string{"Stage", "prod"}, update: []string{"Stage", "dev"}},
		"rolled back":           {create: []string{"Stage", "dev"}, update: []string{"Stage", "prod"}, broken: true},
		"replaced and deleted":  {create: []string{"Stage", "dev"}, update: []string{"Stage", "dev", "Enc", "true"}},
		"replaced and retained": {create: []string{"Stage", "dev"}, update: []string{"Stage", "dev", "Enc", "true", "Policy", "Retain"}, want: 1},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			l := newLab(t)
			l.begin("v", volumes, c.create...)
			l.want(l.settle("v"), "CREATE_COMPLETE")
			switch {
			case c.broken:
				body := volumes + "  Broken: {Type: AWS::EC2::Subnet, Properties: {VpcId: vpc-0123456789abcdef0, CidrBlock: 10.0.0.0/24}}\n"
				l.want(l.update("v", body, c.update...), "UPDATE_ROLLBACK_COMPLETE")
			case c.update != nil:
				l.want(l.update("v", volumes, c.update...), "UPDATE_COMPLETE")
			}
			l.want(l.remove("v"), "DELETE_COMPLETE")
			if n := l.volumeCount(); n != c.want {
				t.Errorf("%d volumes are left, want %d", n, c.want)
			}
		})
	}
}

// TestInvalidPolicyIsRefused: the value of a function is checked before a stack or a change set is created.
func TestInvalidPolicyIsRefused(t *testing.T) {
	t.Parallel()
	l := newLab(t)
	const want = "ValidationError: Template format error: Unrecognized UpdateReplacePolicy Never for resource Volume"
	_, err := l.cfn.CreateStack(l.ctx(), &cfn.CreateStackInput{
		StackName: aws.String("v"), TemplateBody: aws.String(volumes), Parameters: params("Policy", "Never"),
	})
	if refused(err) != want {
		t.Errorf("CreateStack: %s", refused(err))
	}
	_, err = l.cfn.CreateChangeSet(l.ctx(), &cfn.CreateChangeSetInput{
		StackName: aws.String("v"), TemplateBody: aws.String(volumes), Parameters: params("Policy", "Never"),
		ChangeSetName: aws.String("c"), ChangeSetType: "CREATE",
	})
	if refused(err) != want {
		t.Errorf("CreateChangeSet: %s", refused(err))
	}
	unsupported := strings.Replace(volumes, "!Ref Policy", "!ImportValue policy", 1)
	_, err = l.cfn.ValidateTemplate(l.ctx(), &cfn.ValidateTemplateInput{TemplateBody: &unsupported})
	if refused(err) != "ValidationError: Template error: Unsupported expression for UpdateReplacePolicy in resource Volume: Fn::ImportValue" {
		t.Errorf("ValidateTemplate: %s", refused(err))
	}
}

// TestChangeSetOfPolicies: a change set compares the values of policies, not their expressions.
func TestChangeSetOfPolicies(t *testing.T) {
	t.Parallel()
	l := newLab(t)
	l.want(l.create("v", volumes), "CREATE_COMPLETE")
	for name, c := range map[string]struct {
		old, new string
		params   []string
		want     []string
	}{
		"expression": {"!If [Prod, Retain, Delete]", "Retain", []string{"Enc", "true"}, []string{
			"Modify Volume True [Properties] Properties.Encrypted/Always/Dynamic/DirectModification/ Properties.Encrypted/Always/Static/ParameterReference/Enc",
		}},
		"condition": {"", "", []string{"Stage", "dev"}, []string{
			"Modify Volume False [DeletionPolicy] DeletionPolicy./Never/Static/DirectModification/",
		}},
		"parameter": {"", "", []string{"Policy", "Retain"}, []string{
			"Modify Volume False [UpdateReplacePolicy] UpdateReplacePolicy./Never/Dynamic/DirectModification/ UpdateReplacePolicy./Never/Static/ParameterReference/Policy",
		}},
	} {
		body := strings.Replace(volumes, c.old, c.new, 1)
		cs := l.propose(&cfn.CreateChangeSetInput{
			StackName: aws.String("v"), TemplateBody: &body, ChangeSetName: aws.String(name), Parameters: params(c.params...),
		})
		if diff := cmp.Diff(c.want, summary(cs)); diff != "" {
			t.Errorf("%s (-want +got):\n%s", name, diff)
		}
	}
}
