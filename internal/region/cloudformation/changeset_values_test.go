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

// proposeWithValues makes a change set, and returns its changes with property values as lines: one for a change, followed
// by one for each detail and one for each context.
func (l *lab) proposeWithValues(in *cfn.CreateChangeSetInput) []string {
	l.t.Helper()
	cs := l.propose(in)
	if cs.Status != types.ChangeSetStatusCreateComplete {
		l.t.Fatalf("%s: %s", cs.Status, aws.ToString(cs.StatusReason))
	}
	valued := must[*cfn.DescribeChangeSetOutput](l)(l.cfn.DescribeChangeSet(l.ctx(), &cfn.DescribeChangeSetInput{
		ChangeSetName: cs.ChangeSetId, IncludePropertyValues: aws.Bool(true),
	}))
	var out []string
	for _, c := range valued.Changes {
		r := c.ResourceChange
		out = append(out, strings.Join(strings.Fields(fmt.Sprintf("%s %s %s %v", r.Action, *r.LogicalResourceId, r.Replacement, r.Scope)), " "))
		for _, d := range r.Details {
			out = append(out, "  "+showTarget(*d.Target)+fmt.Sprintf(" %s/%s/%s", d.Evaluation, d.ChangeSource, aws.ToString(d.CausingEntity)))
		}
		if r.BeforeContext != nil {
			out = append(out, "  before "+*r.BeforeContext)
		}
		if r.AfterContext != nil {
			out = append(out, "  after "+*r.AfterContext)
		}
	}
	return out
}

// showTarget returns the target of a detail as text; - stands for a value that is not set.
func showTarget(d types.ResourceTargetDefinition) string {
	text := func(v *string) string {
		if v == nil {
			return "-"
		}
		return fmt.Sprintf("%q", *v)
	}
	return fmt.Sprintf("%s.%s %s %s %s→%s", d.Attribute, aws.ToString(d.Name), d.AttributeChangeType, aws.ToString(d.Path), text(d.BeforeValue), text(d.AfterValue))
}

const topics = `
Parameters: {Text: {Type: String, Default: one}}
Resources:
  First: {Type: AWS::SSM::Parameter, Properties: {Name: /first, Type: String, Value: !Ref Text}}
  Second: {Type: AWS::SSM::Parameter, Properties: {Name: /second, Type: String, Value: !GetAtt First.Value}}
  Third: {Type: AWS::SSM::Parameter, Properties: {Name: /third, Type: String, Value: !Sub "ref ${First}"}}
`

