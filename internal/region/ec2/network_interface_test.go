// SPDX-License-Identifier: Apache-2.0

package ec2_test

import (
	"context"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	client "github.com/aws/aws-sdk-go-v2/service/ec2"
	"github.com/aws/aws-sdk-go-v2/service/ec2/types"
	sdk "github.com/aws/aws-sdk-go/service/ec2"
	"github.com/google/go-cmp/cmp"

	"github.com/slipway-k8s/slipway/internal/region/ec2"
	"github.com/slipway-k8s/slipway/internal/region/wire"
)

// interfaceLab is a region with a running t3.medium, which has 3 interfaces with 6 addresses each.
type interfaceLab struct {
	region
	t                     *testing.T
	vpc, subnet, instance string
}

func newInterfaceLab(t *testing.T) interfaceLab {
	t.Helper()
	r := newRegion(t)
	l := interfaceLab{region: r, t: t}
	l.vpc, l.subnet = r.createVPCWithSubnet(t)
	l.instance = *r.runInstance(t, l.subnet).InstanceId
	r.clock.Add(time.Second)

	return l
}

// create creates an interface with a number of secondary addresses.
func (l interfaceLab) create(addresses int32) string {
	l.t.Helper()
	in := &client.CreateNetworkInterfaceInput{SubnetId: &l.subnet, TagSpecifications: tags("network-interface", "team", "a")}
	if addresses > 0 {
		in.SecondaryPrivateIpAddressCount = &addresses
	}
	return *must[*client.CreateNetworkInterfaceOutput](l.t)(l.CreateNetworkInterface(l.t.Context(), in)).NetworkInterface.NetworkInterfaceId
}

// attach attaches an interface, and returns the attachment.
func (l interfaceLab) attach(id string, device int32) (string, error) {
	out, err := l.AttachNetworkInterface(l.t.Context(), &client.AttachNetworkInterfaceInput{InstanceId: &l.instance, NetworkInterfaceId: &id, DeviceIndex: &device})
	if err != nil {
		return "", err
	}
	return *out.AttachmentId, nil
}

// mustAttach attaches an interface, and waits until the machine sees it.
func (l interfaceLab) mustAttach(id string, device int32) string {
	l.t.Helper()
	attachment, err := l.attach(id, device)
	if err != nil {
		l.t.Fatal(err)
	}
	l.clock.Add(time.Second)
	return attachment
}

func (l interfaceLab) describe(id string) types.NetworkInterface {
	l.t.Helper()
	out := must[*client.DescribeNetworkInterfacesOutput](l.t)(l.DescribeNetworkInterfaces(l.t.Context(), &client.DescribeNetworkInterfacesInput{NetworkInterfaceIds: []string{id}}))
	return out.NetworkInterfaces[0]
}

// addresses returns the addresses of an interface and then its prefixes.
func (l interfaceLab) addresses(id string) []string {
	l.t.Helper()
	n := l.describe(id)
	var out []string
	for i, a := range n.PrivateIpAddresses {
		if *a.Primary != (i == 0) {
			l.t.Errorf("address %d, %s, of %s is primary: %v", i, *a.PrivateIpAddress, id, *a.Primary)
		}
		out = append(out, *a.PrivateIpAddress)
	}
	for _, p := range n.Ipv4Prefixes {
		out = append(out, *p.Ipv4Prefix)
	}
	return out
}

func (l interfaceLab) assign(id string, change func(*client.AssignPrivateIpAddressesInput)) error {
	in := &client.AssignPrivateIpAddressesInput{NetworkInterfaceId: &id}
	change(in)
	_, err := l.AssignPrivateIpAddresses(l.t.Context(), in)
	return err
}

// free returns the number of free addresses of the subnet.
func (l interfaceLab) free() int32 {
	l.t.Helper()
	out := must[*client.DescribeSubnetsOutput](l.t)(l.DescribeSubnets(l.t.Context(), &client.DescribeSubnetsInput{SubnetIds: []string{l.subnet}}))
	return *out.Subnets[0].AvailableIpAddressCount
}

