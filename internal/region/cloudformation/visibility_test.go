// SPDX-License-Identifier: Apache-2.0

package cloudformation_test

import "testing"

// youngRole is a stack whose resources use each other as soon as they exist: a role with policies, its instance profile, a launch
// template with it, and a machine.
const youngRole = `
Parameters:
  Team: {Type: String, Default: a}
Resources:
  Policy:
    Type: AWS::IAM::ManagedPolicy
    Properties:
      PolicyDocument:
        Version: "2012-10-17"
        Statement: [{Effect: Allow, Action: "ec2:DescribeVpcs", Resource: "*"}]
  Role:
    Type: AWS::IAM::Role
    Properties:
      RoleName: young
      ManagedPolicyArns: [!Ref Policy]
      AssumeRolePolicyDocument:
        Version: "2012-10-17"
        Statement: [{Effect: Allow, Action: "sts:AssumeRole", Principal: {Service: ec2.amazonaws.com}}]
      Tags: [{Key: team, Value: !Ref Team}]
  Inline:
    Type: AWS::IAM::RolePolicy
    Properties:
      RoleName: !Ref Role
      PolicyName: inline
      PolicyDocument:
        Version: "2012-10-17"
        Statement: [{Effect: Allow, Action: "ec2:DescribeSubnets", Resource: "*"}]
  Profile:
    Type: AWS::IAM::InstanceProfile
    Properties:
      InstanceProfileName: young
      Roles: [!Ref Role]
  VPC:
    Type: AWS::EC2::VPC
    Properties: {CidrBlock: 10.0.0.0/16}
  Subnet:
    Type: AWS::EC2::Subnet
    Properties: {VpcId: !Ref VPC, CidrBlock: 10.0.0.0/24, Tags: [{Key: team, Value: !Ref Team}]}
  Machine:
    Type: AWS::EC2::Instance
    Properties:
      ImageId: ami-0123456789abcdef0
      InstanceType: t3.large
      SubnetId: !Ref Subnet
      IamInstanceProfile: !Ref Profile
`

// CloudFormation waits until the services see what its stack has created.
func TestStackWaitsUntilItsResourcesAreSeen(t *testing.T) {
	t.Parallel()
	l := newLab(t)
	l.region.DelayVisibility(3)
	l.want(l.create("young", youngRole), "CREATE_COMPLETE")
	l.want(l.update("young", youngRole, "Team", "b"), "UPDATE_COMPLETE")
	l.want(l.remove("young"), "DELETE_COMPLETE")
}

// What does not exist is an error after a while.
func TestStackEndsIfAResourceIsNeverSeen(t *testing.T) {
	t.Parallel()
	l := newLab(t)
	l.want(l.create("none", `
Resources:
  Profile:
    Type: AWS::IAM::InstanceProfile
    Properties: {Roles: [nobody]}
`), "ROLLBACK_COMPLETE")
}
