// SPDX-License-Identifier: Apache-2.0

package resourcetype

import (
	"context"
	"fmt"
	"strings"

	"github.com/slipway-k8s/slipway/internal/region/cloudformation/template"
)

// tagSpecifications returns the tags of a new resource as EC2 expects them.
func (req *Request) tagSpecifications(kind string) []any {
	tags := req.resourceTags()
	if len(tags) == 0 {
		return []any{}
	}

	return []any{template.Object{"ResourceType": kind, "Tags": tags}}
}

// createEC2 returns a Create function that calls one operation of EC2. path is the path of the ID in its
// answer.
func createEC2(
	op,
	kind string,
	path string,
	in func(req *Request) template.Object,
) func(context.Context, *Request) error {
	return func(ctx context.Context, req *Request) error {
		args := in(req)
		if kind != "" {
			args["TagSpecifications"] = req.tagSpecifications(kind)
		}

		out, err := req.callOperation(ctx, "ec2", op, args)
		if err != nil {
			return err
		}

		steps := []any{}
		for step := range strings.SplitSeq(path, ".") {
			steps = append(steps, step)
		}

		return req.setPhysicalID(ctx, template.ValueAt(out, steps...))
	}
}

// deleteEC2 returns a Delete function that calls one operation of EC2 with the physical ID as the input
// member.
func deleteEC2(op, member string) func(context.Context, *Request) error {
	return func(ctx context.Context, req *Request) error {
		return req.runOperation(ctx, "ec2", op, template.Object{member: req.PhysicalID})
	}
}

// updateEC2Tags makes the tags of a resource match its properties and the stack's tags.
func updateEC2Tags(ctx context.Context, req *Request) error {
	return req.updateEC2TagsOf(ctx, req.PhysicalID)
}

func (req *Request) updateEC2TagsOf(ctx context.Context, id string) error {
	return req.updateTags("Tags", func(tags []any) error {
		return req.runOperation(ctx, "ec2", "CreateTags", template.Object{
			"Resources": []any{id},
			"Tags":      tags,
		})
	}, func(keys []any) error {
		return req.runOperation(ctx,
			"ec2",
			"DeleteTags",
			template.Object{"Resources": []any{id}, "Tags": tagKeyObjects(keys)},
		)
	})
}

func tagKeyObjects(keys []any) []any {
	out := []any{}
	for _, k := range keys {
		out = append(out, template.Object{"Key": k})
	}

	return out
}

// describeFirst returns the first item of the list that a Describe operation returns for the physical ID; nil
// if it is empty.
func (req *Request) describeFirst(ctx context.Context, op, member, list string) (any, error) {
	out, err := req.callOperation(ctx, "ec2", op, template.Object{member: []any{req.PhysicalID}})
	return template.ValueAt(out, list, 0), err
}

func networkTypes() map[string]Type {
	return map[string]Type{
		"AWS::EC2::VPC": vpcType(),
		"AWS::EC2::InternetGateway": {
			Create: createEC2(
				"CreateInternetGateway",
				"internet-gateway",
				"InternetGateway.InternetGatewayId",
				func(*Request) template.Object { return template.Object{} },
			),
			Stabilize: setIDAttribute("InternetGatewayId"),
			Update:    updateEC2Tags,
			Delete:    deleteEC2("DeleteInternetGateway", "InternetGatewayId"),
		},
		"AWS::EC2::VPCGatewayAttachment": gatewayAttachmentType(),
		"AWS::EC2::Subnet":               subnetType(),
		"AWS::EC2::EIP":                  elasticIPType(),
		"AWS::EC2::KeyPair":              keyPairType(),
		"AWS::EC2::EIPAssociation": {
			Create: func(ctx context.Context, req *Request) error {
				out, err := req.callOperation(ctx,
					"ec2",
					"AssociateAddress",
					req.pickProperties(
						"AllocationId",
						"InstanceId",
						"NetworkInterfaceId",
						"PrivateIpAddress",
					),
				)
				if err != nil {
					return err
				}

				return req.setPhysicalID(ctx, template.ValueAt(out, "AssociationId"))
			},
			Stabilize: setIDAttribute("Id"),
			Delete:    deleteEC2("DisassociateAddress", "AssociationId"),
		},
		"AWS::EC2::NatGateway": natGatewayType(),
	}
}

// vpcType is AWS::EC2::VPC.
func vpcType() Type {
	return Type{
		Create: createEC2(
			"CreateVpc",
			"vpc",
			"Vpc.VpcId",
			func(req *Request) template.Object { return req.pickProperties("CidrBlock", "InstanceTenancy") },
		),
		Stabilize: func(ctx context.Context, req *Request) error {
			if err := applyVPCSettings(ctx, req); err != nil {
				return err
			}

			return readVPCAttributes(ctx, req)
		},
		Update: func(ctx context.Context, req *Request) error {
			if err := applyVPCSettings(ctx, req); err != nil {
				return err
			}

			return updateEC2Tags(ctx, req)
		},
		Delete:          deleteEC2("DeleteVpc", "VpcId"),
		extraAttributes: []string{"CidrBlock"},
	}
}