func (l interfaceLab) wantCode(what, want string, err error) {
	l.t.Helper()
	if got := code(err); got != want {
		l.t.Errorf("%s: %q, want %q (%v)", what, got, want, err)
	}
}

// TestSecondaryAddresses: interfaces get addresses and prefixes, up to the limit of the instance's type, all or none.
func TestSecondaryAddresses(t *testing.T) {
	l := newInterfaceLab(t)
	if got := l.free(); got != 250 {
		t.Fatalf("%d free addresses, want 250", got)
	}
	id := l.create(2)
	l.mustAttach(id, 1)
	if diff := cmp.Diff([]string{"10.0.1.5", "10.0.1.6", "10.0.1.7"}, l.addresses(id)); diff != "" {
		t.Errorf("addresses (-want +got):\n%s", diff)
	}
	l.wantCode("one more than the type has", "PrivateIpAddressLimitExceeded", l.assign(id, func(in *client.AssignPrivateIpAddressesInput) { in.SecondaryPrivateIpAddressCount = aws.Int32(4) }))
	l.wantCode("a count of 0", "InvalidParameterValue", l.assign(id, func(in *client.AssignPrivateIpAddressesInput) { in.SecondaryPrivateIpAddressCount = aws.Int32(0) }))
	l.wantCode("nothing", "MissingParameter", l.assign(id, func(*client.AssignPrivateIpAddressesInput) {}))
	l.wantCode("a used address", "InvalidIPAddress.InUse", l.assign(id, func(in *client.AssignPrivateIpAddressesInput) {
		in.PrivateIpAddresses = []string{"10.0.1.9", "10.0.1.6"}
	}))
	l.wantCode("a reserved prefix", "InvalidParameterValue", l.assign(id, func(in *client.AssignPrivateIpAddressesInput) { in.Ipv4Prefixes = []string{"10.0.1.0/28"} }))
	l.wantCode("addresses and prefixes", "InvalidParameterCombination", l.assign(id, func(in *client.AssignPrivateIpAddressesInput) {
		in.SecondaryPrivateIpAddressCount, in.Ipv4PrefixCount = aws.Int32(1), aws.Int32(1)
	}))
	l.wantCode("reassignment", "NotImplemented", l.assign(id, func(in *client.AssignPrivateIpAddressesInput) {
		in.PrivateIpAddresses, in.AllowReassignment = []string{"10.0.1.9"}, aws.Bool(true)
	}))
	l.wantCode("an unknown interface", "InvalidNetworkInterfaceID.NotFound", l.assign("eni-0123456789abcdef0", func(in *client.AssignPrivateIpAddressesInput) { in.SecondaryPrivateIpAddressCount = aws.Int32(1) }))
	if got := len(l.addresses(id)); got != 3 {
		t.Errorf("%d addresses after refusals, want 3", got)
	}

	l.wantCode("an address", "", l.assign(id, func(in *client.AssignPrivateIpAddressesInput) { in.PrivateIpAddresses = []string{"10.0.1.9"} }))
	l.wantCode("prefixes", "", l.assign(id, func(in *client.AssignPrivateIpAddressesInput) { in.Ipv4PrefixCount = aws.Int32(2) }))
	if diff := cmp.Diff([]string{"10.0.1.5", "10.0.1.6", "10.0.1.7", "10.0.1.9", "10.0.1.16/28", "10.0.1.32/28"}, l.addresses(id)); diff != "" {
		t.Errorf("addresses (-want +got):\n%s", diff)
	}
	if got := l.free(); got != 250-4-32 {
		t.Errorf("%d free addresses, want %d", got, 250-4-32)
	}
	if got := l.described().NetworkInterfaces[1]; len(got.PrivateIpAddresses) != 4 || len(got.Ipv4Prefixes) != 2 {
		t.Errorf("the instance shows %d addresses and %d prefixes, want 4 and 2", len(got.PrivateIpAddresses), len(got.Ipv4Prefixes))
	}
	found := must[*client.DescribeNetworkInterfacesOutput](t)(l.DescribeNetworkInterfaces(t.Context(), &client.DescribeNetworkInterfacesInput{Filters: filters("addresses.private-ip-address", "10.0.1.9")}))
	if len(found.NetworkInterfaces) != 1 {
		t.Errorf("%d interfaces with the address, want 1", len(found.NetworkInterfaces))
	}

	for what, c := range map[string]struct {
		in   client.UnassignPrivateIpAddressesInput
		want string
	}{
		"the primary address": {client.UnassignPrivateIpAddressesInput{PrivateIpAddresses: []string{"10.0.1.5"}}, "InvalidParameterValue"},
		"another address":     {client.UnassignPrivateIpAddressesInput{PrivateIpAddresses: []string{"10.0.1.6", "10.0.1.8"}}, "InvalidParameterValue"},
		"another prefix":      {client.UnassignPrivateIpAddressesInput{Ipv4Prefixes: []string{"10.0.1.48/28"}}, "InvalidParameterValue"},
		"nothing":             {client.UnassignPrivateIpAddressesInput{}, "MissingParameter"},
	} {
		c.in.NetworkInterfaceId = &id
		_, err := l.UnassignPrivateIpAddresses(t.Context(), &c.in)
		l.wantCode("unassign "+what, c.want, err)
	}
	must[*client.UnassignPrivateIpAddressesOutput](t)(l.UnassignPrivateIpAddresses(t.Context(), &client.UnassignPrivateIpAddressesInput{NetworkInterfaceId: &id, PrivateIpAddresses: []string{"10.0.1.6"}}))
	must[*client.UnassignPrivateIpAddressesOutput](t)(l.UnassignPrivateIpAddresses(t.Context(), &client.UnassignPrivateIpAddressesInput{NetworkInterfaceId: &id, Ipv4Prefixes: []string{"10.0.1.16/28"}}))
	if diff := cmp.Diff([]string{"10.0.1.5", "10.0.1.7", "10.0.1.9", "10.0.1.32/28"}, l.addresses(id)); diff != "" {
		t.Errorf("addresses in the end (-want +got):\n%s", diff)
	}
}

