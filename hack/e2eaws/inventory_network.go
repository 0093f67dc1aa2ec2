// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/ec2"
	ec2types "github.com/aws/aws-sdk-go-v2/service/ec2/types"

	"github.com/slipway-k8s/slipway/internal/infra/aws/transport"
)

// networkKinds are the kinds of the VPC.
func (v inventory) networkKinds() []resourceKind {
	return []resourceKind{
		v.vpcEndpointKind(),
		v.natGatewayKind(),
		v.addressKind(),
		v.networkInterfaceKind(),
		v.securityGroupKind(),
		v.subnetKind(),
		v.routeTableKind(),
		v.internetGatewayKind(),
		v.vpcKind(),
	}
}

func (v inventory) vpcEndpointKind() resourceKind {
	const name = "vpc-endpoint"
	return resourceKind{
		name: name,
		arn:  "ec2:vpc-endpoint",
		list: func(ctx context.Context) ([]resource, error) {
			pages := ec2.NewDescribeVpcEndpointsPaginator(v.ec2, &ec2.DescribeVpcEndpointsInput{Filters: v.tagFilters()})
			found, err := transport.CollectPages(ctx, pages, func(p *ec2.DescribeVpcEndpointsOutput) []ec2types.VpcEndpoint {
				return p.VpcEndpoints
			})
			if err != nil {
				return nil, err
			}

			return toResources(name, found, func(e ec2types.VpcEndpoint) *string { return e.VpcEndpointId }), nil
		},
		remove: func(ctx context.Context, id string) error {
			_, err := v.ec2.DeleteVpcEndpoints(ctx, &ec2.DeleteVpcEndpointsInput{VpcEndpointIds: []string{id}})
			return err
		},
	}
}

func (v inventory) natGatewayKind() resourceKind {
	const name = "nat-gateway"
	return resourceKind{
		name: name,
		arn:  "ec2:natgateway",
		list: func(ctx context.Context) ([]resource, error) {
			states := filterValues("state", "pending", "available", "deleting", "failed")
			pages := ec2.NewDescribeNatGatewaysPaginator(v.ec2, &ec2.DescribeNatGatewaysInput{Filter: v.tagFilters(states)})
			found, err := transport.CollectPages(ctx, pages, func(p *ec2.DescribeNatGatewaysOutput) []ec2types.NatGateway {
				return p.NatGateways
			})
			if err != nil {
				return nil, err
			}

			return toResources(name, found, func(g ec2types.NatGateway) *string { return g.NatGatewayId }), nil
		},
		remove: func(ctx context.Context, id string) error {
			_, err := v.ec2.DeleteNatGateway(ctx, &ec2.DeleteNatGatewayInput{NatGatewayId: &id})
			return err
		},
	}
}

func (v inventory) addressKind() resourceKind {
	const name = "elastic-ip"
	return resourceKind{
		name: name,
		arn:  "ec2:elastic-ip",
		list: func(ctx context.Context) ([]resource, error) {
			out, err := v.ec2.DescribeAddresses(ctx, &ec2.DescribeAddressesInput{Filters: v.tagFilters()})
			if err != nil {
				return nil, err
			}

			return toResources(name, out.Addresses, func(a ec2types.Address) *string { return a.AllocationId }), nil
		},
		remove: func(ctx context.Context, id string) error {
			_, err := v.ec2.ReleaseAddress(ctx, &ec2.ReleaseAddressInput{AllocationId: &id})
			return err
		},
	}
}

func (v inventory) networkInterfaceKind() resourceKind {
	const name = "network-interface"
	return resourceKind{
		name: name,
		arn:  "ec2:network-interface",
		list: func(ctx context.Context) ([]resource, error) {
			pages := ec2.NewDescribeNetworkInterfacesPaginator(v.ec2, &ec2.DescribeNetworkInterfacesInput{Filters: v.tagFilters()})
			found, err := transport.CollectPages(ctx, pages, func(p *ec2.DescribeNetworkInterfacesOutput) []ec2types.NetworkInterface {
				return p.NetworkInterfaces
			})
			if err != nil {
				return nil, err
			}

			id := func(n ec2types.NetworkInterface) *string { return n.NetworkInterfaceId }

			return toResources(name, found, id), nil
		},
		remove: func(ctx context.Context, id string) error {
			_, err := v.ec2.DeleteNetworkInterface(ctx, &ec2.DeleteNetworkInterfaceInput{NetworkInterfaceId: &id})
			return err
		},
	}
}

func (v inventory) securityGroupKind() resourceKind {
	const name = "security-group"
	return resourceKind{
		name: name,
		arn:  "ec2:security-group",
		list: func(ctx context.Context) ([]resource, error) {
			pages := ec2.NewDescribeSecurityGroupsPaginator(v.ec2, &ec2.DescribeSecurityGroupsInput{Filters: v.tagFilters()})
			found, err := transport.CollectPages(ctx, pages, func(p *ec2.DescribeSecurityGroupsOutput) []ec2types.SecurityGroup {
				return p.SecurityGroups
			})
			if err != nil {
				return nil, err
			}

			return toResources(name, found, func(g ec2types.SecurityGroup) *string { return g.GroupId }), nil
		},
		remove: v.removeSecurityGroup,
	}
}

