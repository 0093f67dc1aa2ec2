// SPDX-License-Identifier: Apache-2.0

package cloudformation_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/aws/aws-sdk-go-v2/aws"
	cfn "github.com/aws/aws-sdk-go-v2/service/cloudformation"
	"github.com/aws/aws-sdk-go-v2/service/cloudformation/types"
	"github.com/google/go-cmp/cmp"
)

// propose makes a change set and returns it with all its pages.
func (l *lab) propose(in *cfn.CreateChangeSetInput) *cfn.DescribeChangeSetOutput {
	l.t.Helper()
	if in.ChangeSetName == nil {
		in.ChangeSetName = aws.String("c")
	}
	in.Capabilities = allCapabilities()
	made := must[*cfn.CreateChangeSetOutput](l)(l.cfn.CreateChangeSet(l.ctx(), in))
	var all *cfn.DescribeChangeSetOutput
	var token *string
	for {
		out := must[*cfn.DescribeChangeSetOutput](l)(l.cfn.DescribeChangeSet(l.ctx(), &cfn.DescribeChangeSetInput{ChangeSetName: made.Id, NextToken: token}))
		if all == nil {
			all = out
		} else {
			all.Changes = append(all.Changes, out.Changes...)
		}
		if token = out.NextToken; token == nil {
			return all
		}
	}
}

// summary is a change set's changes as lines.
func summary(cs *cfn.DescribeChangeSetOutput) []string {
	var out []string
	for _, c := range cs.Changes {
		r := c.ResourceChange
		var line strings.Builder
		fmt.Fprintf(&line, "%s %s %s %v", r.Action, *r.LogicalResourceId, r.Replacement, r.Scope)
		for _, d := range r.Details {
			fmt.Fprintf(&line, " %s.%s/%s/%s/%s/%s", d.Target.Attribute, aws.ToString(d.Target.Name), d.Target.RequiresRecreation, d.Evaluation, d.ChangeSource, aws.ToString(d.CausingEntity))
		}
		out = append(out, strings.Join(strings.Fields(line.String()), " "))
	}
	return out
}

const machines = `
Parameters: {Type: {Type: String, Default: t3.medium}, Size: {Type: Number, Default: 8}}
Resources:
  Vpc: {Type: AWS::EC2::VPC, Properties: {CidrBlock: 10.0.0.0/16}}
  Net: {Type: AWS::EC2::Subnet, Properties: {VpcId: !Ref Vpc, CidrBlock: 10.0.1.0/24}}
  Sg: {Type: AWS::EC2::SecurityGroup, Properties: {GroupDescription: first, VpcId: !Ref Vpc}}
  Rule: {Type: AWS::EC2::SecurityGroupIngress, Properties: {GroupId: !GetAtt Sg.GroupId, IpProtocol: "-1", CidrIp: 10.0.0.0/8}}
  Volume:
    Type: AWS::EC2::Volume
    DeletionPolicy: Retain
    UpdateReplacePolicy: Retain
    Properties: {AvailabilityZone: us-east-1a, Size: !Ref Size, VolumeType: gp3}
  Template:
    Type: AWS::EC2::LaunchTemplate
    Properties:
      LaunchTemplateData: {ImageId: ami-0123456789abcdef0, InstanceType: !Ref Type, SecurityGroupIds: [!GetAtt Sg.GroupId]}
  Group:
    Type: AWS::AutoScaling::AutoScalingGroup
    Properties:
      MinSize: "0"
      MaxSize: "2"
      VPCZoneIdentifier: [!Ref Net]
      LaunchTemplate: {LaunchTemplateId: !Ref Template, Version: !GetAtt Template.LatestVersionNumber}
`

