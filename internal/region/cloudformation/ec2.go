// SPDX-License-Identifier: Apache-2.0

package cloudformation

import (
	"fmt"
	"strings"
)

// specs are the tags of a new resource as EC2 takes them.
func (j *job) specs(kind string) []any {
	tags := j.tagsOf()
	if len(tags) == 0 {
		return []any{}
	}
	return []any{tree{"ResourceType": kind, "Tags": tags}}
}

// makeEC2 makes a resource by one call whose answer has the id at a path.
func makeEC2(op, kind string, path string, in func(j *job) tree) func(*job) error {
	return func(j *job) error {
		args := in(j)
		if kind != "" {
			args["TagSpecifications"] = j.specs(kind)
		}
		out, err := j.call("ec2", op, args)
		if err != nil {
			return err
		}
		steps := []any{}
		for step := range strings.SplitSeq(path, ".") {
			steps = append(steps, step)
		}
		return j.made(at(out, steps...))
	}
}

// removeEC2 deletes a resource by one call that takes its id.
func removeEC2(op, member string) func(*job) error {
	return func(j *job) error { return j.do("ec2", op, tree{member: j.id}) }
}

// retagEC2 brings a resource's tags to what they should be.
func retagEC2(j *job) error { return j.retagID(j.id) }

func (j *job) retagID(id string) error {
	return j.retag("Tags", func(tags []any) error {
		return j.do("ec2", "CreateTags", tree{"Resources": []any{id}, "Tags": tags})
	}, func(keys []any) error {
		return j.do("ec2", "DeleteTags", tree{"Resources": []any{id}, "Tags": keyed(keys)})
	})
}

func keyed(keys []any) []any {
	out := []any{}
	for _, k := range keys {
		out = append(out, tree{"Key": k})
	}
	return out
}

// described is the first item that an operation tells about an id.
func (j *job) described(op, member, list string) (any, error) {
	out, err := j.call("ec2", op, tree{member: []any{j.id}})
	return at(out, list, 0), err
}

func networkTypes() map[string]resourceType {
	return map[string]resourceType{
		"AWS::EC2::VPC": vpcType(),
		"AWS::EC2::InternetGateway": {
			make:   makeEC2("CreateInternetGateway", "internet-gateway", "InternetGateway.InternetGatewayId", func(*job) tree { return tree{} }),
			settle: ownID("InternetGatewayId"), change: retagEC2,
			remove: removeEC2("DeleteInternetGateway", "InternetGatewayId"),
		},
		"AWS::EC2::VPCGatewayAttachment": attachmentType(),
		"AWS::EC2::Subnet":               subnetType(),
		"AWS::EC2::EIP":                  addressType(),
		"AWS::EC2::KeyPair":              keyPairType(),
		"AWS::EC2::EIPAssociation": {
			make: func(j *job) error {
				out, err := j.call("ec2", "AssociateAddress", j.take("AllocationId", "InstanceId", "NetworkInterfaceId", "PrivateIpAddress"))
				if err != nil {
					return err
				}
				return j.made(at(out, "AssociationId"))
			},
			settle: ownID("Id"),
			remove: removeEC2("DisassociateAddress", "AssociationId"),
		},
		"AWS::EC2::NatGateway": natType(),
	}
}

// vpcType is a network.
func vpcType() resourceType {
	return resourceType{
		make: makeEC2("CreateVpc", "vpc", "Vpc.VpcId", func(j *job) tree { return j.take("CidrBlock", "InstanceTenancy") }),
		settle: func(j *job) error {
			if err := vpcSettings(j); err != nil {
				return err
			}
			return vpcAttributes(j)
		},
		change: func(j *job) error {
			if err := vpcSettings(j); err != nil {
				return err
			}
			return retagEC2(j)
		},
		remove:     removeEC2("DeleteVpc", "VpcId"),
		attributes: []string{"CidrBlock"},
	}
}

// attachmentType is the way out of a network.
func attachmentType() resourceType {
	return resourceType{
		make: func(j *job) error {
			if err := j.do("ec2", "AttachInternetGateway", j.take("InternetGatewayId", "VpcId")); err != nil && (!j.again || code(err) != "Resource.AlreadyAssociated") {
				return err
			}
			return j.made("IGW|" + j.text("VpcId"))
		},
		settle: func(j *job) error { j.attributes["AttachmentType"] = "IGW"; return nil },
		change: func(j *job) error {
			if err := unlessAbsent(j.do("ec2", "DetachInternetGateway", tree{"InternetGatewayId": j.old["InternetGatewayId"], "VpcId": j.old["VpcId"]})); err != nil {
				return err
			}
			return j.do("ec2", "AttachInternetGateway", j.take("InternetGatewayId", "VpcId"))
		},
		remove: func(j *job) error { return j.do("ec2", "DetachInternetGateway", j.take("InternetGatewayId", "VpcId")) },
	}
}

// subnetType is a part of a network in one zone.
func subnetType() resourceType {
	return resourceType{
		make: makeEC2("CreateSubnet", "subnet", "Subnet.SubnetId", func(j *job) tree { return j.take("VpcId", "CidrBlock", "AvailabilityZone", "AvailabilityZoneId") }),
		settle: func(j *job) error {
			if err := subnetSettings(j); err != nil {
				return err
			}
			subnet, err := j.described("DescribeSubnets", "SubnetIds", "Subnets")
			for _, name := range []string{"AvailabilityZone", "AvailabilityZoneId", "CidrBlock", "VpcId", "SubnetId"} {
				j.attributes[name] = at(subnet, name)
			}
			return err
		},
		change: func(j *job) error {
			if err := subnetSettings(j); err != nil {
				return err
			}
			return retagEC2(j)
		},
		remove:     removeEC2("DeleteSubnet", "SubnetId"),
		attributes: []string{"AvailabilityZone", "AvailabilityZoneId", "CidrBlock", "VpcId"},
	}
}