// TestChangeSetWithPropertyValues: the answers follow LocalStack's recordings of AWS (test_change_set_*) and the examples
// in CloudFormation's user guide.
func TestChangeSetWithPropertyValues(t *testing.T) {
	t.Parallel()
	l := newLab(t)
	l.want(l.create("s", topics), "CREATE_COMPLETE")
	for i, c := range []struct {
		what, old, new string
		params         []string
		want           []string
	}{
		{"dependents of a resource that changes in place are not listed", "", "", []string{"Text", "two"}, []string{
			"Modify First False [Properties]",
			`  Properties.Value Modify /Properties/Value "one"→"two" Dynamic/DirectModification/`,
			`  Properties.Value Modify /Properties/Value "one"→"two" Static/ParameterReference/Text`,
			`  before {"Properties":{"Name":"/first","Type":"String","Value":"one"}}`,
			`  after {"Properties":{"Name":"/first","Type":"String","Value":"two"}}`,
		}},
		{"dependents of a replaced resource have values that are known later", "/first", "/1st", nil, []string{
			"Modify First True [Properties]",
			`  Properties.Name Modify /Properties/Name "/first"→"/1st" Static/DirectModification/`,
			`  before {"Properties":{"Name":"/first","Type":"String","Value":"one"}}`,
			`  after {"Properties":{"Name":"/1st","Type":"String","Value":"one"}}`,
			"Modify Second False [Properties]",
			`  Properties.Value Modify /Properties/Value "one"→"{{changeSet:KNOWN_AFTER_APPLY}}" Dynamic/DirectModification/`,
			`  Properties.Value Modify /Properties/Value "one"→"{{changeSet:KNOWN_AFTER_APPLY}}" Static/ResourceAttribute/First.Value`,
			`  before {"Properties":{"Name":"/second","Type":"String","Value":"one"}}`,
			`  after {"Properties":{"Name":"/second","Type":"String","Value":"{{changeSet:KNOWN_AFTER_APPLY}}"}}`,
			"Modify Third False [Properties]",
			`  Properties.Value Modify /Properties/Value "ref /first"→"ref {{changeSet:KNOWN_AFTER_APPLY}}" Dynamic/DirectModification/`,
			`  Properties.Value Modify /Properties/Value "ref /first"→"ref {{changeSet:KNOWN_AFTER_APPLY}}" Static/ResourceReference/First`,
			`  before {"Properties":{"Name":"/third","Type":"String","Value":"ref /first"}}`,
			`  after {"Properties":{"Name":"/third","Type":"String","Value":"ref {{changeSet:KNOWN_AFTER_APPLY}}"}}`,
		}},
		{"a new resource has a context and no replacement", "  Third: {", "  Other: {", nil, []string{
			"Add Other []",
			`  after {"Properties":{"Name":"/third","Type":"String","Value":"ref /first"}}`,
			"Remove Third []",
			`  before {"Properties":{"Name":"/third","Type":"String","Value":"ref /first"}}`,
		}},
		{"a property is added", "Name: /second, Type: String,", "Name: /second, Type: String, Description: d,", nil, []string{
			"Modify Second False [Properties]",
			`  Properties.Description Add /Properties/Description -→"d" Static/DirectModification/`,
			`  before {"Properties":{"Name":"/second","Type":"String","Value":"one"}}`,
			`  after {"Properties":{"Description":"d","Name":"/second","Type":"String","Value":"one"}}`,
		}},
	} {
		body := strings.Replace(topics, c.old, c.new, 1)
		got := l.proposeWithValues(&cfn.CreateChangeSetInput{
			StackName: aws.String("s"), TemplateBody: &body, ChangeSetName: aws.String(fmt.Sprint("c", i)), Parameters: params(c.params...),
		})
		if diff := cmp.Diff(c.want, got); diff != "" {
			t.Errorf("%s (-want +got):\n%s", c.what, diff)
		}
	}
}

