// SPDX-License-Identifier: Apache-2.0

package iampolicy

// ExistingResources are resources of others that the manifests of a cluster name. They do not have the cluster's tag, so the
// policies name each by its id.
type ExistingResources struct {
	// VPC is the id of the VPC that the cluster is in. Empty: Slipway creates one.
	VPC string
	// Subnets lists the ids of the subnets of machines, load balancers and endpoints, and PublicSubnets those of them that
	// NAT gateways can be in.
	Subnets, PublicSubnets []string
	// SecurityGroups lists the ids of the machines' security groups.
	SecurityGroups []string
	// Addresses lists the ids of the elastic IP addresses of NAT gateways.
	Addresses []string
	// Profiles lists the ARNs of the machines' instance profiles, and ProfileRoles the ARNs of their roles.
	Profiles, ProfileRoles []string
	// ManagedPolicies lists the ARNs of the managed policies of the cluster's roles.
	ManagedPolicies []string
}

// existingReadStatements allows a plan to read instance profiles of others.
func (s policyBuilder) existingReadStatements() []Statement {
	return statementFor("ReadExistingProfiles", qualifyActions("iam", "GetInstanceProfile"), s.Existing.Profiles, nil)
}

// existingStatements allows creating resources in a VPC and in subnets of others, and launching machines with their
// security groups and roles. It allows no change of them.
func (s policyBuilder) existingStatements() []Statement {
	var out []Statement
	add := func(list []Statement) { out = append(out, list...) }

	if s.Existing.VPC != "" {
		actions := []string{"CreateRouteTable", "CreateSecurityGroup", "CreateSubnet"}
		if s.HasEndpoints {
			actions = append(actions, "CreateVpcEndpoint")
		}

		if len(s.PeerVPCs) > 0 {
			actions = append(actions, "CreateVpcPeeringConnection")
		}

		add(statementFor(
			"CreateInExistingVPC",
			qualifyActions("ec2", actions...),
			s.arnsByID("vpc/", []string{s.Existing.VPC}),
			nil,
		))
	}

	subnets := []string{"RunInstances"}
	if s.HasEndpoints {
		subnets = append(subnets, "CreateVpcEndpoint", "ModifyVpcEndpoint")
	}

	add(statementFor(
		"UseExistingSubnets",
		qualifyActions("ec2", subnets...),
		s.arnsByID("subnet/", s.Existing.Subnets),
		nil,
	))
	add(statementFor(
		"CreateExistingNATs",
		qualifyActions("ec2", "CreateNatGateway"),
		append(
			s.arnsByID("subnet/", s.Existing.PublicSubnets),
			s.arnsByID("elastic-ip/", s.Existing.Addresses)...),
		nil,
	))
	add(statementFor(
		"UseExistingGroups",
		qualifyActions("ec2", "RunInstances"),
		s.arnsByID("security-group/", s.Existing.SecurityGroups),
		nil,
	))
	add(statementFor(
		"PassExistingRoles",
		qualifyActions("iam", "PassRole"),
		s.Existing.ProfileRoles,
		stringEquals("iam:PassedToService", "ec2."+s.dnsSuffix()),
	))

	return append(out, s.managedPolicyStatements()...)
}

// managedPolicyStatements allows attaching the managed policies in the manifests to roles of the cluster that have the
// boundary, which limits these policies too.
func (s policyBuilder) managedPolicyStatements() []Statement {
	c := stringEquals("iam:PermissionsBoundary", s.Boundary)
	c["ArnEquals"] = map[string][]string{"iam:PolicyARN": s.Existing.ManagedPolicies}
	if len(s.Existing.ManagedPolicies) == 0 {
		return nil
	}

	return []Statement{
		newStatement(
			"AttachPolicies",
			qualifyActions("iam", "AttachRolePolicy"),
			[]string{s.iamARN("role")},
			c,
		),
	}
}

// statementFor returns a statement about resources, or none if there are no resources.
func statementFor(sid string, actions, resources []string, c condition) []Statement {
	if len(resources) == 0 {
		return nil
	}

	return []Statement{newStatement(sid, actions, resources, c)}
}
