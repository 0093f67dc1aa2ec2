// SPDX-License-Identifier: Apache-2.0

package cloudformation

import (
	"fmt"
	"strings"

	"github.com/slipway-k8s/slipway/internal/region/cloudformation/template"
	"github.com/slipway-k8s/slipway/internal/region/wire"
)

// tagSpecifications are the tags of a new resource as EC2 takes them.
func (j *handlerRequest) tagSpecifications(kind string) []any {
	tags := j.resourceTags()
	if len(tags) == 0 {
		return []any{}
	}

	return []any{template.Object{"ResourceType": kind, "Tags": tags}}
}

// createEC2 makes a resource by one call whose answer has the id at a path.
func createEC2(op, kind string, path string, in func(j *handlerRequest) template.Object) func(*handlerRequest) error {
	return func(j *handlerRequest) error {
		args := in(j)
		if kind != "" {
			args["TagSpecifications"] = j.tagSpecifications(kind)
		}

		out, err := j.callOperation("ec2", op, args)
		if err != nil {
			return err
		}

		steps := []any{}
		for step := range strings.SplitSeq(path, ".") {
			steps = append(steps, step)
		}

		return j.setPhysicalID(template.ValueAt(out, steps...))
	}
}

// deleteEC2 deletes a resource by one call that takes its id.
func deleteEC2(op, member string) func(*handlerRequest) error {
	return func(j *handlerRequest) error { return j.runOperation("ec2", op, template.Object{member: j.physicalID}) }
}

// updateEC2Tags brings a resource's tags to what they should be.
func updateEC2Tags(j *handlerRequest) error { return j.updateEC2TagsOf(j.physicalID) }