func (l interfaceLab) described() types.Instance { return l.region.instance(l.t, l.instance) }

// TestFullSubnet: a subnet without free addresses or prefixes gives none, and a refused request takes nothing.
func TestFullSubnet(t *testing.T) {
	l := newInterfaceLab(t)
	small := *must[*client.CreateSubnetOutput](t)(l.CreateSubnet(t.Context(), &client.CreateSubnetInput{VpcId: &l.vpc, CidrBlock: aws.String("10.0.9.0/28"), AvailabilityZone: aws.String("us-east-1b")})).Subnet.SubnetId
	l.subnet = small // 11 addresses
	for what, c := range map[string]struct {
		in   client.CreateNetworkInterfaceInput
		want string
	}{
		"addresses": {client.CreateNetworkInterfaceInput{SecondaryPrivateIpAddressCount: aws.Int32(11)}, "InsufficientFreeAddressesInSubnet"},
		"prefixes":  {client.CreateNetworkInterfaceInput{Ipv4PrefixCount: aws.Int32(1)}, "InsufficientCidrBlocks"},
		"both":      {client.CreateNetworkInterfaceInput{SecondaryPrivateIpAddressCount: aws.Int32(1), Ipv4PrefixCount: aws.Int32(1)}, "InvalidParameterCombination"},
	} {
		c.in.SubnetId = &small
		_, err := l.CreateNetworkInterface(t.Context(), &c.in)
		l.wantCode(what, c.want, err)
	}
	if got := l.free(); got != 11 {
		t.Errorf("%d free addresses after refusals, want 11", got)
	}
	id := l.create(10)
	l.wantCode("one more", "InsufficientFreeAddressesInSubnet", l.assign(id, func(in *client.AssignPrivateIpAddressesInput) { in.SecondaryPrivateIpAddressCount = aws.Int32(1) }))
}