// What a change set says of replacements, for each way in which a property can change.
func TestChangeSetReplacements(t *testing.T) {
	t.Parallel()
	l := newLab(t)
	l.want(l.create("m", machines), "CREATE_COMPLETE")
	for i, c := range []struct {
		what, old, new string
		params         []string
		want           []string
	}{
		{"a parameter of a mutable property", "", "", []string{"Type", "t3.large"}, []string{
			"Modify Group Conditional [Properties] Properties.LaunchTemplate/Conditionally/Dynamic/ResourceAttribute/Template.LatestVersionNumber",
			"Modify Template False [Properties] Properties.LaunchTemplateData/Never/Dynamic/DirectModification/ Properties.LaunchTemplateData/Never/Static/ParameterReference/Type",
		}},
		{"an immutable property", "GroupDescription: first", "GroupDescription: second", nil, []string{
			"Modify Group Conditional [Properties] Properties.LaunchTemplate/Conditionally/Dynamic/ResourceAttribute/Template.LatestVersionNumber",
			"Modify Rule True [Properties] Properties.GroupId/Always/Static/ResourceAttribute/Sg.GroupId",
			"Modify Sg True [Properties] Properties.GroupDescription/Always/Static/DirectModification/",
			"Modify Template False [Properties] Properties.LaunchTemplateData/Never/Static/ResourceAttribute/Sg.GroupId",
		}},
		{"a volume that grows", "", "", []string{"Size", "9"}, []string{
			"Modify Volume False [Properties] Properties.Size/Never/Dynamic/DirectModification/ Properties.Size/Never/Static/ParameterReference/Size",
		}},
		{"a volume that moves", "AvailabilityZone: us-east-1a", "AvailabilityZone: us-east-1b", nil, []string{
			"Modify Volume True [Properties] Properties.AvailabilityZone/Always/Static/DirectModification/",
		}},
		{"a policy", "DeletionPolicy: Retain", "DeletionPolicy: Delete", nil, []string{
			"Modify Volume False [DeletionPolicy] DeletionPolicy./Never/Static/DirectModification/",
		}},
		{"another resource", "  Sg:", "  Igw: {Type: AWS::EC2::InternetGateway}\n  Sg:", nil, []string{"Add Igw []"}},
		{"one resource less", "  Rule: {", "  Other: {", nil, []string{"Add Other []", "Remove Rule []"}},
	} {
		body := strings.Replace(machines, c.old, c.new, 1)
		cs := l.propose(&cfn.CreateChangeSetInput{
			StackName: aws.String("m"), TemplateBody: &body, ChangeSetName: aws.String(fmt.Sprintf("c%d", i)), Parameters: params(c.params...),
		})
		if cs.Status != types.ChangeSetStatusCreateComplete || cs.ExecutionStatus != types.ExecutionStatusAvailable {
			t.Errorf("%s: %s %s %s", c.what, cs.Status, cs.ExecutionStatus, aws.ToString(cs.StatusReason))
		}
		if diff := cmp.Diff(c.want, summary(cs)); diff != "" {
			t.Errorf("%s (-want +got):\n%s", c.what, diff)
		}
	}
	if n := len(must[*cfn.ListChangeSetsOutput](l)(l.cfn.ListChangeSets(l.ctx(), &cfn.ListChangeSetsInput{StackName: aws.String("m")})).Summaries); n != 7 {
		t.Errorf("%d change sets are listed", n)
	}
}

func TestChangeSetOfANewStack(t *testing.T) {
	t.Parallel()
	l := newLab(t)
	in := &cfn.CreateChangeSetInput{StackName: aws.String("new"), TemplateBody: aws.String(network), ChangeSetType: types.ChangeSetTypeCreate}
	cs := l.propose(in)
	if diff := cmp.Diff([]string{"Add Rule []", "Add Sg []", "Add Subnet []", "Add Vpc []"}, summary(cs)); diff != "" {
		t.Errorf("changes (-want +got):\n%s", diff)
	}
	if st := l.describe("new"); st.StackStatus != types.StackStatusReviewInProgress {
		t.Errorf("the stack is %s", st.StackStatus)
	}
	must[*cfn.ExecuteChangeSetOutput](l)(l.cfn.ExecuteChangeSet(l.ctx(), &cfn.ExecuteChangeSetInput{ChangeSetName: cs.ChangeSetId}))
	l.want(l.settle("new"), "CREATE_COMPLETE")
	_, err := l.cfn.ExecuteChangeSet(l.ctx(), &cfn.ExecuteChangeSetInput{ChangeSetName: cs.ChangeSetId})
	if !strings.HasPrefix(refused(err), "InvalidChangeSetStatus: ") {
		t.Errorf("executed twice: %s", refused(err))
	}
	_, err = l.cfn.CreateChangeSet(l.ctx(), in)
	if !strings.Contains(refused(err), "already exists and cannot be created again") {
		t.Errorf("created twice: %s", refused(err))
	}
	cs = l.propose(&cfn.CreateChangeSetInput{StackName: aws.String("new"), TemplateBody: aws.String(network), ChangeSetName: aws.String("nothing")})
	if cs.Status != types.ChangeSetStatusFailed || !strings.Contains(*cs.StatusReason, "didn't contain changes") {
		t.Errorf("no changes: %s %s", cs.Status, aws.ToString(cs.StatusReason))
	}
	cs = l.propose(&cfn.CreateChangeSetInput{
		StackName: aws.String("new"), TemplateBody: aws.String(strings.Replace(network, "GroupDescription:", "GroupDescripton:", 1)), ChangeSetName: aws.String("wrong"),
	})
	want := "Properties validation failed for resource Sg with message: [#: extraneous key [GroupDescripton] is not permitted, #: required key [GroupDescription] not found]"
	if cs.Status != types.ChangeSetStatusFailed || aws.ToString(cs.StatusReason) != want {
		t.Errorf("an unknown property: %s %s", cs.Status, aws.ToString(cs.StatusReason))
	}
	must[*cfn.DeleteChangeSetOutput](l)(l.cfn.DeleteChangeSet(l.ctx(), &cfn.DeleteChangeSetInput{ChangeSetName: aws.String("wrong"), StackName: aws.String("new")}))
	_, err = l.cfn.DescribeChangeSet(l.ctx(), &cfn.DescribeChangeSetInput{ChangeSetName: aws.String("wrong"), StackName: aws.String("new")})
	if !strings.HasPrefix(refused(err), "ChangeSetNotFound") {
		t.Errorf("a deleted change set: %s", refused(err))
	}
	l.want(l.remove("new"), "DELETE_COMPLETE")
}

