// SPDX-License-Identifier: Apache-2.0

package cloudformation_test

import (
	"slices"
	"strings"
	"testing"

	"github.com/aws/aws-sdk-go-v2/aws"
	cfn "github.com/aws/aws-sdk-go-v2/service/cloudformation"
	"github.com/aws/aws-sdk-go-v2/service/cloudformation/types"
	"github.com/aws/aws-sdk-go-v2/service/ec2"
	ec2types "github.com/aws/aws-sdk-go-v2/service/ec2/types"
	"github.com/aws/aws-sdk-go-v2/service/iam"
	"github.com/google/go-cmp/cmp"
)

func TestStackIsMadeInOrderAndDeleted(t *testing.T) {
	t.Parallel()
	l := newLab(t)
	st := l.create("net", network)
	l.want(st, "CREATE_COMPLETE")
	vpc := l.physical("net", "Vpc")
	if got := l.output(st, "Vpc"); got != vpc || !strings.HasPrefix(vpc, "vpc-") {
		t.Errorf("output Vpc is %s, the VPC is %s", got, vpc)
	}
	if got := l.output(st, "Cidr"); got != "10.0.0.0/24" {
		t.Errorf("output Cidr is %s", got)
	}
	events := l.events("net")
	at := func(e string) int { return slices.Index(events, e) }
	if at("CREATE_COMPLETE Vpc") < 0 || at("CREATE_COMPLETE Vpc") > at("CREATE_IN_PROGRESS Sg") || at("CREATE_COMPLETE Sg") > at("CREATE_IN_PROGRESS Rule") {
		t.Errorf("out of order:\n%s", strings.Join(events, "\n"))
	}
	if events[0] != "CREATE_IN_PROGRESS net User Initiated" || events[len(events)-1] != "CREATE_COMPLETE net" {
		t.Errorf("it begins with %q and ends with %q", events[0], events[len(events)-1])
	}
	tags := map[string]string{}
	for _, tag := range must[*ec2.DescribeVpcsOutput](l)(l.ec2.DescribeVpcs(l.ctx(), &ec2.DescribeVpcsInput{VpcIds: []string{vpc}})).Vpcs[0].Tags {
		tags[*tag.Key] = *tag.Value
	}
	want := map[string]string{
		"Name": "net-vpc", "aws:cloudformation:stack-name": "net", "aws:cloudformation:stack-id": *st.StackId, "aws:cloudformation:logical-id": "Vpc",
	}
	if diff := cmp.Diff(want, tags); diff != "" {
		t.Errorf("tags (-want +got):\n%s", diff)
	}
	l.want(l.remove("net"), "DELETE_COMPLETE")
	if _, err := l.ec2.DescribeVpcs(l.ctx(), &ec2.DescribeVpcsInput{VpcIds: []string{vpc}}); err == nil {
		t.Error("the VPC is still there")
	}
	if _, err := l.cfn.DescribeStacks(l.ctx(), &cfn.DescribeStacksInput{StackName: aws.String("net")}); refused(err) != "ValidationError: Stack with id net does not exist" {
		t.Errorf("a deleted stack: %s", refused(err))
	}
}