// TestAttachInterfaces: an instance takes as many interfaces as its type has, in its zone and with free device indexes. A detached
// interface stays in use for a while.
func TestAttachInterfaces(t *testing.T) {
	l := newInterfaceLab(t)
	first, second, third := l.create(0), l.create(0), l.create(0)
	_, err := l.attach(first, 0)
	l.wantCode("the device index of the primary interface", "InvalidParameterValue", err)
	attachment := l.mustAttach(first, 1)
	if n := l.describe(first); n.Status != "in-use" || n.Attachment.Status != "attached" || *n.Attachment.InstanceId != l.instance || *n.Attachment.DeleteOnTermination {
		t.Errorf("the attached interface is %+v with %+v", n.Status, n.Attachment)
	}
	_, err = l.attach(first, 2)
	l.wantCode("an attached interface", "InvalidNetworkInterface.InUse", err)
	_, err = l.attach(second, 1)
	l.wantCode("a used device index", "InvalidParameterValue", err)
	l.mustAttach(second, 2)
	_, err = l.attach(third, 3)
	l.wantCode("one more than the type has", "AttachmentLimitExceeded", err)

	remove := func(id string) error {
		_, err := l.DeleteNetworkInterface(t.Context(), &client.DeleteNetworkInterfaceInput{NetworkInterfaceId: &id})
		return err
	}
	detach := func(attachment string) error {
		_, err := l.DetachNetworkInterface(t.Context(), &client.DetachNetworkInterfaceInput{AttachmentId: &attachment})
		return err
	}
	l.wantCode("delete an attached interface", "InvalidParameterValue", remove(first))
	l.wantCode("detach an unknown attachment", "InvalidAttachmentID.NotFound", detach("eni-attach-0123456789abcdef0"))
	l.wantCode("detach the primary interface", "OperationNotPermitted", detach(*l.described().NetworkInterfaces[0].Attachment.AttachmentId))
	l.wantCode("detach", "", detach(attachment))
	l.wantCode("delete a detaching interface", "InvalidParameterValue", remove(first))
	l.clock.Add(time.Second)
	l.wantCode("delete a detached interface", "", remove(first))
	if got := len(l.described().NetworkInterfaces); got != 2 {
		t.Errorf("the instance has %d interfaces, want 2", got)
	}
}

// TestAttachElsewhere: an interface of another zone or with too many addresses does not fit, and a pending instance takes none.
func TestAttachElsewhere(t *testing.T) {
	l := newInterfaceLab(t)
	l.wantCode("6 addresses", "", second(l.attach(l.create(5), 1)))
	l.wantCode("7 addresses", "PrivateIpAddressLimitExceeded", second(l.attach(l.create(6), 2)))
	pending := l
	pending.instance = *l.runInstance(t, l.subnet).InstanceId
	l.wantCode("a pending instance", "IncorrectState", second(pending.attach(l.create(0), 1)))
	l.subnet = *must[*client.CreateSubnetOutput](t)(l.CreateSubnet(t.Context(), &client.CreateSubnetInput{VpcId: &l.vpc, CidrBlock: aws.String("10.0.9.0/28"), AvailabilityZone: aws.String("us-east-1c")})).Subnet.SubnetId
	l.wantCode("another zone", "InvalidParameterCombination", second(l.attach(l.create(0), 2)))
}

