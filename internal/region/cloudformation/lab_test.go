// SPDX-License-Identifier: Apache-2.0

package cloudformation_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	cfn "github.com/aws/aws-sdk-go-v2/service/cloudformation"
	"github.com/aws/aws-sdk-go-v2/service/cloudformation/types"
	"github.com/aws/aws-sdk-go-v2/service/ec2"
	ec2types "github.com/aws/aws-sdk-go-v2/service/ec2/types"
	"github.com/aws/smithy-go"

	"github.com/slipway-k8s/slipway/internal/region/regiontest"
)

// lab is a region and its clients.
type lab struct {
	t      *testing.T
	region regiontest.Region
	cfn    *cfn.Client
	ec2    *ec2.Client
}

func newLab(t *testing.T) *lab {
	t.Helper()
	r := regiontest.StartWith(t, regiontest.Options{NoDefaultVPC: true, DeleteRetryTimeout: 3 * time.Second})
	return labOf(t, r)
}

func labOf(t *testing.T, r regiontest.Region) *lab {
	t.Helper()
	return &lab{t: t, region: r, cfn: cfn.NewFromConfig(r.AWSConfig()), ec2: ec2.NewFromConfig(r.AWSConfig())}
}

func (l *lab) ctx() context.Context { return l.t.Context() }

// must fails the test on an error.
func must[T any](l *lab) func(T, error) T {
	l.t.Helper()
	return func(v T, err error) T {
		l.t.Helper()
		if err != nil {
			l.t.Fatal(err)
		}
		return v
	}
}

// refused is an error's code and message; empty for nil.
func refused(err error) string {
	if e, ok := errors.AsType[smithy.APIError](err); ok {
		return e.ErrorCode() + ": " + e.ErrorMessage()
	}
	if err != nil {
		return err.Error()
	}
	return ""
}

func allCapabilities() []types.Capability {
	return []types.Capability{types.CapabilityCapabilityNamedIam}
}

func params(pairs ...string) []types.Parameter {
	var out []types.Parameter
	for i := 0; i < len(pairs); i += 2 {
		out = append(out, types.Parameter{ParameterKey: &pairs[i], ParameterValue: &pairs[i+1]})
	}
	return out
}

// create makes a stack and waits for the end.
func (l *lab) create(name, body string) types.Stack {
	l.t.Helper()
	l.begin(name, body)
	return l.settle(name)
}

// begin makes a stack without waiting.
func (l *lab) begin(name, body string, pairs ...string) {
	l.t.Helper()
	must[*cfn.CreateStackOutput](l)(l.cfn.CreateStack(l.ctx(), &cfn.CreateStackInput{
		StackName: &name, TemplateBody: &body, Capabilities: allCapabilities(), Parameters: params(pairs...),
	}))
}

// change updates a stack without waiting.
func (l *lab) change(name, body string, pairs ...string) {
	l.t.Helper()
	must[*cfn.UpdateStackOutput](l)(l.cfn.UpdateStack(l.ctx(), &cfn.UpdateStackInput{
		StackName: &name, TemplateBody: &body, Capabilities: allCapabilities(), Parameters: params(pairs...),
	}))
}

// update updates a stack and waits for the end.
func (l *lab) update(name, body string, pairs ...string) types.Stack {
	l.t.Helper()
	l.change(name, body, pairs...)
	return l.settle(name)
}

// remove deletes a stack and waits for the end. It returns what is left of it.
func (l *lab) remove(name string) types.Stack {
	l.t.Helper()
	id := *l.describe(name).StackId
	must[*cfn.DeleteStackOutput](l)(l.cfn.DeleteStack(l.ctx(), &cfn.DeleteStackInput{StackName: &name}))
	return l.settle(id)
}

func (l *lab) describe(name string) types.Stack {
	l.t.Helper()
	return must[*cfn.DescribeStacksOutput](l)(l.cfn.DescribeStacks(l.ctx(), &cfn.DescribeStacksInput{StackName: &name})).Stacks[0]
}

// until waits for a condition.
func (l *lab) until(what string, ok func() bool) {
	l.t.Helper()
	for range 6000 {
		if ok() {
			return
		}
		select {
		case <-l.ctx().Done():
		case <-time.After(20 * time.Millisecond):
		}
	}
	l.t.Fatalf("waited in vain until %s", what)
}

func (l *lab) settle(name string) types.Stack {
	l.t.Helper()
	var st types.Stack
	l.until("nothing is under way in "+name, func() bool {
		st = l.describe(name)
		return !strings.HasSuffix(string(st.StackStatus), "_IN_PROGRESS")
	})
	return st
}

