// SPDX-License-Identifier: Apache-2.0

package attack_test

import (
	"encoding/json"
	"testing"

	sdk "github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/ec2"
	ec2types "github.com/aws/aws-sdk-go-v2/service/ec2/types"

	"github.com/slipway-k8s/slipway/internal/infra/iampolicy"
)

const (
	vpcCNIAccount = "aws-node"
	vpcCNIRole    = rolePrefix + "kube-system." + vpcCNIAccount + ".us-east-1"
)

// vpcCNIPolicy returns the policy of the Amazon VPC CNI for cluster demo.
func vpcCNIPolicy(l *lab) string {
	l.Helper()
	text, err := json.Marshal(iampolicy.BuildVPCCNIPolicy("aws", "demo"))
	l.check(err)

	return string(text)
}

// boundaryStatements returns what the permissions boundary has for the Amazon VPC CNI, as an administrator adds it.
func boundaryStatements(l *lab) []any {
	l.Helper()
	in := iampolicy.Input{Partition: "aws", Account: "123456789012"}
	count := func() []iampolicy.Statement {
		return iampolicy.BuildBoundary(in, iampolicy.StoreLocation{Bucket: "b"}).Statement
	}
	without := len(count())
	in.VPCCNI = true
	text, err := json.Marshal(count()[without:])
	l.check(err)
	var out []any
	l.check(json.Unmarshal(text, &out))

	return out
}

// vpcCNILab is a lab with a cluster whose Amazon VPC CNI has its role.
type vpcCNILab struct {
	podLab
	ec2    *ec2.Client // of the account's root
	worker ec2types.Instance
}

func newVPCCNILab(t *testing.T) vpcCNILab {
	t.Helper()
	p := newPodLab(t)
	v := vpcCNILab{podLab: p, ec2: ec2.NewFromConfig(p.config(caller{}))}
	v.worker = p.instanceOf(v.ec2, "worker")
	v.startAccount("kube-system", vpcCNIAccount, vpcCNIPolicy(v.lab), boundaryStatements(v.lab))

	return v
}

// tagged are the tags that the CNI gives its interfaces, for a cluster, and more.
func (v *vpcCNILab) tagged(cluster string, more ...string) []ec2types.TagSpecification {
	tags := []ec2types.Tag{
		{Key: sdk.String("cluster.k8s.amazonaws.com/name"), Value: &cluster},
		{Key: sdk.String("node.k8s.amazonaws.com/instance_id"), Value: v.worker.InstanceId},
	}
	for _, key := range more {
		tags = append(tags, ec2types.Tag{Key: &key, Value: sdk.String("x")})
	}

	return []ec2types.TagSpecification{{ResourceType: "network-interface", Tags: tags}}
}

// groupOf returns the security group of an instance.
func groupOf(i ec2types.Instance) string { return *i.SecurityGroups[0].GroupId }

// create creates an interface of the CNI with changes.
func (v *vpcCNILab) create(api *ec2.Client, change func(*ec2.CreateNetworkInterfaceInput)) (string, error) {
	in := &ec2.CreateNetworkInterfaceInput{SubnetId: v.worker.SubnetId, Groups: []string{groupOf(v.worker)}, TagSpecifications: v.tagged("demo")}
	change(in)
	out, err := api.CreateNetworkInterface(v.Context(), in)
	if err != nil {
		return "", err
	}

	return *out.NetworkInterface.NetworkInterfaceId, nil
}

// stranger creates what does not belong to the cluster: an instance, its interface, a subnet and a security group.
func (v *vpcCNILab) stranger() (instance ec2types.Instance, group string) {
	v.Helper()
	subnets, err := v.ec2.DescribeSubnets(v.Context(), &ec2.DescribeSubnetsInput{Filters: []ec2types.Filter{
		{Name: sdk.String("default-for-az"), Values: []string{"true"}}, {Name: sdk.String("availability-zone"), Values: []string{*v.worker.Placement.AvailabilityZone}},
	}})
	v.check(err)
	out, err := v.ec2.RunInstances(v.Context(), &ec2.RunInstancesInput{
		ImageId: v.worker.ImageId, InstanceType: "t3.medium", MinCount: sdk.Int32(1), MaxCount: sdk.Int32(1), SubnetId: subnets.Subnets[0].SubnetId,
	})
	v.check(err)
	made, err := v.ec2.CreateSecurityGroup(v.Context(), &ec2.CreateSecurityGroupInput{GroupName: sdk.String("others"), Description: sdk.String("others"), VpcId: v.worker.VpcId})
	v.check(err)

	return out.Instances[0], *made.GroupId
}