// gatewayAttachmentType is AWS::EC2::VPCGatewayAttachment.
func gatewayAttachmentType() Type {
	return Type{
		Create: func(ctx context.Context, req *Request) error {
			if err := req.runOperation(
				ctx,
				"ec2",
				"AttachInternetGateway",
				req.pickProperties("InternetGatewayId", "VpcId"),
			); err != nil &&
				(!req.Resumed || ErrorCode(err) != "Resource.AlreadyAssociated") {
				return err
			}

			return req.setPhysicalID(ctx, "IGW|"+req.stringProperty("VpcId"))
		},
		Stabilize: func(_ context.Context, req *Request) error { req.Attributes["AttachmentType"] = "IGW"; return nil },
		Update: func(ctx context.Context, req *Request) error {
			if err := IgnoreNotFound(req.runOperation(ctx, "ec2", "DetachInternetGateway", template.Object{
				"InternetGatewayId": req.OldProperties["InternetGatewayId"],
				"VpcId":             req.OldProperties["VpcId"],
			})); err != nil {
				return err
			}

			return req.runOperation(ctx,
				"ec2",
				"AttachInternetGateway",
				req.pickProperties("InternetGatewayId", "VpcId"),
			)
		},
		Delete: func(ctx context.Context, req *Request) error {
			return req.runOperation(ctx,
				"ec2",
				"DetachInternetGateway",
				req.pickProperties("InternetGatewayId", "VpcId"),
			)
		},
	}
}

// subnetType is AWS::EC2::Subnet.
func subnetType() Type {
	return Type{
		Create: createEC2("CreateSubnet", "subnet", "Subnet.SubnetId", func(req *Request) template.Object {
			return req.pickProperties("VpcId", "CidrBlock", "AvailabilityZone", "AvailabilityZoneId")
		}),
		Stabilize: func(ctx context.Context, req *Request) error {
			if err := applySubnetSettings(ctx, req); err != nil {
				return err
			}

			subnet, err := req.describeFirst(ctx, "DescribeSubnets", "SubnetIds", "Subnets")
			for _, name := range []string{"AvailabilityZone", "AvailabilityZoneId", "CidrBlock", "VpcId", "SubnetId"} {
				req.Attributes[name] = template.ValueAt(subnet, name)
			}

			return err
		},
		Update: func(ctx context.Context, req *Request) error {
			if err := applySubnetSettings(ctx, req); err != nil {
				return err
			}

			return updateEC2Tags(ctx, req)
		},
		Delete:          deleteEC2("DeleteSubnet", "SubnetId"),
		extraAttributes: []string{"AvailabilityZone", "AvailabilityZoneId", "CidrBlock", "VpcId"},
	}
}

// natGatewayType is AWS::EC2::NatGateway. Its creation and its deletion take a while.
func natGatewayType() Type {
	return Type{
		Create: createEC2(
			"CreateNatGateway",
			"natgateway",
			"NatGateway.NatGatewayId",
			func(req *Request) template.Object {
				return req.pickProperties("SubnetId", "AllocationId", "ConnectivityType", "PrivateIpAddress")
			},
		),
		Stabilize: func(ctx context.Context, req *Request) error {
			req.Attributes["NatGatewayId"] = req.PhysicalID
			return req.waitUntil(ctx, func() (bool, error) {
				nat, err := req.describeFirst(ctx, "DescribeNatGateways", "NatGatewayIds", "NatGateways")
				switch state := template.StringAt(nat, "State"); {
				case err != nil:
					return false, err
				case state == "failed" || state == "deleted" || state == "deleting":
					return false, fmt.Errorf(
						"NatGateway %s is in state %s and hence failed to stabilize. Detailed failure message: %s",
						req.PhysicalID,
						state,
						template.StringAt(nat, "FailureMessage"),
					)

				default:
					return state == "available", nil
				}
			})
		},
		Update: updateEC2Tags,
		Delete: deleteEC2("DeleteNatGateway", "NatGatewayId"),
		IsDeleted: func(ctx context.Context, req *Request) (bool, error) {
			nat, err := req.describeFirst(ctx, "DescribeNatGateways", "NatGatewayIds", "NatGateways")
			state := template.StringAt(nat, "State")
			return state == "" || state == "deleted", err
		},
	}
}

// setIDAttribute returns a Stabilize function that sets an attribute to the physical ID.
func setIDAttribute(attribute string) func(context.Context, *Request) error {
	return func(_ context.Context, req *Request) error {
		req.Attributes[attribute] = req.PhysicalID
		return nil
	}
}

func applyVPCSettings(ctx context.Context, req *Request) error {
	for _, name := range []string{"EnableDnsSupport", "EnableDnsHostnames"} {
		want, given := req.Properties[name]
		if !given {
			want = name == "EnableDnsSupport" // EC2's defaults
		}

		if err := req.runOperation(ctx, "ec2", "ModifyVpcAttribute", template.Object{
			"VpcId": req.PhysicalID,
			name:    template.Object{"Value": want},
		}); err != nil {
			return err
		}
	}

	return nil
}