// want fails unless the stack has that status.
func (l *lab) want(st types.Stack, status string) {
	l.t.Helper()
	if string(st.StackStatus) != status {
		l.t.Fatalf("%s is %s, want %s: %s\n%s", *st.StackName, st.StackStatus, status, aws.ToString(st.StackStatusReason), strings.Join(l.events(*st.StackId), "\n"))
	}
}

// events are a stack's events, oldest first, as "STATUS Logical reason".
func (l *lab) events(name string) []string {
	l.t.Helper()
	var out []string
	p := cfn.NewDescribeStackEventsPaginator(l.cfn, &cfn.DescribeStackEventsInput{StackName: &name})
	for p.HasMorePages() {
		page := must[*cfn.DescribeStackEventsOutput](l)(p.NextPage(l.ctx()))
		for _, e := range page.StackEvents {
			out = append(out, strings.TrimSpace(fmt.Sprintf("%s %s %s", e.ResourceStatus, *e.LogicalResourceId, aws.ToString(e.ResourceStatusReason))))
		}
	}
	slices.Reverse(out)
	return out
}

// told fails unless an event begins with the text.
func (l *lab) told(name, text string) {
	l.t.Helper()
	events := l.events(name)
	if !slices.ContainsFunc(events, func(e string) bool { return strings.HasPrefix(e, text) }) {
		l.t.Errorf("no event begins with %q:\n%s", text, strings.Join(events, "\n"))
	}
}

// resources are a stack's resources: "TYPE STATUS" by logical id.
func (l *lab) resources(name string) map[string]types.StackResource {
	l.t.Helper()
	out := map[string]types.StackResource{}
	for _, r := range must[*cfn.DescribeStackResourcesOutput](l)(l.cfn.DescribeStackResources(l.ctx(), &cfn.DescribeStackResourcesInput{StackName: &name})).StackResources {
		if r.LogicalResourceId != nil { // moto lists what a condition leaves out, without a name
			out[*r.LogicalResourceId] = r
		}
	}
	return out
}

func (l *lab) physical(name, logical string) string {
	l.t.Helper()
	return aws.ToString(l.resources(name)[logical].PhysicalResourceId)
}

func (l *lab) output(st types.Stack, key string) string {
	l.t.Helper()
	for _, o := range st.Outputs {
		if *o.OutputKey == key {
			return *o.OutputValue
		}
	}
	l.t.Errorf("no output %s", key)
	return ""
}

// network is a template with a VPC, a subnet and a security group.
const network = `
Parameters:
  Cidr: {Type: String, Default: 10.0.0.0/16}
  Group: {Type: String, Default: first}
  Enough: {Type: String, Default: "no"}
Conditions:
  More: !Equals [!Ref Enough, "yes"]
Resources:
  Vpc:
    Type: AWS::EC2::VPC
    Properties:
      CidrBlock: !Ref Cidr
      EnableDnsHostnames: true
      Tags: [{Key: Name, Value: !Sub "${AWS::StackName}-vpc"}]
  Subnet:
    Type: AWS::EC2::Subnet
    Properties:
      VpcId: !Ref Vpc
      CidrBlock: !Select [0, !Cidr [!GetAtt Vpc.CidrBlock, 4, 8]]
      AvailabilityZone: !Select [0, !GetAZs ""]
  Second:
    Type: AWS::EC2::Subnet
    Condition: More
    Properties:
      VpcId: !Ref Vpc
      CidrBlock: !Select [1, !Cidr [!GetAtt Vpc.CidrBlock, 4, 8]]
  Sg:
    Type: AWS::EC2::SecurityGroup
    Properties:
      GroupDescription: !Ref Group
      VpcId: !Ref Vpc
  Rule:
    Type: AWS::EC2::SecurityGroupIngress
    Properties: {GroupId: !GetAtt Sg.GroupId, IpProtocol: tcp, FromPort: 22, ToPort: "22", SourceSecurityGroupId: !Ref Sg}
Outputs:
  Vpc: {Value: !Ref Vpc, Export: {Name: !Sub "${AWS::StackName}-Vpc"}}
  Cidr: {Value: !GetAtt Subnet.CidrBlock}
`

func (l *lab) instance(id string) ec2types.Instance {
	l.t.Helper()
	return must[*ec2.DescribeInstancesOutput](l)(l.ec2.DescribeInstances(l.ctx(), &ec2.DescribeInstancesInput{InstanceIds: []string{id}})).Reservations[0].Instances[0]
}

func (l *lab) instanceType(id string) string { return string(l.instance(id).InstanceType) }

func (l *lab) tags(id string) map[string]string {
	out := map[string]string{}
	for _, t := range l.instance(id).Tags {
		out[*t.Key] = *t.Value
	}
	return out
}
