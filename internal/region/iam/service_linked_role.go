// SPDX-License-Identifier: Apache-2.0

package iam

import (
	"strings"

	"github.com/aws/aws-sdk-go/service/iam"
)

// linkedService is a service of AWS that has a service-linked role.
type linkedService struct {
	suffix string // of the role's name, after AWSServiceRoleFor
	policy string // the name of the role's policy, which AWS manages
	custom bool   // the role's name may have a suffix of the client
}

// linkedServices returns the services with service-linked roles that clusters meet, by their principal. The names
// and the services that take a suffix are those that AWS answered to LocalStack's tests
// (test_service_role_lifecycle), and the policies as well, or are in the AWS Managed Policy Reference Guide.
func linkedServices() map[string]linkedService {
	return map[string]linkedService{
		"autoscaling.amazonaws.com": {
			suffix: "AutoScaling",
			policy: "AutoScalingServiceRolePolicy",
			custom: true,
		},
		"ec2scheduled.amazonaws.com": {
			suffix: "EC2ScheduledInstances",
			policy: "AWSServiceRoleForEC2ScheduledInstances",
		},
		"ecs.amazonaws.com": {
			suffix: "ECS",
			policy: "AmazonECSServiceRolePolicy",
		},
		"eks.amazonaws.com": {
			suffix: "AmazonEKS",
			policy: "AmazonEKSServiceRolePolicy",
		},
		"eks-fargate.amazonaws.com": {
			suffix: "AmazonEKSForFargate",
			policy: "AmazonEKSForFargateServiceRolePolicy",
		},
		"eks-nodegroup.amazonaws.com": {
			suffix: "AmazonEKSNodegroup",
			policy: "AWSServiceRoleForAmazonEKSNodegroup",
		},
		"elasticfilesystem.amazonaws.com": {
			suffix: "AmazonElasticFileSystem",
			policy: "AmazonElasticFileSystemServiceRolePolicy",
		},
		"elasticloadbalancing.amazonaws.com": {
			suffix: "ElasticLoadBalancing",
			policy: "AWSElasticLoadBalancingServiceRolePolicy",
		},
		"spot.amazonaws.com": {
			suffix: "EC2Spot",
			policy: "AWSEC2SpotServiceRolePolicy",
		},
		"spotfleet.amazonaws.com": {
			suffix: "EC2SpotFleet",
			policy: "AWSEC2SpotFleetServiceRolePolicy",
		},
		"ssm.amazonaws.com": {
			suffix: "AmazonSSM",
			policy: "AmazonSSMServiceRolePolicy",
		},
		"transitgateway.amazonaws.com": {
			suffix: "VPCTransitGateway",
			policy: "AWSVPCTransitGatewayServiceRolePolicy",
		},
	}
}

// policyARN returns the ARN of the policy of a service's role.
func (l linkedService) policyARN() string {
	return "arn:aws:iam::aws:policy" + serviceLinkedPath + l.policy
}

// serviceLinkedPath is the beginning of the paths of service-linked roles, and the path of their policies.
const serviceLinkedPath = "/aws-service-role/"

// findModifiableRole is [serviceState.findRole] for the operations that change or delete a role: only AWS changes
// service-linked roles.
func (st *serviceState) findModifiableRole(name string) (*role, error) {
	r, err := st.findRole(name)
	if err == nil && strings.HasPrefix(r.Path, serviceLinkedPath) {
		return nil, newErrorf(
			codeUnmodifiableEntity,
			"Cannot perform the operation on the protected role '%s' - this role is only modifiable by AWS",
			name,
		)
	}

	return r, err
}

func (s *IAM) createServiceLinkedRole(
	in *iam.CreateServiceLinkedRoleInput,
) (*iam.CreateServiceLinkedRoleOutput, error) {
	service := *in.AWSServiceName
	linked, ok := linkedServices()[service]
	if !ok {
		return nil, newValidationError("Service Name %s is not valid", service)
	}

	name := "AWSServiceRoleFor" + linked.suffix
	if in.CustomSuffix != nil {
		if !linked.custom {
			return nil, newErrorf(codeInvalidInput, "Custom suffix is not allowed for %s", service)
		}

		name += "_" + *in.CustomSuffix
	}

	if s.st.hasRole(name) {
		return nil, newErrorf(
			codeInvalidInput,
			"Service role name %s has been taken in this account, please try a different suffix.",
			name,
		)
	}

	id, err := newUniqueID(s.cfg.Rand, "AROA", 21)
	if err != nil {
		return nil, err
	}

	r := &role{
		Trust: `{"Version":"2012-10-17","Statement":[{"Effect":"Allow",` +
			`"Principal":{"Service":"` + service + `"},"Action":"sts:AssumeRole"}]}`,
		Description: stringValue(in.Description),
		MaxSession:  defaultSessionSeconds,
	}
	r.Name = name
	r.ID = id
	r.Path = serviceLinkedPath + service + "/"
	r.Attached = []string{linked.policyARN()}
	r.Created = s.cfg.Now().UTC()
	s.st.Roles[name] = r
	s.stale.track(kindRole, name)

	return &iam.CreateServiceLinkedRoleOutput{Role: r.toRole(s)}, nil
}