func readVPCAttributes(ctx context.Context, req *Request) error {
	vpc, err := req.describeFirst(ctx, "DescribeVpcs", "VpcIds", "Vpcs")
	if err != nil {
		return err
	}

	req.Attributes["VpcId"] = req.PhysicalID
	req.Attributes["CidrBlock"] = template.ValueAt(vpc, "CidrBlock")
	groups, err := req.callOperation(ctx, "ec2", "DescribeSecurityGroups", template.Object{"Filters": []any{
		template.Object{
			"Name":   "vpc-id",
			"Values": []any{req.PhysicalID},
		}, template.Object{"Name": "group-name", "Values": []any{"default"}},
	}})
	if err != nil {
		return err
	}

	req.Attributes["DefaultSecurityGroup"] = template.ValueAt(groups, "SecurityGroups", 0, "GroupId")
	acls, err := req.callOperation(ctx, "ec2", "DescribeNetworkAcls", template.Object{"Filters": []any{
		template.Object{
			"Name":   "vpc-id",
			"Values": []any{req.PhysicalID},
		}, template.Object{"Name": "default", "Values": []any{"true"}},
	}})

	req.Attributes["DefaultNetworkAcl"] = template.ValueAt(acls, "NetworkAcls", 0, "NetworkAclId")

	return err
}

func applySubnetSettings(ctx context.Context, req *Request) error {
	want, given := req.Properties["MapPublicIpOnLaunch"]
	if !given && req.OldProperties["MapPublicIpOnLaunch"] == nil {
		return nil
	}

	return req.runOperation(ctx,
		"ec2",
		"ModifySubnetAttribute",
		template.Object{
			"SubnetId":            req.PhysicalID,
			"MapPublicIpOnLaunch": template.Object{"Value": want == true},
		},
	)
}

// elasticIPType is AWS::EC2::EIP. Its physical ID is the address.
func elasticIPType() Type {
	return Type{
		Create: createEC2(
			"AllocateAddress",
			"elastic-ip",
			"PublicIp",
			func(*Request) template.Object { return template.Object{"Domain": "vpc"} },
		),
		Stabilize:   stabilizeElasticIP,
		Update:      updateElasticIP,
		Delete:      deleteElasticIP,
		FindCreated: findCreatedElasticIP,
	}
}

func describeElasticIP(ctx context.Context, req *Request) (any, error) {
	out, err := req.callOperation(ctx, "ec2", "DescribeAddresses", template.Object{
		"PublicIps": []any{req.PhysicalID},
	})
	return template.ValueAt(out, "Addresses", 0), err
}

func associateElasticIP(ctx context.Context, req *Request) error {
	if !req.hasProperty("InstanceId") {
		return nil
	}

	return req.runOperation(ctx,
		"ec2",
		"AssociateAddress",
		template.Object{
			"AllocationId": req.Attributes["AllocationId"],
			"InstanceId":   req.Properties["InstanceId"],
		},
	)
}

func stabilizeElasticIP(ctx context.Context, req *Request) error {
	a, err := describeElasticIP(ctx, req)
	req.Attributes["PublicIp"] = req.PhysicalID
	req.Attributes["AllocationId"] = template.ValueAt(a, "AllocationId")
	if err != nil {
		return err
	}

	return associateElasticIP(ctx, req)
}

func updateElasticIP(ctx context.Context, req *Request) error {
	if req.propertyChanged("InstanceId") {
		a, err := describeElasticIP(ctx, req)
		if id := template.StringAt(a, "AssociationId"); err == nil && id != "" {
			err = req.runOperation(ctx, "ec2", "DisassociateAddress", template.Object{"AssociationId": id})
		}

		if err == nil {
			err = associateElasticIP(ctx, req)
		}

		if err != nil {
			return err
		}
	}

	return req.updateEC2TagsOf(ctx, template.StringAt(req.Attributes, "AllocationId"))
}

func deleteElasticIP(ctx context.Context, req *Request) error {
	a, err := describeElasticIP(ctx, req)
	if err != nil {
		return err
	}

	return req.runOperation(ctx, "ec2", "ReleaseAddress", template.Object{
		"AllocationId": template.ValueAt(a, "AllocationId"),
	})
}

func findCreatedElasticIP(ctx context.Context, req *Request) (bool, error) {
	out, err := req.Engine.CallAsSystem(
		ctx,
		"ec2",
		"DescribeAddresses",
		template.Object{"Filters": []any{
			template.Object{"Name": "tag:aws:cloudformation:stack-id", "Values": []any{req.StackID}},
			template.Object{"Name": "tag:aws:cloudformation:logical-id", "Values": []any{req.LogicalID}},
		}},
	)

	req.PhysicalID = template.StringAt(out, "Addresses", 0, "PublicIp")
	return req.PhysicalID != "", err
}