// TestVPCCNIIsLimited: with the role of the Amazon VPC CNI, interfaces with the cluster's tag can be created in its subnets with its security
// groups, and be attached to its machines. Interfaces, machines, subnets and groups of others can be neither used nor changed. Never
// open: the role's policy and this test were made together.
func TestVPCCNIIsLimited(t *testing.T) {
	v := newVPCCNILab(t)
	c := v.assumeAs(vpcCNIRole, "kube-system", vpcCNIAccount)
	mine := ec2.NewFromConfig(v.config(c))
	own, err := v.create(mine, func(*ec2.CreateNetworkInterfaceInput) {})
	v.check(err)
	other, group := v.stranger()
	foreign := *other.NetworkInterfaces[0].NetworkInterfaceId
	loose, err := v.create(v.ec2, func(in *ec2.CreateNetworkInterfaceInput) { in.TagSpecifications = v.tagged("demo-2") })
	v.check(err)

	creations := map[string]func(*ec2.CreateNetworkInterfaceInput){
		"an interface without tags":                func(in *ec2.CreateNetworkInterfaceInput) { in.TagSpecifications = nil },
		"an interface of another cluster":          func(in *ec2.CreateNetworkInterfaceInput) { in.TagSpecifications = v.tagged("demo-2") },
		"an interface with a tag of Slipway":       func(in *ec2.CreateNetworkInterfaceInput) { in.TagSpecifications = v.tagged("demo", "slipway.dev/id") },
		"an interface in another subnet":           func(in *ec2.CreateNetworkInterfaceInput) { in.SubnetId, in.Groups = other.SubnetId, nil },
		"an interface with another security group": func(in *ec2.CreateNetworkInterfaceInput) { in.Groups = []string{group} },
	}
	for what, change := range creations {
		_, err := v.create(mine, change)
		v.denied(what, err)
	}

	attempts := map[string]func() error{
		"attach an interface to another machine": func() error {
			_, err := mine.AttachNetworkInterface(t.Context(), &ec2.AttachNetworkInterfaceInput{InstanceId: other.InstanceId, NetworkInterfaceId: &own, DeviceIndex: sdk.Int32(1)})
			return err
		},
		"attach an interface of another cluster": func() error {
			_, err := mine.AttachNetworkInterface(t.Context(), &ec2.AttachNetworkInterfaceInput{InstanceId: v.worker.InstanceId, NetworkInterfaceId: &loose, DeviceIndex: sdk.Int32(1)})
			return err
		},
		"delete an interface of another cluster": func() error {
			_, err := mine.DeleteNetworkInterface(t.Context(), &ec2.DeleteNetworkInterfaceInput{NetworkInterfaceId: &loose})
			return err
		},
		"detach an interface of another machine": func() error {
			_, err := mine.DetachNetworkInterface(t.Context(), &ec2.DetachNetworkInterfaceInput{AttachmentId: other.NetworkInterfaces[0].Attachment.AttachmentId})
			return err
		},
		"address for another machine": func() error {
			_, err := mine.AssignPrivateIpAddresses(t.Context(), &ec2.AssignPrivateIpAddressesInput{NetworkInterfaceId: &foreign, SecondaryPrivateIpAddressCount: sdk.Int32(1)})
			return err
		},
		"tag an interface of another machine": func() error {
			_, err := mine.CreateTags(t.Context(), &ec2.CreateTagsInput{Resources: []string{foreign}, Tags: v.tagged("demo")[0].Tags})
			return err
		},
		"tag a machine": func() error {
			_, err := mine.CreateTags(t.Context(), &ec2.CreateTagsInput{Resources: []string{*v.worker.InstanceId}, Tags: v.tagged("demo")[0].Tags})
			return err
		},
		"another tag for an interface of the cluster": func() error {
			_, err := mine.CreateTags(t.Context(), &ec2.CreateTagsInput{Resources: []string{*v.worker.NetworkInterfaces[0].NetworkInterfaceId}, Tags: v.tagged("demo", "slipway.dev/id")[0].Tags})
			return err
		},
		"another security group for an own interface": func() error {
			_, err := mine.ModifyNetworkInterfaceAttribute(t.Context(), &ec2.ModifyNetworkInterfaceAttributeInput{NetworkInterfaceId: &own, Groups: []string{group}})
			return err
		},
	}
	for what, attempt := range attempts {
		v.denied(what, attempt())
	}
}
