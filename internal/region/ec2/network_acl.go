// SPDX-License-Identifier: Apache-2.0

package ec2

import (
	sdk "github.com/aws/aws-sdk-go/service/ec2"
)

func (s vpcHandlers) describeNetworkACLs(
	in *sdk.DescribeNetworkAclsInput,
) (*sdk.DescribeNetworkAclsOutput, error) {
	for id, a := range s.st.ACLs {
		a.Associations = nil
		for _, n := range sortedKeys(s.st.Subnets) {
			if str(s.st.Subnets[n].VpcId) == str(a.VpcId) {
				a.Associations = append(a.Associations, &sdk.NetworkAclAssociation{
					NetworkAclAssociationId: new("aclassoc-" + n[len("subnet-"):]),
					NetworkAclId:            new(id),
					SubnetId:                new(n),
				})
			}
		}
	}

	field := func(a *sdk.NetworkAcl, name string) ([]string, bool) {
		switch name {
		case "network-acl-id":
			return []string{str(a.NetworkAclId)}, true
		case "vpc-id":
			return []string{str(a.VpcId)}, true
		case "default":
			return []string{boolText(a.IsDefault)}, true
		case "association.subnet-id":
			var out []string
			for _, x := range a.Associations {
				out = append(out, str(x.SubnetId))
			}

			return out, true
		}

		return nil, false
	}

	got, next, err := listResources(
		s.Service,
		s.st.ACLs,
		describeQuery{in.NetworkAclIds, in.Filters, in.MaxResults, in.NextToken},
		resourceLister[sdk.NetworkAcl]{codeInvalidNetworkACLIDNotFound, "networkAcl ID", field},
	)

	for _, a := range got {
		a.Tags = s.st.tagList(str(a.NetworkAclId))
	}

	return &sdk.DescribeNetworkAclsOutput{NetworkAcls: got, NextToken: next}, err
}