// TestChangeSetOfParts: each changed part of a property has a detail, tags have their own attribute, and contexts contain
// the policies.
func TestChangeSetOfParts(t *testing.T) {
	t.Parallel()
	l := newLab(t)
	const body = `
Resources:
  Volume:
    Type: AWS::EC2::Volume
    DeletionPolicy: Retain
    Properties: {AvailabilityZone: us-east-1a, Size: 1, Tags: [{Key: Purpose, Value: testing}]}
  Template:
    Type: AWS::EC2::LaunchTemplate
    Properties: {LaunchTemplateData: {ImageId: ami-0123456789abcdef0, InstanceType: t3.medium, SecurityGroupIds: [sg-1, sg-2]}}
`
	l.want(l.create("s", body), "CREATE_COMPLETE")
	changed := strings.NewReplacer(
		"Value: testing}]", "Value: Test}, {Key: Test, Value: Test}]", "Size: 1", "Size: 2",
		"InstanceType: t3.medium, SecurityGroupIds: [sg-1, sg-2]", "InstanceType: t3.large, SecurityGroupIds: [sg-1], EbsOptimized: true",
	).Replace(body)
	got := l.proposeWithValues(&cfn.CreateChangeSetInput{StackName: aws.String("s"), TemplateBody: &changed})
	if diff := cmp.Diff([]string{
		"Modify Template False [Properties]",
		`  Properties.LaunchTemplateData Add /Properties/LaunchTemplateData/EbsOptimized -→"true" Static/DirectModification/`,
		`  Properties.LaunchTemplateData Modify /Properties/LaunchTemplateData/InstanceType "t3.medium"→"t3.large" Static/DirectModification/`,
		`  Properties.LaunchTemplateData Remove /Properties/LaunchTemplateData/SecurityGroupIds/1 "sg-2"→- Static/DirectModification/`,
		`  before {"Properties":{"LaunchTemplateData":{"ImageId":"ami-0123456789abcdef0","InstanceType":"t3.medium","SecurityGroupIds":["sg-1","sg-2"]}}}`,
		`  after {"Properties":{"LaunchTemplateData":{"EbsOptimized":true,"ImageId":"ami-0123456789abcdef0","InstanceType":"t3.large","SecurityGroupIds":["sg-1"]}}}`,
		"Modify Volume False [Properties Tags]",
		`  Properties.Size Modify /Properties/Size "1"→"2" Static/DirectModification/`,
		`  Tags. Modify /Properties/Tags/0/Value "testing"→"Test" Static/DirectModification/`,
		`  Tags. Add /Properties/Tags/1 -→"{\"Key\":\"Test\",\"Value\":\"Test\"}" Static/DirectModification/`,
		`  before {"DeletionPolicy":"Retain","Properties":{"AvailabilityZone":"us-east-1a","Size":1,"Tags":[{"Key":"Purpose","Value":"testing"}]}}`,
		`  after {"DeletionPolicy":"Retain","Properties":{"AvailabilityZone":"us-east-1a","Size":2,"Tags":[{"Key":"Purpose","Value":"Test"},{"Key":"Test","Value":"Test"}]}}`,
	}, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

// TestChangeSetOfANewStackWithPropertyValues: references to resources that do not exist yet are not known.
func TestChangeSetOfANewStackWithPropertyValues(t *testing.T) {
	t.Parallel()
	l := newLab(t)
	got := l.proposeWithValues(&cfn.CreateChangeSetInput{
		StackName: aws.String("new"), TemplateBody: aws.String(topics), ChangeSetType: types.ChangeSetTypeCreate,
	})
	if diff := cmp.Diff([]string{
		"Add First []",
		`  after {"Properties":{"Name":"/first","Type":"String","Value":"one"}}`,
		"Add Second []",
		`  after {"Properties":{"Name":"/second","Type":"String","Value":"{{changeSet:KNOWN_AFTER_APPLY}}"}}`,
		"Add Third []",
		`  after {"Properties":{"Name":"/third","Type":"String","Value":"ref {{changeSet:KNOWN_AFTER_APPLY}}"}}`,
	}, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

// TestChangeSetOfAttributes: the other attributes of a resource change in parts with paths and values as well, and the
// contexts contain the metadata.
func TestChangeSetOfAttributes(t *testing.T) {
	t.Parallel()
	l := newLab(t)
	const body = `
Resources:
  First:
    Type: AWS::SSM::Parameter
    Metadata: {"aws:asset:path": asset.1, Kept: [a]}
    DeletionPolicy: Delete
    Properties: {Name: /first, Type: String, Value: one}
  Group:
    Type: AWS::SSM::Parameter
    Properties: {Name: /group, Type: String, Value: two}
`
	l.want(l.create("s", body), "CREATE_COMPLETE")
	changed := strings.NewReplacer(
		"asset.1", "asset.2", "DeletionPolicy: Delete", "DeletionPolicy: Retain\n    UpdateReplacePolicy: Retain",
		"  Group:\n    Type: AWS::SSM::Parameter\n", "  Group:\n    Type: AWS::SSM::Parameter\n    Metadata: {Owner: [team]}\n",
	).Replace(body)
	in := &cfn.CreateChangeSetInput{StackName: aws.String("s"), TemplateBody: &changed, ChangeSetName: aws.String("values")}
	if diff := cmp.Diff([]string{
		"Modify First False [Metadata DeletionPolicy UpdateReplacePolicy]",
		`  Metadata. Modify /Metadata/aws:asset:path "asset.1"→"asset.2" Static/DirectModification/`,
		`  DeletionPolicy. Modify /DeletionPolicy "Delete"→"Retain" Static/DirectModification/`,
		`  UpdateReplacePolicy. Add /UpdateReplacePolicy -→"Retain" Static/DirectModification/`,
		`  before {"DeletionPolicy":"Delete","Metadata":{"Kept":["a"],"aws:asset:path":"asset.1"},"Properties":{"Name":"/first","Type":"String","Value":"one"}}`,
		`  after {"DeletionPolicy":"Retain","Metadata":{"Kept":["a"],"aws:asset:path":"asset.2"},"Properties":{"Name":"/first","Type":"String","Value":"one"},"UpdateReplacePolicy":"Retain"}`,
		"Modify Group False [Metadata]",
		`  Metadata. Add /Metadata -→"{\"Owner\":[\"team\"]}" Static/DirectModification/`,
		`  before {"Properties":{"Name":"/group","Type":"String","Value":"two"}}`,
		`  after {"Metadata":{"Owner":["team"]},"Properties":{"Name":"/group","Type":"String","Value":"two"}}`,
	}, l.proposeWithValues(in)); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}