// TestRepeatedChangeSet: a request with the client token and the parameters of an earlier one is answered as that one, also
// after the change set was executed; another token, or other parameters, are another request.
func TestRepeatedChangeSet(t *testing.T) {
	t.Parallel()
	l := newLab(t)
	body := `{"Resources":{"P":{"Type":"AWS::SSM::Parameter","Properties":{"Name":"/own/x","Type":"String","Value":"v"}}}}`
	in := &cfn.CreateChangeSetInput{
		StackName: aws.String("s"), ChangeSetName: aws.String("c"), TemplateBody: &body, ChangeSetType: types.ChangeSetTypeCreate,
		ClientToken: aws.String("one"),
	}
	first := must[*cfn.CreateChangeSetOutput](l)(l.cfn.CreateChangeSet(l.ctx(), in))
	again := must[*cfn.CreateChangeSetOutput](l)(l.cfn.CreateChangeSet(l.ctx(), in))
	if *again.Id != *first.Id || *again.StackId != *first.StackId {
		t.Errorf("a repeated request created %s after %s", *again.Id, *first.Id)
	}
	for name, change := range map[string]func(in *cfn.CreateChangeSetInput){
		"another token":    func(in *cfn.CreateChangeSetInput) { in.ClientToken = aws.String("two") },
		"no token":         func(in *cfn.CreateChangeSetInput) { in.ClientToken = nil },
		"other parameters": func(in *cfn.CreateChangeSetInput) { in.Description = aws.String("other") },
	} {
		other := *in
		change(&other)
		if _, err := l.cfn.CreateChangeSet(l.ctx(), &other); !strings.HasPrefix(refused(err), "AlreadyExistsException") {
			t.Errorf("%s: %s", name, refused(err))
		}
	}
	list := must[*cfn.ListChangeSetsOutput](l)(l.cfn.ListChangeSets(l.ctx(), &cfn.ListChangeSetsInput{StackName: aws.String("s")}))
	if len(list.Summaries) != 1 {
		t.Errorf("the stack has %d change sets", len(list.Summaries))
	}
}

// A change set of many resources comes in pages, and so do events.
func TestPages(t *testing.T) {
	t.Parallel()
	l := newLab(t)
	var b strings.Builder
	b.WriteString("Resources:\n")
	for i := range 130 {
		fmt.Fprintf(&b, "  Handle%d: {Type: AWS::CloudFormation::WaitConditionHandle}\n", i)
	}
	in := &cfn.CreateChangeSetInput{StackName: aws.String("many"), TemplateBody: aws.String(b.String()), ChangeSetType: types.ChangeSetTypeCreate, ChangeSetName: aws.String("c"), Capabilities: allCapabilities()}
	made := must[*cfn.CreateChangeSetOutput](l)(l.cfn.CreateChangeSet(l.ctx(), in))
	first := must[*cfn.DescribeChangeSetOutput](l)(l.cfn.DescribeChangeSet(l.ctx(), &cfn.DescribeChangeSetInput{ChangeSetName: made.Id}))
	rest := must[*cfn.DescribeChangeSetOutput](l)(l.cfn.DescribeChangeSet(l.ctx(), &cfn.DescribeChangeSetInput{ChangeSetName: made.Id, NextToken: first.NextToken}))
	if len(first.Changes) != 100 || len(rest.Changes) != 30 || rest.NextToken != nil {
		t.Errorf("pages of %d and %d", len(first.Changes), len(rest.Changes))
	}
	must[*cfn.ExecuteChangeSetOutput](l)(l.cfn.ExecuteChangeSet(l.ctx(), &cfn.ExecuteChangeSetInput{ChangeSetName: made.Id}))
	l.want(l.settle("many"), "CREATE_COMPLETE")
	if n := len(l.events("many")); n != 3*130+3 {
		t.Errorf("%d events", n)
	}
}