// TestInterfacesOfRealMachines: the network has an interface and its addresses before EC2 shows it as attached, and has it no
// longer when EC2 shows it as detached. A machine that starts again has it at once.
func TestInterfacesOfRealMachines(t *testing.T) {
	m, n := newMachines(), &network{}
	r := newRegion(t, func(c *ec2.Config) { c.Machines, c.Network = m, n })
	start(t, r.svc)
	l := interfaceLab{region: r, t: t}
	l.vpc, l.subnet = r.createVPCWithSubnet(t)
	l.instance = *r.runInstance(t, l.subnet).InstanceId
	r.waitForState(t, l.instance, types.InstanceStateNameRunning)
	id := l.create(1)
	addr := netip.MustParseAddr(*l.describe(id).PrivateIpAddress)
	attachment, err := l.attach(id, 1)
	l.wantCode("attach", "", err)
	waitFor(t, "the attachment", func() bool { return l.describe(id).Attachment.Status == types.AttachmentStatusAttached })
	if !n.has(addr) {
		t.Errorf("the network lacks %s of the attached interface", addr)
	}

	r.stop(t, l.instance)
	r.waitForState(t, l.instance, types.InstanceStateNameStopped)
	must[*client.StartInstancesOutput](t)(r.StartInstances(t.Context(), &client.StartInstancesInput{InstanceIds: []string{l.instance}}))
	r.waitForState(t, l.instance, types.InstanceStateNameRunning)
	if more := m.started(l.instance).More; len(more) != 1 || more[0].Addr != addr || more[0].Device != 1 || len(more[0].Secondary) != 1 {
		t.Errorf("the machine started with the interfaces %+v", more)
	}

	_, err = l.DetachNetworkInterface(t.Context(), &client.DetachNetworkInterfaceInput{AttachmentId: &attachment})
	l.wantCode("detach", "", err)
	waitFor(t, "the detachment", func() bool { return l.describe(id).Status == types.NetworkInterfaceStatusAvailable })
	if n.has(addr) {
		t.Errorf("the network has %s of the detached interface", addr)
	}
}

func second[T any](_ T, err error) error { return err }

// TestInterfacesOfEndedInstances: an interface outlives its instance unless its attachment says otherwise.
func TestInterfacesOfEndedInstances(t *testing.T) {
	l := newInterfaceLab(t)
	kept, deleted := l.create(1), l.create(1)
	l.mustAttach(kept, 1)
	attachment := l.mustAttach(deleted, 2)
	change := func(attachment string) error {
		_, err := l.ModifyNetworkInterfaceAttribute(t.Context(), &client.ModifyNetworkInterfaceAttributeInput{
			NetworkInterfaceId: &deleted, Attachment: &types.NetworkInterfaceAttachmentChanges{AttachmentId: &attachment, DeleteOnTermination: aws.Bool(true)},
		})
		return err
	}
	l.wantCode("another attachment", "InvalidAttachmentID.NotFound", change("eni-attach-0123456789abcdef0"))
	l.wantCode("delete on termination", "", change(attachment))
	l.terminate(t, l.instance)
	l.clock.Add(time.Second)
	out := must[*client.DescribeNetworkInterfacesOutput](t)(l.DescribeNetworkInterfaces(t.Context(), &client.DescribeNetworkInterfacesInput{}))
	if len(out.NetworkInterfaces) != 1 || *out.NetworkInterfaces[0].NetworkInterfaceId != kept || out.NetworkInterfaces[0].Status != "available" || out.NetworkInterfaces[0].Attachment != nil {
		t.Errorf("interfaces after the end: %+v, want %s, available", out.NetworkInterfaces, kept)
	}
}

// TestSeveralInterfaces: requests that name an instance in the place of its interface are refused if it has several.
func TestSeveralInterfaces(t *testing.T) {
	l := newInterfaceLab(t)
	l.mustAttach(l.create(0), 1)
	_, err := l.ModifyInstanceAttribute(t.Context(), &client.ModifyInstanceAttributeInput{InstanceId: &l.instance, SourceDestCheck: &types.AttributeBooleanValue{Value: aws.Bool(false)}})
	l.wantCode("ModifyInstanceAttribute", "InvalidInstanceID", err)
	table := must[*client.CreateRouteTableOutput](t)(l.CreateRouteTable(t.Context(), &client.CreateRouteTableInput{VpcId: &l.vpc})).RouteTable.RouteTableId
	_, err = l.CreateRoute(t.Context(), &client.CreateRouteInput{RouteTableId: table, InstanceId: &l.instance, DestinationCidrBlock: aws.String("10.9.0.0/16")})
	l.wantCode("CreateRoute", "InvalidInstanceID", err)
	address := must[*client.AllocateAddressOutput](t)(l.AllocateAddress(t.Context(), &client.AllocateAddressInput{})).AllocationId
	_, err = l.AssociateAddress(t.Context(), &client.AssociateAddressInput{AllocationId: address, InstanceId: &l.instance})
	l.wantCode("AssociateAddress", "InvalidInstanceID", err)
}