func (j *handlerRequest) updateEC2TagsOf(id string) error {
	return j.updateTags("Tags", func(tags []any) error {
		return j.runOperation("ec2", "CreateTags", template.Object{"Resources": []any{id}, "Tags": tags})
	}, func(keys []any) error {
		return j.runOperation(
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

// describeFirst is the first item that an operation tells about an id.
func (j *handlerRequest) describeFirst(op, member, list string) (any, error) {
	out, err := j.callOperation("ec2", op, template.Object{member: []any{j.physicalID}})
	return template.ValueAt(out, list, 0), err
}

func networkTypes() map[string]resourceType {
	return map[string]resourceType{
		"AWS::EC2::VPC": vpcType(),
		"AWS::EC2::InternetGateway": {
			create: createEC2(
				"CreateInternetGateway",
				"internet-gateway",
				"InternetGateway.InternetGatewayId",
				func(*handlerRequest) template.Object { return template.Object{} },
			),
			stabilize: setIDAttribute("InternetGatewayId"),
			update:    updateEC2Tags,
			delete:    deleteEC2("DeleteInternetGateway", "InternetGatewayId"),
		},
		"AWS::EC2::VPCGatewayAttachment": gatewayAttachmentType(),
		"AWS::EC2::Subnet":               subnetType(),
		"AWS::EC2::EIP":                  elasticIPType(),
		"AWS::EC2::KeyPair":              keyPairType(),
		"AWS::EC2::EIPAssociation": {
			create: func(j *handlerRequest) error {
				out, err := j.callOperation(
					"ec2",
					"AssociateAddress",
					j.pickProperties("AllocationId", "InstanceId", "NetworkInterfaceId", "PrivateIpAddress"),
				)
				if err != nil {
					return err
				}

				return j.setPhysicalID(template.ValueAt(out, "AssociationId"))
			},
			stabilize: setIDAttribute("Id"),
			delete:    deleteEC2("DisassociateAddress", "AssociationId"),
		},
		"AWS::EC2::NatGateway": natGatewayType(),
	}
}

// vpcType is a network.
func vpcType() resourceType {
	return resourceType{
		create: createEC2(
			"CreateVpc",
			"vpc",
			"Vpc.VpcId",
			func(j *handlerRequest) template.Object { return j.pickProperties("CidrBlock", "InstanceTenancy") },
		),
		stabilize: func(j *handlerRequest) error {
			if err := applyVPCSettings(j); err != nil {
				return err
			}

			return readVPCAttributes(j)
		},
		update: func(j *handlerRequest) error {
			if err := applyVPCSettings(j); err != nil {
				return err
			}

			return updateEC2Tags(j)
		},
		delete:          deleteEC2("DeleteVpc", "VpcId"),
		extraAttributes: []string{"CidrBlock"},
	}
}

// gatewayAttachmentType is the way out of a network.
func gatewayAttachmentType() resourceType {
	return resourceType{
		create: func(j *handlerRequest) error {
			if err := j.runOperation("ec2", "AttachInternetGateway", j.pickProperties("InternetGatewayId", "VpcId")); err != nil &&
				(!j.resumed || errorCode(err) != "Resource.AlreadyAssociated") {
				return err
			}

			return j.setPhysicalID("IGW|" + j.stringProperty("VpcId"))
		},
		stabilize: func(j *handlerRequest) error { j.attributes["AttachmentType"] = "IGW"; return nil },
		update: func(j *handlerRequest) error {
			if err := ignoreNotFound(j.runOperation("ec2", "DetachInternetGateway", template.Object{"InternetGatewayId": j.oldProps["InternetGatewayId"], "VpcId": j.oldProps["VpcId"]})); err != nil {
				return err
			}

			return j.runOperation(
				"ec2",
				"AttachInternetGateway",
				j.pickProperties("InternetGatewayId", "VpcId"),
			)
		},
		delete: func(j *handlerRequest) error {
			return j.runOperation(
				"ec2",
				"DetachInternetGateway",
				j.pickProperties("InternetGatewayId", "VpcId"),
			)
		},
	}
}

// subnetType is a part of a network in one zone.
func subnetType() resourceType {
	return resourceType{
		create: createEC2("CreateSubnet", "subnet", "Subnet.SubnetId", func(j *handlerRequest) template.Object {
			return j.pickProperties("VpcId", "CidrBlock", "AvailabilityZone", "AvailabilityZoneId")
		}),
		stabilize: func(j *handlerRequest) error {
			if err := applySubnetSettings(j); err != nil {
				return err
			}

			subnet, err := j.describeFirst("DescribeSubnets", "SubnetIds", "Subnets")
			for _, name := range []string{"AvailabilityZone", "AvailabilityZoneId", "CidrBlock", "VpcId", "SubnetId"} {
				j.attributes[name] = template.ValueAt(subnet, name)
			}

			return err
		},
		update: func(j *handlerRequest) error {
			if err := applySubnetSettings(j); err != nil {
				return err
			}

			return updateEC2Tags(j)
		},
		delete:          deleteEC2("DeleteSubnet", "SubnetId"),
		extraAttributes: []string{"AvailabilityZone", "AvailabilityZoneId", "CidrBlock", "VpcId"},
	}
}

// natGatewayType is a NAT gateway, which takes a while to come and to go.
func natGatewayType() resourceType {
	return resourceType{
		create: createEC2(
			"CreateNatGateway",
			"natgateway",
			"NatGateway.NatGatewayId",
			func(j *handlerRequest) template.Object {
				return j.pickProperties("SubnetId", "AllocationId", "ConnectivityType", "PrivateIpAddress")
			},
		),
		stabilize: func(j *handlerRequest) error {
			j.attributes["NatGatewayId"] = j.physicalID
			return j.waitUntil(func() (bool, error) {
				nat, err := j.describeFirst("DescribeNatGateways", "NatGatewayIds", "NatGateways")
				switch state := template.StringAt(nat, "State"); {
				case err != nil:
					return false, err
				case state == "failed" || state == "deleted" || state == "deleting":
					return false, fmt.Errorf(
						"NatGateway %s is in state %s and hence failed to stabilize. Detailed failure message: %s",
						j.physicalID,
						state,
						template.StringAt(nat, "FailureMessage"),
					)

				default:
					return state == "available", nil
				}
			})
		},
		update: updateEC2Tags,
		delete: deleteEC2("DeleteNatGateway", "NatGatewayId"),
		isDeleted: func(j *handlerRequest) (bool, error) {
			nat, err := j.describeFirst("DescribeNatGateways", "NatGatewayIds", "NatGateways")
			state := template.StringAt(nat, "State")
			return state == "" || state == "deleted", err
		},
	}
}

// setIDAttribute sets an attribute to the physical id.
func setIDAttribute(attribute string) func(*handlerRequest) error {
	return func(j *handlerRequest) error {
		j.attributes[attribute] = j.physicalID
		return nil
	}
}

func applyVPCSettings(j *handlerRequest) error {
	for _, name := range []string{"EnableDnsSupport", "EnableDnsHostnames"} {
		want, given := j.props[name]
		if !given {
			want = name == "EnableDnsSupport" // EC2's defaults
		}

		if err := j.runOperation("ec2", "ModifyVpcAttribute", template.Object{"VpcId": j.physicalID, name: template.Object{"Value": want}}); err != nil {
			return err
		}
	}

	return nil
}

func readVPCAttributes(j *handlerRequest) error {
	vpc, err := j.describeFirst("DescribeVpcs", "VpcIds", "Vpcs")
	if err != nil {
		return err
	}

	j.attributes["VpcId"], j.attributes["CidrBlock"] = j.physicalID, template.ValueAt(vpc, "CidrBlock")
	groups, err := j.callOperation("ec2", "DescribeSecurityGroups", template.Object{"Filters": []any{
		template.Object{
			"Name":   "vpc-id",
			"Values": []any{j.physicalID},
		}, template.Object{"Name": "group-name", "Values": []any{"default"}},
	}})
	if err != nil {
		return err
	}

	j.attributes["DefaultSecurityGroup"] = template.ValueAt(groups, "SecurityGroups", 0, "GroupId")
	acls, err := j.callOperation("ec2", "DescribeNetworkAcls", template.Object{"Filters": []any{
		template.Object{
			"Name":   "vpc-id",
			"Values": []any{j.physicalID},
		}, template.Object{"Name": "default", "Values": []any{"true"}},
	}})

	j.attributes["DefaultNetworkAcl"] = template.ValueAt(acls, "NetworkAcls", 0, "NetworkAclId")

	return err
}

func applySubnetSettings(j *handlerRequest) error {
	want, given := j.props["MapPublicIpOnLaunch"]
	if !given && j.oldProps["MapPublicIpOnLaunch"] == nil {
		return nil
	}

	return j.runOperation(
		"ec2",
		"ModifySubnetAttribute",
		template.Object{"SubnetId": j.physicalID, "MapPublicIpOnLaunch": template.Object{"Value": want == true}},
	)
}

// elasticIPType is an elastic IP: its physical id is the address.
func elasticIPType() resourceType {
	find := func(j *handlerRequest) (any, error) {
		out, err := j.callOperation("ec2", "DescribeAddresses", template.Object{"PublicIps": []any{j.physicalID}})
		return template.ValueAt(out, "Addresses", 0), err
	}

	attach := func(j *handlerRequest) error {
		if !j.hasProperty("InstanceId") {
			return nil
		}

		return j.runOperation(
			"ec2",
			"AssociateAddress",
			template.Object{"AllocationId": j.attributes["AllocationId"], "InstanceId": j.props["InstanceId"]},
		)
	}

	return resourceType{
		create: createEC2(
			"AllocateAddress",
			"elastic-ip",
			"PublicIp",
			func(*handlerRequest) template.Object { return template.Object{"Domain": "vpc"} },
		),
		stabilize: func(j *handlerRequest) error {
			a, err := find(j)
			j.attributes["PublicIp"], j.attributes["AllocationId"] = j.physicalID, template.ValueAt(a, "AllocationId")
			if err != nil {
				return err
			}

			return attach(j)
		},
		update: func(j *handlerRequest) error {
			if j.propertyChanged("InstanceId") {
				a, err := find(j)
				if id := template.StringAt(a, "AssociationId"); err == nil && id != "" {
					err = j.runOperation("ec2", "DisassociateAddress", template.Object{"AssociationId": id})
				}

				if err == nil {
					err = attach(j)
				}

				if err != nil {
					return err
				}
			}

			return j.updateEC2TagsOf(template.StringAt(j.attributes, "AllocationId"))
		},
		delete: func(j *handlerRequest) error {
			a, err := find(j)
			if err != nil {
				return err
			}

			return j.runOperation("ec2", "ReleaseAddress", template.Object{"AllocationId": template.ValueAt(a, "AllocationId")})
		},
		findCreated: func(j *handlerRequest) (bool, error) {
			out, err := j.engine.callService(
				j.engine.withStackCaller(j.ctx, wire.SystemCaller()),
				"ec2",
				"DescribeAddresses",
				template.Object{"Filters": []any{
					template.Object{"Name": "tag:aws:cloudformation:stack-id", "Values": []any{j.stackID}},
					template.Object{"Name": "tag:aws:cloudformation:logical-id", "Values": []any{j.logicalID}},
				}},
			)

			j.physicalID = template.StringAt(out, "Addresses", 0, "PublicIp")
			return j.physicalID != "", err
		},
	}
}