// TestExecutedChangeSetFreesItsName: scripts use one name for all their change sets. CloudFormation deletes a change set
// when it is executed; its ARN stays describable.
func TestExecutedChangeSetFreesItsName(t *testing.T) {
	t.Parallel()
	l := newLab(t)
	body := func(name string) *string {
		return aws.String(`{"Resources":{"P":{"Type":"AWS::SSM::Parameter","Properties":{"Name":"/own/x","Type":"String","Value":"` + name + `"}}}}`)
	}
	for i, kind := range []types.ChangeSetType{types.ChangeSetTypeCreate, types.ChangeSetTypeUpdate} {
		cs := l.propose(&cfn.CreateChangeSetInput{StackName: aws.String("s"), TemplateBody: body(fmt.Sprint("v", i)), ChangeSetType: kind})
		must[*cfn.ExecuteChangeSetOutput](l)(l.cfn.ExecuteChangeSet(l.ctx(), &cfn.ExecuteChangeSetInput{ChangeSetName: cs.ChangeSetId}))
		l.settle("s")
		list := must[*cfn.ListChangeSetsOutput](l)(l.cfn.ListChangeSets(l.ctx(), &cfn.ListChangeSetsInput{StackName: aws.String("s")}))
		if len(list.Summaries) != 0 {
			t.Errorf("after the execution there are change sets: %+v", list.Summaries)
		}
		again := must[*cfn.DescribeChangeSetOutput](l)(l.cfn.DescribeChangeSet(l.ctx(), &cfn.DescribeChangeSetInput{ChangeSetName: cs.ChangeSetId}))
		if again.ExecutionStatus != types.ExecutionStatusExecuteComplete {
			t.Errorf("the executed change set is %s", again.ExecutionStatus)
		}
	}
}

// TestStackInReviewIsCreated: CreateStack creates a stack that has only change sets, under its ID. The change sets become
// obsolete, as in LocalStack's recording of AWS test_create_while_in_review.
func TestStackInReviewIsCreated(t *testing.T) {
	t.Parallel()
	l := newLab(t)
	body := `{"Resources":{"P":{"Type":"AWS::SSM::Parameter","Properties":{"Name":"/own/x","Type":"String","Value":"v"}}}}`
	cs := l.propose(&cfn.CreateChangeSetInput{StackName: aws.String("s"), TemplateBody: &body, ChangeSetType: types.ChangeSetTypeCreate})
	made := l.create("s", body)
	l.want(made, "CREATE_COMPLETE")
	if *made.StackId != *cs.StackId {
		t.Errorf("the stack is %s, its change set is of %s", *made.StackId, *cs.StackId)
	}

	got := must[*cfn.DescribeChangeSetOutput](l)(l.cfn.DescribeChangeSet(l.ctx(), &cfn.DescribeChangeSetInput{ChangeSetName: cs.ChangeSetId}))
	if got.Status != types.ChangeSetStatusCreateComplete || got.ExecutionStatus != types.ExecutionStatusObsolete || len(got.Changes) != 1 {
		t.Errorf("the change set is %s and %s with %d changes", got.Status, got.ExecutionStatus, len(got.Changes))
	}
	l.refusedToExecute(cs.ChangeSetId, types.ExecutionStatusObsolete)
}

// refusedToExecute checks that a change set cannot be executed because of its execution status.
func (l *lab) refusedToExecute(id *string, status types.ExecutionStatus) {
	l.t.Helper()
	_, err := l.cfn.ExecuteChangeSet(l.ctx(), &cfn.ExecuteChangeSetInput{ChangeSetName: id})
	want := "InvalidChangeSetStatus: ChangeSet [" + *id + "] cannot be executed in its current execution status of [" + string(status) + "]"
	if got := refused(err); got != want {
		l.t.Errorf("execute a change set: %s, want %s", got, want)
	}
}