// TestInterfaceMetadata: the machine sees each attached interface with its addresses.
func TestInterfaceMetadata(t *testing.T) {
	l := newInterfaceLab(t)
	m := l.svc.Metadata(func(string, string) (ec2.Credentials, error) { return ec2.Credentials{}, nil })
	id := l.create(1)
	l.wantCode("prefix", "", l.assign(id, func(in *client.AssignPrivateIpAddressesInput) { in.Ipv4PrefixCount = aws.Int32(2) }))
	l.wantCode("attach", "", second(l.attach(id, 1)))
	mac := *l.describe(id).MacAddress
	base := "meta-data/network/interfaces/macs/" + mac + "/"
	if paths := m.ListPaths(l.instance); slices.ContainsFunc(paths, func(p string) bool { return strings.HasPrefix(p, base) }) {
		t.Error("the machine sees an interface that is being attached")
	}
	l.clock.Add(time.Second)
	l.describe(id)
	for path, want := range map[string]string{
		base + "device-number": "1", base + "interface-id": id, base + "local-ipv4s": "10.0.1.5\n10.0.1.6", base + "ipv4-prefix": "10.0.1.16/28\n10.0.1.32/28",
		base + "subnet-ipv4-cidr-block": "10.0.1.0/24", "meta-data/mac": *l.described().NetworkInterfaces[0].MacAddress,
	} {
		if got, found, err := m.GetValue(l.instance, path); err != nil || !found || string(got) != want {
			t.Errorf("%s = %q, %v, %v; want %q", path, got, found, err, want)
		}
	}
}

// TestInterfaceRights: IAM is asked about the interface, and about the instance of its attachment.
func TestInterfaceRights(t *testing.T) {
	l := newInterfaceLab(t)
	id := l.create(0)
	attachment := l.mustAttach(id, 1)
	for _, c := range []struct {
		op   string
		in   any
		want []string
	}{
		{"DetachNetworkInterface", &sdk.DetachNetworkInterfaceInput{AttachmentId: &attachment}, []string{"instance/" + l.instance, "network-interface/" + id + " aws:ResourceTag/team=a"}},
		{"AttachNetworkInterface", &sdk.AttachNetworkInterfaceInput{NetworkInterfaceId: &id, InstanceId: &l.instance}, []string{"instance/" + l.instance, "network-interface/" + id + " aws:ResourceTag/team=a"}},
		{"ModifyNetworkInterfaceAttribute", &sdk.ModifyNetworkInterfaceAttributeInput{
			NetworkInterfaceId: &id, Attachment: &sdk.NetworkInterfaceAttachmentChanges{AttachmentId: &attachment},
		}, []string{"instance/" + l.instance, "network-interface/" + id + " aws:ResourceTag/team=a"}},
		{"AssignPrivateIpAddresses", &sdk.AssignPrivateIpAddressesInput{NetworkInterfaceId: &id}, []string{"network-interface/" + id + " aws:ResourceTag/team=a"}},
	} {
		a := &recordingAuthorizer{}
		ctx := wire.WithAuthorizer(wire.WithCaller(context.Background(), wire.Caller{Account: "000000000000", Role: "worker", ARN: "arn"}), a)
		if err := l.svc.Wire().Authorize(ctx, c.op, c.in); err != nil {
			t.Errorf("%s: %v", c.op, err)
		}
		for i := range a.lines {
			a.lines[i] = strings.TrimPrefix(a.lines[i], "ec2:"+c.op+" ")
		}
		slices.Sort(a.lines)
		if diff := cmp.Diff(c.want, a.lines); diff != "" {
			t.Errorf("%s asks (-want +got):\n%s", c.op, diff)
		}
	}
}