func TestUpdateChangesReplacesAddsAndRemoves(t *testing.T) {
	t.Parallel()
	l := newLab(t)
	l.want(l.create("net", network), "CREATE_COMPLETE")
	before := l.resources("net")
	st := l.update("net", network, "Group", "second", "Enough", "yes")
	l.want(st, "UPDATE_COMPLETE")
	after := l.resources("net")
	if *before["Vpc"].PhysicalResourceId != *after["Vpc"].PhysicalResourceId {
		t.Error("the VPC was replaced")
	}
	if *before["Sg"].PhysicalResourceId == *after["Sg"].PhysicalResourceId || *before["Rule"].PhysicalResourceId == *after["Rule"].PhysicalResourceId {
		t.Error("the group and its rule were not replaced")
	}
	if after["Second"].PhysicalResourceId == nil {
		t.Error("the second subnet was not made")
	}
	l.told("net", "UPDATE_IN_PROGRESS Sg Requested update requires the creation of a new physical resource; hence creating one.")
	l.told("net", "DELETE_COMPLETE Sg")
	groups := must[*ec2.DescribeSecurityGroupsOutput](l)(l.ec2.DescribeSecurityGroups(l.ctx(), &ec2.DescribeSecurityGroupsInput{
		Filters: []ec2types.Filter{{Name: aws.String("vpc-id"), Values: []string{*after["Vpc"].PhysicalResourceId}}},
	})).SecurityGroups
	if len(groups) != 2 { // its own default one, and the new one
		t.Errorf("%d groups are left", len(groups))
	}
	l.want(l.update("net", network, "Group", "second"), "UPDATE_COMPLETE")
	if _, there := l.resources("net")["Second"]; there {
		t.Error("the second subnet was not removed")
	}
	_, err := l.cfn.UpdateStack(l.ctx(), &cfn.UpdateStackInput{StackName: aws.String("net"), TemplateBody: aws.String(network), Parameters: params("Group", "second")})
	if refused(err) != "ValidationError: No updates are to be performed." {
		t.Errorf("nothing to do: %s", refused(err))
	}
}

// A creation that fails says why, and leaves nothing behind.
func TestFailedCreationRollsBack(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct{ broken, reason string }{
		"name conflict": {
			`{Type: AWS::IAM::Role, DependsOn: Vpc, Properties: {RoleName: a-name, AssumeRolePolicyDocument: {Version: "2012-10-17", Statement: [{Effect: Allow, Principal: {Service: ec2.amazonaws.com}, Action: "sts:AssumeRole"}]}}}`,
			`CREATE_FAILED Broken Resource handler returned message: "Role with name a-name already exists.`,
		},
		"invalid value": {
			`{Type: AWS::EC2::Subnet, Properties: {VpcId: !Ref Vpc, CidrBlock: 192.168.0.0/24}}`,
			`CREATE_FAILED Broken Resource handler returned message:`,
		},
		"unknown property": {
			`{Type: AWS::EC2::Subnet, DependsOn: Vpc, Properties: {VpcId: !Ref Vpc, CidrBlok: 10.0.0.0/24}}`,
			`CREATE_FAILED Broken Properties validation failed for resource Broken with message: [#: extraneous key [CidrBlok] is not permitted]`,
		},
		"invalid instance type": {
			`{Type: AWS::EC2::Instance, Properties: {InstanceType: t3.enormous, ImageId: ami-0123456789abcdef0, SubnetId: !Ref Net}}`,
			`CREATE_FAILED Broken Resource handler returned message:`,
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			l := newLab(t)
			if name == "name conflict" {
				must[*iam.CreateRoleOutput](l)(iam.NewFromConfig(l.region.AWSConfig()).CreateRole(l.ctx(), &iam.CreateRoleInput{
					RoleName: aws.String("a-name"), AssumeRolePolicyDocument: aws.String(`{"Version":"2012-10-17","Statement":[{"Effect":"Allow","Principal":{"Service":"ec2.amazonaws.com"},"Action":"sts:AssumeRole"}]}`),
				}))
			}
			body := `
Resources:
  Vpc: {Type: AWS::EC2::VPC, DeletionPolicy: RetainExceptOnCreate, Properties: {CidrBlock: 10.0.0.0/16}}
  Net: {Type: AWS::EC2::Subnet, Properties: {VpcId: !Ref Vpc, CidrBlock: 10.0.1.0/24}}
  Broken: ` + c.broken + "\n"
			st := l.create("broken", body)
			l.want(st, "ROLLBACK_COMPLETE")
			l.told("broken", c.reason)
			l.told("broken", "ROLLBACK_IN_PROGRESS broken The following resource(s) failed to create: [Broken]. Rollback requested by user.")
			if n := len(must[*ec2.DescribeVpcsOutput](l)(l.ec2.DescribeVpcs(l.ctx(), &ec2.DescribeVpcsInput{})).Vpcs); n != 0 {
				t.Errorf("%d VPCs are left", n)
			}
			l.want(l.remove("broken"), "DELETE_COMPLETE")
		})
	}
}

