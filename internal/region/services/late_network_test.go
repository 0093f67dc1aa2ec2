// SPDX-License-Identifier: Apache-2.0

package services_test

import (
	"context"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/ec2"
	ec2types "github.com/aws/aws-sdk-go-v2/service/ec2/types"
)

// defaultSubnet returns a subnet of the default VPC.
func (l *lateLab) defaultSubnet() ec2types.Subnet {
	l.Helper()
	out, err := l.ec2.DescribeSubnets(l.Context(), &ec2.DescribeSubnetsInput{})
	if err != nil || len(out.Subnets) == 0 {
		l.Fatalf("the default subnets: %v, %v", out, err)
	}

	return out.Subnets[0]
}

// defaultGroup returns the id of the security group of the default VPC.
func (l *lateLab) defaultGroup() *string {
	l.Helper()
	out, err := l.ec2.DescribeSecurityGroups(l.Context(), &ec2.DescribeSecurityGroupsInput{})
	if err != nil || len(out.SecurityGroups) == 0 {
		l.Fatalf("the default security group: %v, %v", out, err)
	}

	return out.SecurityGroups[0].GroupId
}

// networkInterface creates a network interface in the default subnet.
func (l *lateLab) networkInterface() *string {
	l.Helper()
	out, err := l.ec2.CreateNetworkInterface(l.Context(), &ec2.CreateNetworkInterfaceInput{SubnetId: l.defaultSubnet().SubnetId})
	l.must(err)

	return out.NetworkInterface.NetworkInterfaceId
}

