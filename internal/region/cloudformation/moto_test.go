// SPDX-License-Identifier: Apache-2.0

package cloudformation_test

import (
	"slices"
	"strings"
	"testing"

	sdk "github.com/aws/aws-sdk-go-v2/aws"
	cfn "github.com/aws/aws-sdk-go-v2/service/cloudformation"
	"github.com/aws/aws-sdk-go-v2/service/cloudformation/types"
	"github.com/aws/aws-sdk-go-v2/service/ec2"
	"github.com/google/go-cmp/cmp"

	"github.com/slipway-k8s/slipway/test/moto"
)

// seen is what a stack looks like from outside: ids are cut to their kind.
type seen struct {
	Status    string
	Outputs   []string
	Resources []string
	Gone      string
}

// kindOf cuts an id to what it is the id of.
func kindOf(id string) string {
	for _, prefix := range []string{"vpc-", "subnet-", "sg-", "igw-", "rtb-", "rtbassoc-", "lt-", "vol-", "nat-"} {
		if strings.HasPrefix(id, prefix) {
			return prefix
		}
	}
	return id
}

// look makes a stack, sees what it became, and deletes it.
func look(l *lab, stack, body string, c []string) seen {
	l.t.Helper()
	l.begin(stack, body, c...)
	st := l.settle(stack)
	out := seen{Status: string(st.StackStatus)}
	for _, o := range st.Outputs {
		out.Outputs = append(out.Outputs, *o.OutputKey+"="+kindOf(*o.OutputValue)+" "+sdk.ToString(o.ExportName))
	}
	for name, r := range l.resources(stack) {
		out.Resources = append(out.Resources, name+" "+*r.ResourceType+" "+kindOf(sdk.ToString(r.PhysicalResourceId))+" "+string(r.ResourceStatus))
	}
	slices.Sort(out.Outputs)
	slices.Sort(out.Resources)
	if _, err := l.cfn.DeleteStack(l.ctx(), &cfn.DeleteStackInput{StackName: &stack}); err == nil {
		out.Gone = string(l.settle(*st.StackId).StackStatus)
	}
	return out
}

// Moto and the region are told the same and answer the same.
func TestMotoAgrees(t *testing.T) {
	m := moto.Start(t)
	for name, c := range map[string]struct {
		body   string
		params []string
	}{
		"a VPC": {`
Resources:
  Vpc: {Type: AWS::EC2::VPC, Properties: {CidrBlock: 10.0.0.0/16, Tags: [{Key: Name, Value: !Ref "AWS::StackName"}]}}
  Igw: {Type: AWS::EC2::InternetGateway}
  Table: {Type: AWS::EC2::RouteTable, Properties: {VpcId: !Ref Vpc}}
Outputs:
  Vpc: {Value: !Ref Vpc}
  Cidr: {Value: !GetAtt Vpc.CidrBlock}
`, nil},
		"functions": {`
Parameters: {Name: {Type: String, Default: web}, Env: {Type: String, AllowedValues: [a, b]}}
Mappings: {M: {a: {Cidr: 10.1.0.0/16}, b: {Cidr: 10.2.0.0/16}}}
Conditions: {IsB: !Equals [!Ref Env, b], IsA: !Not [{Condition: IsB}]}
Resources:
  Vpc: {Type: AWS::EC2::VPC, Properties: {CidrBlock: !FindInMap [M, !Ref Env, Cidr]}}
  Only: {Type: AWS::EC2::InternetGateway, Condition: IsA}
  Subnet: {Type: AWS::EC2::Subnet, Properties: {VpcId: !Ref Vpc, CidrBlock: !Join ["", [10.2., "1.0/24"]], AvailabilityZone: !Select [0, !GetAZs ""]}}
Outputs:
  Sub: {Value: !Sub "${Name}-${AWS::Region}-${!x}"}
  Split: {Value: !Select [1, !Split [",", "x,y"]]}
  If: {Value: !If [IsB, yes-b, no-b]}
  Base: {Value: !Base64 hello, Export: {Name: !Sub "${AWS::StackName}-base"}}
  Hidden: {Condition: IsA, Value: x}
`, []string{"Env", "b"}},
		"groups and templates": {`
Resources:
  Vpc: {Type: AWS::EC2::VPC, Properties: {CidrBlock: 10.0.0.0/16}}
  Sg: {Type: AWS::EC2::SecurityGroup, Properties: {GroupDescription: d, VpcId: !Ref Vpc, SecurityGroupIngress: [{IpProtocol: tcp, FromPort: 22, ToPort: 22, CidrIp: 10.0.0.0/8}]}}
  Template: {Type: AWS::EC2::LaunchTemplate, Properties: {LaunchTemplateName: one, LaunchTemplateData: {InstanceType: t3.micro}}}
  Volume: {Type: AWS::EC2::Volume, Properties: {AvailabilityZone: us-east-1a, Size: 4}}
Outputs:
  Sg: {Value: !GetAtt Sg.GroupId}
  Latest: {Value: !GetAtt Template.LatestVersionNumber}
`, nil},
		"roles": {`
Resources:
  Role:
    Type: AWS::IAM::Role
    Properties: {RoleName: r, Path: /p/, AssumeRolePolicyDocument: {Version: "2012-10-17", Statement: [{Effect: Allow, Principal: {Service: ec2.amazonaws.com}, Action: "sts:AssumeRole"}]}}
  Profile: {Type: AWS::IAM::InstanceProfile, Properties: {InstanceProfileName: p, Path: /p/, Roles: [!Ref Role]}}
Outputs: {Arn: {Value: !Join ["", [!GetAtt Role.Arn]]}, Profile: {Value: !Ref Profile}}
`, nil},
	} {
		stack := strings.ReplaceAll(name, " ", "-")
		ours := look(newLab(t), stack, c.body, c.params)
		if ours.Status != string(types.StackStatusCreateComplete) || ours.Gone != string(types.StackStatusDeleteComplete) {
			t.Errorf("%s: %s, %s", name, ours.Status, ours.Gone)
		}
		theirs := look(&lab{t: t, cfn: cfn.NewFromConfig(m), ec2: ec2.NewFromConfig(m)}, stack, c.body, c.params)
		if theirs.Gone == "" {
			// Moto deletes at once and in no order: a VPC before its groups it refuses.
			t.Logf("%s: moto does not judge the deletion", name)
			ours.Gone = ""
		}
		if diff := cmp.Diff(theirs, ours); diff != "" {
			t.Errorf("%s (-moto +region):\n%s", name, diff)
		}
	}
}