func TestOnFailure(t *testing.T) {
	t.Parallel()
	l := newLab(t)
	body := `
Resources:
  Vpc: {Type: AWS::EC2::VPC, Properties: {CidrBlock: 10.0.0.0/16}}
  Broken: {Type: AWS::EC2::Subnet, Properties: {VpcId: !Ref Vpc, CidrBlock: 192.168.0.0/24}}
`
	for on, want := range map[types.OnFailure]string{types.OnFailureDelete: "DELETE_COMPLETE", types.OnFailureDoNothing: "CREATE_FAILED"} {
		out := must[*cfn.CreateStackOutput](l)(l.cfn.CreateStack(l.ctx(), &cfn.CreateStackInput{
			StackName: aws.String(strings.ReplaceAll(string(on), "_", "-")), TemplateBody: &body, OnFailure: on,
		}))
		l.want(l.settle(*out.StackId), want)
	}
}

// An update that fails ends where it began.
func TestFailedUpdateRollsBack(t *testing.T) {
	t.Parallel()
	l := newLab(t)
	l.want(l.create("net", network), "CREATE_COMPLETE")
	before := l.resources("net")
	broken := strings.Replace(network, "Resources:\n", `Resources:
  Broken: {Type: AWS::EC2::Subnet, DependsOn: [Rule, Second], Properties: {VpcId: !Ref Vpc, CidrBlock: 192.168.0.0/24}}
`, 1)
	broken = strings.Replace(broken, "-vpc", "-other", 1)
	st := l.update("net", broken, "Group", "second", "Enough", "yes")
	l.want(st, "UPDATE_ROLLBACK_COMPLETE")
	after := l.resources("net")
	for name, r := range before {
		if *r.PhysicalResourceId != aws.ToString(after[name].PhysicalResourceId) {
			t.Errorf("%s was %s and is %s", name, *r.PhysicalResourceId, aws.ToString(after[name].PhysicalResourceId))
		}
	}
	if len(before) != len(after) {
		t.Errorf("%d resources before, %d after", len(before), len(after))
	}
	vpcs := must[*ec2.DescribeVpcsOutput](l)(l.ec2.DescribeVpcs(l.ctx(), &ec2.DescribeVpcsInput{
		Filters: []ec2types.Filter{{Name: aws.String("tag:Name"), Values: []string{"net-vpc"}}},
	})).Vpcs
	if len(vpcs) != 1 {
		t.Error("the VPC has not got its name back")
	}
	for what, n := range map[string]int{
		"groups":  len(must[*ec2.DescribeSecurityGroupsOutput](l)(l.ec2.DescribeSecurityGroups(l.ctx(), &ec2.DescribeSecurityGroupsInput{})).SecurityGroups) - 1,
		"subnets": len(must[*ec2.DescribeSubnetsOutput](l)(l.ec2.DescribeSubnets(l.ctx(), &ec2.DescribeSubnetsInput{})).Subnets),
	} {
		if n != 1 {
			t.Errorf("%d %s are left", n, what)
		}
	}
	l.told("net", "UPDATE_ROLLBACK_IN_PROGRESS net The following resource(s) failed to create: [Broken].")
	l.want(l.update("net", network, "Group", "third"), "UPDATE_COMPLETE")
	l.want(l.remove("net"), "DELETE_COMPLETE")
}

