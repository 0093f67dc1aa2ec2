// SPDX-License-Identifier: Apache-2.0

package cloudformation_test

import (
	"strings"
	"testing"

	"github.com/aws/aws-sdk-go-v2/aws"
	cfn "github.com/aws/aws-sdk-go-v2/service/cloudformation"
)

const conditional = `
Parameters: {Make: {Type: String}}
Conditions: {Made: !Equals [!Ref Make, yes]}
Resources:
  Vpc: {Type: AWS::EC2::VPC, Condition: Made, Properties: {CidrBlock: 10.0.0.0/16}}
  Gateway: {Type: AWS::EC2::InternetGateway}
`

// TestReferencesToDisabledResources: a stack whose outputs or resources refer to a resource whose condition is false
// is refused at once, as moto's tests that are verified against AWS record.
func TestReferencesToDisabledResources(t *testing.T) {
	l := newLab(t)
	const (
		output   = "ValidationError: Unresolved resource dependencies [Vpc] in the Outputs block of the template"
		resource = "ValidationError: Unresolved resource dependencies [Vpc] in the Resources block of the template"
		subnet   = "  Subnet: {Type: AWS::EC2::Subnet, Properties: {CidrBlock: 10.0.0.0/24, VpcId: !Ref Vpc}}\n"
	)

	for name, x := range map[string]struct {
		more string
		want string
	}{
		"output":      {"Outputs: {Id: {Value: !Ref Vpc}}", output},
		"attribute":   {"Outputs: {Id: {Value: !GetAtt Vpc.CidrBlock}}", output},
		"conditional": {"Outputs: {Id: {Condition: Made, Value: !Ref Vpc}}", ""},
		"branch":      {"Outputs: {Id: {Value: !If [Made, !Ref Vpc, none]}}", ""},
		"both":        {"Outputs: {Id: {Value: !If [Made, none, !Sub '${Vpc}']}}", output},
		"resource":    {subnet, resource},
		"depends":     {"  Other: {Type: AWS::EC2::InternetGateway, DependsOn: Vpc}", ""},
	} {
		body := conditional + x.more
		_, err := l.cfn.CreateStack(l.ctx(), &cfn.CreateStackInput{
			StackName: aws.String("no-" + name), TemplateBody: &body, Parameters: params("Make", "no"),
		})
		if got := refused(err); got != x.want {
			t.Errorf("%s:\n got %q\nwant %q", name, got, x.want)
		}

		_, err = l.cfn.CreateStack(l.ctx(), &cfn.CreateStackInput{
			StackName: aws.String("yes-" + name), TemplateBody: &body, Parameters: params("Make", "yes"),
		})
		if err != nil && !strings.Contains(err.Error(), "VpcLimitExceeded") {
			t.Errorf("%s with the resource: %v", name, err)
		}
	}
}