// removeSecurityGroup removes the rules of a group and then the group. Groups whose rules refer to each other can be
// removed once all rules are gone.
func (v inventory) removeSecurityGroup(ctx context.Context, id string) error {
	pages := ec2.NewDescribeSecurityGroupRulesPaginator(v.ec2, &ec2.DescribeSecurityGroupRulesInput{
		Filters: []ec2types.Filter{filterValues("group-id", id)},
	})
	found, err := transport.CollectPages(ctx, pages, func(p *ec2.DescribeSecurityGroupRulesOutput) []ec2types.SecurityGroupRule {
		return p.SecurityGroupRules
	})
	if err != nil {
		return err
	}

	rules := map[bool][]string{} // by whether they are for egress
	for _, rule := range found {
		egress := aws.ToBool(rule.IsEgress)
		rules[egress] = append(rules[egress], aws.ToString(rule.SecurityGroupRuleId))
	}

	if len(rules[false]) > 0 {
		in := &ec2.RevokeSecurityGroupIngressInput{GroupId: &id, SecurityGroupRuleIds: rules[false]}
		if _, err := v.ec2.RevokeSecurityGroupIngress(ctx, in); err != nil {
			return err
		}
	}

	if len(rules[true]) > 0 {
		in := &ec2.RevokeSecurityGroupEgressInput{GroupId: &id, SecurityGroupRuleIds: rules[true]}
		if _, err := v.ec2.RevokeSecurityGroupEgress(ctx, in); err != nil {
			return err
		}
	}

	_, err = v.ec2.DeleteSecurityGroup(ctx, &ec2.DeleteSecurityGroupInput{GroupId: &id})

	return err
}

func (v inventory) subnetKind() resourceKind {
	const name = "subnet"
	return resourceKind{
		name: name,
		arn:  "ec2:subnet",
		list: func(ctx context.Context) ([]resource, error) {
			pages := ec2.NewDescribeSubnetsPaginator(v.ec2, &ec2.DescribeSubnetsInput{Filters: v.tagFilters()})
			found, err := transport.CollectPages(ctx, pages, func(p *ec2.DescribeSubnetsOutput) []ec2types.Subnet {
				return p.Subnets
			})
			if err != nil {
				return nil, err
			}

			return toResources(name, found, func(s ec2types.Subnet) *string { return s.SubnetId }), nil
		},
		remove: func(ctx context.Context, id string) error {
			_, err := v.ec2.DeleteSubnet(ctx, &ec2.DeleteSubnetInput{SubnetId: &id})
			return err
		},
	}
}

func (v inventory) routeTableKind() resourceKind {
	const name = "route-table"
	return resourceKind{
		name: name,
		arn:  "ec2:route-table",
		list: func(ctx context.Context) ([]resource, error) {
			pages := ec2.NewDescribeRouteTablesPaginator(v.ec2, &ec2.DescribeRouteTablesInput{Filters: v.tagFilters()})
			found, err := transport.CollectPages(ctx, pages, func(p *ec2.DescribeRouteTablesOutput) []ec2types.RouteTable {
				return p.RouteTables
			})
			if err != nil {
				return nil, err
			}

			return toResources(name, found, func(t ec2types.RouteTable) *string { return t.RouteTableId }), nil
		},
		remove: func(ctx context.Context, id string) error {
			_, err := v.ec2.DeleteRouteTable(ctx, &ec2.DeleteRouteTableInput{RouteTableId: &id})
			return err
		},
	}
}

func (v inventory) internetGatewayKind() resourceKind {
	const name = "internet-gateway"
	return resourceKind{
		name: name,
		arn:  "ec2:internet-gateway",
		list: func(ctx context.Context) ([]resource, error) {
			pages := ec2.NewDescribeInternetGatewaysPaginator(v.ec2, &ec2.DescribeInternetGatewaysInput{Filters: v.tagFilters()})
			found, err := transport.CollectPages(ctx, pages, func(p *ec2.DescribeInternetGatewaysOutput) []ec2types.InternetGateway {
				return p.InternetGateways
			})
			if err != nil {
				return nil, err
			}

			id := func(g ec2types.InternetGateway) *string { return g.InternetGatewayId }

			return toResources(name, found, id), nil
		},
		remove: v.removeInternetGateway,
	}
}

// removeInternetGateway detaches a gateway from its VPC and deletes it.
func (v inventory) removeInternetGateway(ctx context.Context, id string) error {
	in := &ec2.DescribeInternetGatewaysInput{InternetGatewayIds: []string{id}}
	out, err := v.ec2.DescribeInternetGateways(ctx, in)
	if err != nil {
		return err
	}

	for _, gateway := range out.InternetGateways {
		for _, attachment := range gateway.Attachments {
			detach := &ec2.DetachInternetGatewayInput{InternetGatewayId: &id, VpcId: attachment.VpcId}
			if _, err := v.ec2.DetachInternetGateway(ctx, detach); err != nil {
				return err
			}
		}
	}

	_, err = v.ec2.DeleteInternetGateway(ctx, &ec2.DeleteInternetGatewayInput{InternetGatewayId: &id})

	return err
}

func (v inventory) vpcKind() resourceKind {
	const name = "vpc"
	return resourceKind{
		name: name,
		arn:  "ec2:vpc",
		list: func(ctx context.Context) ([]resource, error) {
			pages := ec2.NewDescribeVpcsPaginator(v.ec2, &ec2.DescribeVpcsInput{Filters: v.tagFilters()})
			found, err := transport.CollectPages(ctx, pages, func(p *ec2.DescribeVpcsOutput) []ec2types.Vpc {
				return p.Vpcs
			})
			if err != nil {
				return nil, err
			}

			return toResources(name, found, func(n ec2types.Vpc) *string { return n.VpcId }), nil
		},
		remove: func(ctx context.Context, id string) error {
			_, err := v.ec2.DeleteVpc(ctx, &ec2.DeleteVpcInput{VpcId: &id})
			return err
		},
	}
}