// TestUpdatesMakeChangeSetsObsolete: a change set was computed for the stack before its update, so it cannot be executed.
func TestUpdatesMakeChangeSetsObsolete(t *testing.T) {
	t.Parallel()
	l := newLab(t)
	body := func(value string) string {
		return `{"Resources":{"P":{"Type":"AWS::SSM::Parameter","Properties":{"Name":"/own/x","Type":"String","Value":"` + value + `"}}}}`
	}
	l.want(l.create("s", body("1")), "CREATE_COMPLETE")
	cs := l.propose(&cfn.CreateChangeSetInput{StackName: aws.String("s"), TemplateBody: aws.String(body("2"))})
	l.want(l.update("s", body("3")), "UPDATE_COMPLETE")
	list := must[*cfn.ListChangeSetsOutput](l)(l.cfn.ListChangeSets(l.ctx(), &cfn.ListChangeSetsInput{StackName: aws.String("s")}))
	if len(list.Summaries) != 1 || list.Summaries[0].ExecutionStatus != types.ExecutionStatusObsolete {
		t.Errorf("the change sets are %+v", list.Summaries)
	}
	l.refusedToExecute(cs.ChangeSetId, types.ExecutionStatusObsolete)
}

// TestChangeSetsOutliveTheirStack: the executed change set of a deleted stack can be described by its ARN, also when another
// stack and another change set have the names, as in LocalStack's recording of AWS test_name_conflicts. It has no name any
// more.
func TestChangeSetsOutliveTheirStack(t *testing.T) {
	t.Parallel()
	l := newLab(t)
	propose := func() *cfn.DescribeChangeSetOutput {
		return l.propose(&cfn.CreateChangeSetInput{
			StackName: aws.String("s"), ChangeSetType: types.ChangeSetTypeCreate,
			TemplateBody: aws.String(`{"Resources":{"P":{"Type":"AWS::SSM::Parameter","Properties":{"Name":"/own/x","Type":"String","Value":"v"}}}}`),
		})
	}
	first := propose()
	must[*cfn.ExecuteChangeSetOutput](l)(l.cfn.ExecuteChangeSet(l.ctx(), &cfn.ExecuteChangeSetInput{ChangeSetName: first.ChangeSetId}))
	l.want(l.settle("s"), "CREATE_COMPLETE")
	l.want(l.remove("s"), "DELETE_COMPLETE")

	for range 2 {
		got, err := l.cfn.DescribeChangeSet(l.ctx(), &cfn.DescribeChangeSetInput{ChangeSetName: first.ChangeSetId})
		if err != nil {
			t.Fatalf("describe the change set of a deleted stack: %v", err)
		}
		if got.ExecutionStatus != types.ExecutionStatusExecuteComplete || *got.StackId != *first.StackId || len(got.Changes) != 1 {
			t.Errorf("the change set is %s, of %s, with %d changes", got.ExecutionStatus, *got.StackId, len(got.Changes))
		}

		l.refusedToExecute(first.ChangeSetId, types.ExecutionStatusExecuteComplete)
		second := propose()
		if *second.ChangeSetId == *first.ChangeSetId || *second.StackId == *first.StackId {
			t.Fatalf("the second change set is %s of %s, like the first one", *second.ChangeSetId, *second.StackId)
		}
		byName := must[*cfn.DescribeChangeSetOutput](l)(l.cfn.DescribeChangeSet(l.ctx(), &cfn.DescribeChangeSetInput{ChangeSetName: second.ChangeSetName, StackName: aws.String("s")}))
		if *byName.ChangeSetId != *second.ChangeSetId {
			t.Errorf("the name is that of %s, want %s", *byName.ChangeSetId, *second.ChangeSetId)
		}
		must[*cfn.DeleteChangeSetOutput](l)(l.cfn.DeleteChangeSet(l.ctx(), &cfn.DeleteChangeSetInput{ChangeSetName: second.ChangeSetId}))
	}
}

// TestManagedPolicyFromJSON: the document of a managed policy is an object, as in every template.
func TestManagedPolicyFromJSON(t *testing.T) {
	t.Parallel()
	l := newLab(t)
	l.want(l.create("s", `{"Resources":{"P":{"Type":"AWS::IAM::ManagedPolicy","Properties":{"PolicyDocument":
		{"Version":"2012-10-17","Statement":{"Effect":"Allow","Action":"ec2:Describe*","Resource":"*"}}}}}}`), "CREATE_COMPLETE")
}