// What somebody else put into a subnet stops the deletion; with the subnet left alone the stack can go.
func TestDeleteFailedNamesWhatIsInTheWay(t *testing.T) {
	t.Parallel()
	l := newLab(t)
	l.want(l.create("net", network), "CREATE_COMPLETE")
	subnet := l.physical("net", "Subnet")
	run := must[*ec2.RunInstancesOutput](l)(l.ec2.RunInstances(l.ctx(), &ec2.RunInstancesInput{
		MinCount: aws.Int32(1), MaxCount: aws.Int32(1), SubnetId: &subnet, ImageId: aws.String("ami-0123456789abcdef0"), InstanceType: "t3.medium",
	}))
	st := l.remove("net")
	l.want(st, "DELETE_FAILED")
	if got := aws.ToString(st.StackStatusReason); got != "The following resource(s) failed to delete: [Subnet]. " {
		t.Errorf("reason: %q", got)
	}
	reason := aws.ToString(l.resources("net")["Subnet"].ResourceStatusReason)
	if !strings.Contains(reason, subnet) || !strings.Contains(reason, "dependencies") {
		t.Errorf("the subnet's reason: %s", reason)
	}
	_, err := l.cfn.DeleteStack(l.ctx(), &cfn.DeleteStackInput{StackName: aws.String("net"), RetainResources: []string{"Nothing"}})
	if !strings.Contains(refused(err), "do not exist") {
		t.Errorf("retaining what is not there: %s", refused(err))
	}
	must[*ec2.TerminateInstancesOutput](l)(l.ec2.TerminateInstances(l.ctx(), &ec2.TerminateInstancesInput{InstanceIds: []string{*run.Instances[0].InstanceId}}))
	must[*cfn.DeleteStackOutput](l)(l.cfn.DeleteStack(l.ctx(), &cfn.DeleteStackInput{StackName: aws.String("net"), RetainResources: []string{"Subnet", "Vpc"}}))
	l.want(l.settle(*st.StackId), "DELETE_COMPLETE")
	l.told(*st.StackId, "DELETE_SKIPPED Subnet")
	if len(must[*ec2.DescribeSubnetsOutput](l)(l.ec2.DescribeSubnets(l.ctx(), &ec2.DescribeSubnetsInput{SubnetIds: []string{subnet}})).Subnets) != 1 {
		t.Error("the subnet is gone")
	}
}

func TestDeletionPolicies(t *testing.T) {
	t.Parallel()
	l := newLab(t)
	volume := func(policy string) string {
		return "{Type: AWS::EC2::Volume, DeletionPolicy: " + policy + ", UpdateReplacePolicy: Retain, Properties: {AvailabilityZone: us-east-1a, Size: 1, VolumeType: !Ref Kind, Encrypted: !Ref Enc}}"
	}
	body := "Parameters: {Kind: {Type: String, Default: gp3}, Enc: {Type: String, Default: 'false'}}\nResources:\n  Kept: " + volume("RetainExceptOnCreate") + "\n  Gone: " + volume("Delete") + "\n"
	st := l.create("v", body)
	l.want(st, "CREATE_COMPLETE")
	kept, gone := l.physical("v", "Kept"), l.physical("v", "Gone")
	l.want(l.update("v", body, "Enc", "true"), "UPDATE_COMPLETE") // replaces both, and keeps the old ones
	if l.physical("v", "Kept") == kept {
		t.Error("the volume was not replaced")
	}
	second := l.physical("v", "Kept")
	l.want(l.remove("v"), "DELETE_COMPLETE")
	var left []string
	for _, v := range must[*ec2.DescribeVolumesOutput](l)(l.ec2.DescribeVolumes(l.ctx(), &ec2.DescribeVolumesInput{})).Volumes {
		left = append(left, *v.VolumeId)
	}
	want := []string{kept, gone, second}
	slices.Sort(left)
	slices.Sort(want)
	if diff := cmp.Diff(want, left); diff != "" {
		t.Errorf("volumes that are left (-want +got):\n%s", diff)
	}
}