// networkCases are the cases of VPCs and their parts.
func networkCases() map[string]lateCase {
	return map[string]lateCase{
		"ec2.CreateVpc": func(l *lateLab) (string, func(context.Context) error) {
			out, err := l.ec2.CreateVpc(l.Context(), &ec2.CreateVpcInput{CidrBlock: aws.String("10.0.0.0/16")})
			l.must(err)

			return "InvalidVpcID.NotFound", func(ctx context.Context) error {
				_, err := l.ec2.DescribeVpcs(ctx, &ec2.DescribeVpcsInput{VpcIds: []string{*out.Vpc.VpcId}})
				return err
			}
		},
		"ec2.AssociateVpcCidrBlock": func(l *lateLab) (string, func(context.Context) error) {
			out, err := l.ec2.AssociateVpcCidrBlock(l.Context(), &ec2.AssociateVpcCidrBlockInput{
				VpcId: l.defaultSubnet().VpcId, CidrBlock: aws.String("172.30.0.0/16"),
			})
			l.must(err)

			return "InvalidVpcCidrBlockAssociationID.NotFound", func(ctx context.Context) error {
				_, err := l.ec2.DisassociateVpcCidrBlock(ctx, &ec2.DisassociateVpcCidrBlockInput{
					AssociationId: out.CidrBlockAssociation.AssociationId,
				})

				return err
			}
		},
		"ec2.CreateSubnet": func(l *lateLab) (string, func(context.Context) error) {
			out, err := l.ec2.CreateSubnet(l.Context(), &ec2.CreateSubnetInput{
				VpcId: l.defaultSubnet().VpcId, CidrBlock: aws.String("172.31.240.0/24"),
			})
			l.must(err)

			return "InvalidSubnetID.NotFound", func(ctx context.Context) error {
				_, err := l.ec2.DescribeSubnets(ctx, &ec2.DescribeSubnetsInput{SubnetIds: []string{*out.Subnet.SubnetId}})
				return err
			}
		},
		"ec2.CreateInternetGateway": func(l *lateLab) (string, func(context.Context) error) {
			out, err := l.ec2.CreateInternetGateway(l.Context(), &ec2.CreateInternetGatewayInput{})
			l.must(err)

			return "InvalidInternetGatewayID.NotFound", func(ctx context.Context) error {
				_, err := l.ec2.DescribeInternetGateways(ctx, &ec2.DescribeInternetGatewaysInput{
					InternetGatewayIds: []string{*out.InternetGateway.InternetGatewayId},
				})

				return err
			}
		},
		"ec2.AllocateAddress": func(l *lateLab) (string, func(context.Context) error) {
			out, err := l.ec2.AllocateAddress(l.Context(), &ec2.AllocateAddressInput{})
			l.must(err)

			return "InvalidAllocationID.NotFound", func(ctx context.Context) error {
				_, err := l.ec2.DescribeAddresses(ctx, &ec2.DescribeAddressesInput{AllocationIds: []string{*out.AllocationId}})
				return err
			}
		},
		"ec2.AssociateAddress": func(l *lateLab) (string, func(context.Context) error) {
			in := &ec2.AssociateAddressInput{}
			l.withoutDelay(func() {
				address, err := l.ec2.AllocateAddress(l.Context(), &ec2.AllocateAddressInput{})
				l.must(err)
				in.AllocationId = address.AllocationId
				in.NetworkInterfaceId = l.networkInterface()
			})
			out, err := l.ec2.AssociateAddress(l.Context(), in)
			l.must(err)

			return "InvalidAssociationID.NotFound", func(ctx context.Context) error {
				_, err := l.ec2.DisassociateAddress(ctx, &ec2.DisassociateAddressInput{AssociationId: out.AssociationId})
				return err
			}
		},
		"ec2.CreateNatGateway": func(l *lateLab) (string, func(context.Context) error) {
			in := &ec2.CreateNatGatewayInput{SubnetId: l.defaultSubnet().SubnetId}
			l.withoutDelay(func() {
				address, err := l.ec2.AllocateAddress(l.Context(), &ec2.AllocateAddressInput{})
				l.must(err)
				in.AllocationId = address.AllocationId
			})
			out, err := l.ec2.CreateNatGateway(l.Context(), in)
			l.must(err)

			return "NatGatewayNotFound", func(ctx context.Context) error {
				_, err := l.ec2.DescribeNatGateways(ctx, &ec2.DescribeNatGatewaysInput{
					NatGatewayIds: []string{*out.NatGateway.NatGatewayId},
				})

				return err
			}
		},
		"ec2.CreateRouteTable": func(l *lateLab) (string, func(context.Context) error) {
			out, err := l.ec2.CreateRouteTable(l.Context(), &ec2.CreateRouteTableInput{VpcId: l.defaultSubnet().VpcId})
			l.must(err)

			return "InvalidRouteTableID.NotFound", func(ctx context.Context) error {
				_, err := l.ec2.DescribeRouteTables(ctx, &ec2.DescribeRouteTablesInput{
					RouteTableIds: []string{*out.RouteTable.RouteTableId},
				})

				return err
			}
		},
		"ec2.AssociateRouteTable": func(l *lateLab) (string, func(context.Context) error) {
			subnet := l.defaultSubnet()
			in := &ec2.AssociateRouteTableInput{SubnetId: subnet.SubnetId}
			l.withoutDelay(func() {
				table, err := l.ec2.CreateRouteTable(l.Context(), &ec2.CreateRouteTableInput{VpcId: subnet.VpcId})
				l.must(err)
				in.RouteTableId = table.RouteTable.RouteTableId
			})
			out, err := l.ec2.AssociateRouteTable(l.Context(), in)
			l.must(err)

			return "InvalidAssociationID.NotFound", func(ctx context.Context) error {
				_, err := l.ec2.DisassociateRouteTable(ctx, &ec2.DisassociateRouteTableInput{AssociationId: out.AssociationId})
				return err
			}
		},
		"ec2.CreateSecurityGroup": func(l *lateLab) (string, func(context.Context) error) {
			out, err := l.ec2.CreateSecurityGroup(l.Context(), &ec2.CreateSecurityGroupInput{
				VpcId: l.defaultSubnet().VpcId, GroupName: aws.String("new"), Description: aws.String("new"),
			})
			l.must(err)

			return "InvalidGroup.NotFound", func(ctx context.Context) error {
				_, err := l.ec2.DescribeSecurityGroups(ctx, &ec2.DescribeSecurityGroupsInput{GroupIds: []string{*out.GroupId}})
				return err
			}
		},
		"ec2.AuthorizeSecurityGroupIngress": func(l *lateLab) (string, func(context.Context) error) {
			group := l.defaultGroup()
			out, err := l.ec2.AuthorizeSecurityGroupIngress(l.Context(), &ec2.AuthorizeSecurityGroupIngressInput{
				GroupId: group, IpPermissions: webPermission(),
			})
			l.must(err)

			return "InvalidSecurityGroupRuleId.NotFound", func(ctx context.Context) error {
				_, err := l.ec2.RevokeSecurityGroupIngress(ctx, &ec2.RevokeSecurityGroupIngressInput{
					GroupId: group, SecurityGroupRuleIds: []string{*out.SecurityGroupRules[0].SecurityGroupRuleId},
				})

				return err
			}
		},
		"ec2.AuthorizeSecurityGroupEgress": func(l *lateLab) (string, func(context.Context) error) {
			group := l.defaultGroup()
			out, err := l.ec2.AuthorizeSecurityGroupEgress(l.Context(), &ec2.AuthorizeSecurityGroupEgressInput{
				GroupId: group, IpPermissions: webPermission(),
			})
			l.must(err)

			return "InvalidSecurityGroupRuleId.NotFound", func(ctx context.Context) error {
				_, err := l.ec2.RevokeSecurityGroupEgress(ctx, &ec2.RevokeSecurityGroupEgressInput{
					GroupId: group, SecurityGroupRuleIds: []string{*out.SecurityGroupRules[0].SecurityGroupRuleId},
				})

				return err
			}
		},
		"ec2.CreateNetworkInterface": func(l *lateLab) (string, func(context.Context) error) {
			id := l.networkInterface()

			return "InvalidNetworkInterfaceID.NotFound", func(ctx context.Context) error {
				_, err := l.ec2.DescribeNetworkInterfaces(ctx, &ec2.DescribeNetworkInterfacesInput{NetworkInterfaceIds: []string{*id}})
				return err
			}
		},
		"ec2.AttachNetworkInterface": func(l *lateLab) (string, func(context.Context) error) {
			in := &ec2.AttachNetworkInterfaceInput{DeviceIndex: aws.Int32(1)}
			l.withoutDelay(func() {
				in.InstanceId = l.runInstance()
				in.NetworkInterfaceId = l.networkInterface()
				l.awaitRunning(*in.InstanceId)
			})
			out, err := l.ec2.AttachNetworkInterface(l.Context(), in)
			l.must(err)

			return "InvalidAttachmentID.NotFound", func(ctx context.Context) error {
				_, err := l.ec2.DetachNetworkInterface(ctx, &ec2.DetachNetworkInterfaceInput{AttachmentId: out.AttachmentId})
				return err
			}
		},
		"ec2.CreateVpcEndpoint": func(l *lateLab) (string, func(context.Context) error) {
			out, err := l.ec2.CreateVpcEndpoint(l.Context(), &ec2.CreateVpcEndpointInput{
				VpcId: l.defaultSubnet().VpcId, ServiceName: aws.String("com.amazonaws.us-east-1.s3"),
				VpcEndpointType: ec2types.VpcEndpointTypeGateway,
			})
			l.must(err)

			return "InvalidVpcEndpointId.NotFound", func(ctx context.Context) error {
				_, err := l.ec2.DescribeVpcEndpoints(ctx, &ec2.DescribeVpcEndpointsInput{
					VpcEndpointIds: []string{*out.VpcEndpoint.VpcEndpointId},
				})

				return err
			}
		},
		"ec2.CreateVpcPeeringConnection": func(l *lateLab) (string, func(context.Context) error) {
			in := &ec2.CreateVpcPeeringConnectionInput{VpcId: l.defaultSubnet().VpcId}
			l.withoutDelay(func() {
				other, err := l.ec2.CreateVpc(l.Context(), &ec2.CreateVpcInput{CidrBlock: aws.String("10.0.0.0/16")})
				l.must(err)
				in.PeerVpcId = other.Vpc.VpcId
			})
			out, err := l.ec2.CreateVpcPeeringConnection(l.Context(), in)
			l.must(err)

			return "InvalidVpcPeeringConnectionID.NotFound", func(ctx context.Context) error {
				_, err := l.ec2.DescribeVpcPeeringConnections(ctx, &ec2.DescribeVpcPeeringConnectionsInput{
					VpcPeeringConnectionIds: []string{*out.VpcPeeringConnection.VpcPeeringConnectionId},
				})

				return err
			}
		},
	}
}

// webPermission is a rule for HTTP from one network.
func webPermission() []ec2types.IpPermission {
	return []ec2types.IpPermission{{
		IpProtocol: aws.String("tcp"), FromPort: aws.Int32(80), ToPort: aws.Int32(80),
		IpRanges: []ec2types.IpRange{{CidrIp: aws.String("192.0.2.0/24")}},
	}}
}