// natType is a NAT gateway, which takes a while to come and to go.
func natType() resourceType {
	return resourceType{
		make: makeEC2("CreateNatGateway", "natgateway", "NatGateway.NatGatewayId", func(j *job) tree {
			return j.take("SubnetId", "AllocationId", "ConnectivityType", "PrivateIpAddress")
		}),
		settle: func(j *job) error {
			j.attributes["NatGatewayId"] = j.id
			return j.wait(func() (bool, error) {
				nat, err := j.described("DescribeNatGateways", "NatGatewayIds", "NatGateways")
				switch state := textOf(nat, "State"); {
				case err != nil:
					return false, err
				case state == "failed" || state == "deleted" || state == "deleting":
					return false, fmt.Errorf("NatGateway %s is in state %s and hence failed to stabilize. Detailed failure message: %s", j.id, state, textOf(nat, "FailureMessage"))
				default:
					return state == "available", nil
				}
			})
		},
		change: retagEC2,
		remove: removeEC2("DeleteNatGateway", "NatGatewayId"),
		gone: func(j *job) (bool, error) {
			nat, err := j.described("DescribeNatGateways", "NatGatewayIds", "NatGateways")
			state := textOf(nat, "State")
			return state == "" || state == "deleted", err
		},
	}
}

// ownID sets an attribute to the physical id.
func ownID(attribute string) func(*job) error {
	return func(j *job) error {
		j.attributes[attribute] = j.id
		return nil
	}
}

func vpcSettings(j *job) error {
	for _, name := range []string{"EnableDnsSupport", "EnableDnsHostnames"} {
		want, given := j.props[name]
		if !given {
			want = name == "EnableDnsSupport" // EC2's defaults
		}
		if err := j.do("ec2", "ModifyVpcAttribute", tree{"VpcId": j.id, name: tree{"Value": want}}); err != nil {
			return err
		}
	}
	return nil
}

func vpcAttributes(j *job) error {
	vpc, err := j.described("DescribeVpcs", "VpcIds", "Vpcs")
	if err != nil {
		return err
	}
	j.attributes["VpcId"], j.attributes["CidrBlock"] = j.id, at(vpc, "CidrBlock")
	groups, err := j.call("ec2", "DescribeSecurityGroups", tree{"Filters": []any{
		tree{"Name": "vpc-id", "Values": []any{j.id}}, tree{"Name": "group-name", "Values": []any{"default"}},
	}})
	if err != nil {
		return err
	}
	j.attributes["DefaultSecurityGroup"] = at(groups, "SecurityGroups", 0, "GroupId")
	acls, err := j.call("ec2", "DescribeNetworkAcls", tree{"Filters": []any{
		tree{"Name": "vpc-id", "Values": []any{j.id}}, tree{"Name": "default", "Values": []any{"true"}},
	}})
	j.attributes["DefaultNetworkAcl"] = at(acls, "NetworkAcls", 0, "NetworkAclId")
	return err
}

func subnetSettings(j *job) error {
	want, given := j.props["MapPublicIpOnLaunch"]
	if !given && j.old["MapPublicIpOnLaunch"] == nil {
		return nil
	}
	return j.do("ec2", "ModifySubnetAttribute", tree{"SubnetId": j.id, "MapPublicIpOnLaunch": tree{"Value": want == true}})
}

// addressType is an elastic IP: its physical id is the address.
func addressType() resourceType {
	find := func(j *job) (any, error) {
		out, err := j.call("ec2", "DescribeAddresses", tree{"PublicIps": []any{j.id}})
		return at(out, "Addresses", 0), err
	}
	attach := func(j *job) error {
		if !j.has("InstanceId") {
			return nil
		}
		return j.do("ec2", "AssociateAddress", tree{"AllocationId": j.attributes["AllocationId"], "InstanceId": j.props["InstanceId"]})
	}
	return resourceType{
		make: makeEC2("AllocateAddress", "elastic-ip", "PublicIp", func(*job) tree { return tree{"Domain": "vpc"} }),
		settle: func(j *job) error {
			a, err := find(j)
			j.attributes["PublicIp"], j.attributes["AllocationId"] = j.id, at(a, "AllocationId")
			if err != nil {
				return err
			}
			return attach(j)
		},
		change: func(j *job) error {
			if j.differs("InstanceId") {
				a, err := find(j)
				if id := textOf(a, "AssociationId"); err == nil && id != "" {
					err = j.do("ec2", "DisassociateAddress", tree{"AssociationId": id})
				}
				if err == nil {
					err = attach(j)
				}
				if err != nil {
					return err
				}
			}
			return j.retagID(textOf(j.attributes, "AllocationId"))
		},
		remove: func(j *job) error {
			a, err := find(j)
			if err != nil {
				return err
			}
			return j.do("ec2", "ReleaseAddress", tree{"AllocationId": at(a, "AllocationId")})
		},
		adopt: func(j *job) (bool, error) {
			out, err := j.s.call(j.s.as(j.ctx, nobody()), "ec2", "DescribeAddresses", tree{"Filters": []any{
				tree{"Name": "tag:aws:cloudformation:stack-id", "Values": []any{j.stack}},
				tree{"Name": "tag:aws:cloudformation:logical-id", "Values": []any{j.logical}},
			}})
			j.id = textOf(out, "Addresses", 0, "PublicIp")
			return j.id != "", err
		},
	}
}