func TestProtection(t *testing.T) {
	t.Parallel()
	l := newLab(t)
	l.want(l.create("net", network), "CREATE_COMPLETE")
	protect := func(yes bool) {
		must[*cfn.UpdateTerminationProtectionOutput](l)(l.cfn.UpdateTerminationProtection(l.ctx(), &cfn.UpdateTerminationProtectionInput{StackName: aws.String("net"), EnableTerminationProtection: &yes}))
	}
	protect(true)
	_, err := l.cfn.DeleteStack(l.ctx(), &cfn.DeleteStackInput{StackName: aws.String("net")})
	if refused(err) != "ValidationError: Stack [net] cannot be deleted while TerminationProtection is enabled" {
		t.Errorf("a protected stack: %s", refused(err))
	}
	policy := `{"Statement":[{"Effect":"Allow","Principal":"*","Action":"Update:*","Resource":"*"},
		{"Effect":"Deny","Principal":"*","Action":["Update:Replace","Update:Delete"],"Resource":"*","Condition":{"StringEquals":{"ResourceType":["AWS::EC2::SecurityGroup"]}}}]}`
	must[*cfn.SetStackPolicyOutput](l)(l.cfn.SetStackPolicy(l.ctx(), &cfn.SetStackPolicyInput{StackName: aws.String("net"), StackPolicyBody: &policy}))
	if got := aws.ToString(must[*cfn.GetStackPolicyOutput](l)(l.cfn.GetStackPolicy(l.ctx(), &cfn.GetStackPolicyInput{StackName: aws.String("net")})).StackPolicyBody); got != policy {
		t.Errorf("the policy is %s", got)
	}
	sg := l.physical("net", "Sg")
	l.want(l.update("net", network, "Group", "second"), "UPDATE_ROLLBACK_COMPLETE")
	l.told("net", "UPDATE_FAILED Sg Action denied by stack policy: Statement [#2] does not allow [Update:Replace] for resource [LogicalResourceId/Sg]")
	before, rest, _ := strings.Cut(network, "  Sg:")
	_, outputs, _ := strings.Cut(rest, "Outputs:")
	without := before + "Outputs:" + outputs
	l.want(l.update("net", without), "UPDATE_ROLLBACK_COMPLETE")
	if l.physical("net", "Sg") != sg {
		t.Error("the group was replaced")
	}
	must[*cfn.UpdateStackOutput](l)(l.cfn.UpdateStack(l.ctx(), &cfn.UpdateStackInput{
		StackName: aws.String("net"), TemplateBody: aws.String(network), Parameters: params("Group", "second"),
		StackPolicyDuringUpdateBody: aws.String(`{"Statement":[{"Effect":"Allow","Principal":"*","Action":"Update:*","Resource":"*"}]}`),
	}))
	l.want(l.settle("net"), "UPDATE_COMPLETE")
	protect(false)
	l.want(l.remove("net"), "DELETE_COMPLETE")
}

func TestExports(t *testing.T) {
	t.Parallel()
	l := newLab(t)
	l.want(l.create("net", network), "CREATE_COMPLETE")
	l.want(l.create("user", `{"Resources":{"Sg":{"Type":"AWS::EC2::SecurityGroup","Properties":{"GroupDescription":"d","VpcId":{"Fn::ImportValue":"net-Vpc"}}}}}`), "CREATE_COMPLETE")
	exports := must[*cfn.ListExportsOutput](l)(l.cfn.ListExports(l.ctx(), &cfn.ListExportsInput{})).Exports
	if len(exports) != 1 || *exports[0].Name != "net-Vpc" || *exports[0].Value != l.physical("net", "Vpc") {
		t.Errorf("exports: %v", exports)
	}
	if got := must[*cfn.ListImportsOutput](l)(l.cfn.ListImports(l.ctx(), &cfn.ListImportsInput{ExportName: aws.String("net-Vpc")})).Imports; !slices.Equal(got, []string{"user"}) {
		t.Errorf("imports: %v", got)
	}
	st := l.remove("net")
	if st.StackStatus != types.StackStatusDeleteFailed || !strings.Contains(*st.StackStatusReason, "Cannot delete export net-Vpc as it is in use by user") {
		t.Errorf("an export in use: %s %s", st.StackStatus, aws.ToString(st.StackStatusReason))
	}
	l.want(l.remove("user"), "DELETE_COMPLETE")
	l.want(l.remove("net"), "DELETE_COMPLETE")
}

// A volume that is to leave a snapshot does.
func TestSnapshotPolicy(t *testing.T) {
	t.Parallel()
	l := newLab(t)
	l.want(l.create("v", "Resources: {V: {Type: AWS::EC2::Volume, DeletionPolicy: Snapshot, Properties: {AvailabilityZone: us-east-1a, Size: 1}}}"), "CREATE_COMPLETE")
	id := l.physical("v", "V")
	l.want(l.remove("v"), "DELETE_COMPLETE")
	found := must[*ec2.DescribeSnapshotsOutput](l)(l.ec2.DescribeSnapshots(l.ctx(), &ec2.DescribeSnapshotsInput{OwnerIds: []string{"self"}})).Snapshots
	if len(found) != 1 || *found[0].VolumeId != id {
		t.Errorf("snapshots: %v", found)
	}
}
