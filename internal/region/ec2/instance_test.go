// SPDX-License-Identifier: Apache-2.0

package ec2_test

import (
	"context"
	"encoding/base64"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	client "github.com/aws/aws-sdk-go-v2/service/ec2"
	"github.com/aws/aws-sdk-go-v2/service/ec2/types"
	"github.com/google/go-cmp/cmp"

	"github.com/slipway-k8s/slipway/internal/region/ec2"
	"github.com/slipway-k8s/slipway/internal/region/netspec"
)

// network is a fake of ec2.Network that stores the last network.
type network struct {
	mu   sync.Mutex
	last netspec.Network
}

func (n *network) Sync(_ context.Context, p netspec.Network) error {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.last = p
	return nil
}
func (n *network) Health() netspec.TargetHealth { return netspec.TargetHealth{} }

func (n *network) has(addr netip.Addr) bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	for _, v := range n.last.VPCs {
		for _, i := range v.Interfaces {
			if i.Addr == addr {
				return true
			}
		}
	}
	return false
}

// checkingMachines refuses to launch a machine that the network does not have yet.
type checkingMachines struct {
	*machines
	net *network
	t   *testing.T
}

func (c checkingMachines) Launch(ctx context.Context, m netspec.Machine) error {
	if !c.net.has(m.Iface.Addr) {
		c.t.Errorf("%s was launched before the network has %s", m.ID, m.Iface.Addr)
	}
	return c.machines.Launch(ctx, m)
}

// createVPCWithSubnet creates a VPC with one subnet.
func (r region) createVPCWithSubnet(t *testing.T) (vpc, subnet string) {
	t.Helper()
	v := must[*client.CreateVpcOutput](t)(r.CreateVpc(t.Context(), &client.CreateVpcInput{CidrBlock: aws.String("10.0.0.0/16")}))
	n := must[*client.CreateSubnetOutput](t)(r.CreateSubnet(t.Context(), &client.CreateSubnetInput{
		VpcId: v.Vpc.VpcId, CidrBlock: aws.String("10.0.1.0/24"), AvailabilityZone: aws.String("us-east-1b"),
	}))
	return *v.Vpc.VpcId, *n.Subnet.SubnetId
}

func (r region) runInstance(t *testing.T, subnet string) types.Instance {
	t.Helper()
	out := must[*client.RunInstancesOutput](t)(r.RunInstances(t.Context(), &client.RunInstancesInput{
		ImageId: aws.String(image), InstanceType: "t3.medium", MinCount: aws.Int32(1), MaxCount: aws.Int32(1), SubnetId: &subnet,
		UserData:           aws.String(base64.StdEncoding.EncodeToString([]byte("#!/bin/sh"))),
		MetadataOptions:    &types.InstanceMetadataOptionsRequest{HttpTokens: "required", InstanceMetadataTags: "enabled"},
		TagSpecifications:  tags("instance", "Name", "one"),
		IamInstanceProfile: &types.IamInstanceProfileSpecification{Name: aws.String("worker")},
	}))
	return out.Instances[0]
}

func (r region) instance(t *testing.T, id string) types.Instance {
	t.Helper()
	out := must[*client.DescribeInstancesOutput](t)(r.DescribeInstances(t.Context(), &client.DescribeInstancesInput{InstanceIds: []string{id}}))
	return out.Reservations[0].Instances[0]
}

// waitFor waits in real time: Run does not use the clock of the test.
func waitFor(t *testing.T, what string, ok func() bool) {
	t.Helper()
	for range 500 {
		if ok() {
			return
		}
		time.Sleep(10 * time.Millisecond)
	}
	t.Fatal("timed out waiting for: " + what)
}

func (r region) waitForState(t *testing.T, id string, want types.InstanceStateName) {
	t.Helper()
	waitFor(t, "instance "+string(want), func() bool { return r.instance(t, id).State.Name == want })
}

func start(t *testing.T, svc *ec2.Service) {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() { defer close(done); svc.Run(ctx) }()
	t.Cleanup(func() { cancel(); <-done })
}

func TestMachineFollowsInstance(t *testing.T) {
	m, n := newMachines(), &network{}
	r := newRegion(t, func(c *ec2.Config) { c.Machines, c.Network = checkingMachines{m, n, t}, n })
	start(t, r.svc)
	ctx := t.Context()
	_, subnet := r.createVPCWithSubnet(t)
	id := *r.runInstance(t, subnet).InstanceId
	r.waitForState(t, id, types.InstanceStateNameRunning)
	if got := *r.instance(t, id).PrivateDnsName; got != "ip-10-0-1-4.ec2.internal" {
		t.Errorf("private DNS name: got %s", got)
	}
	if spec := m.live[id]; spec.Hostname != "ip-10-0-1-4" || spec.Gateway.String() != "10.0.1.1" || spec.Resolver.String() != "10.0.0.2" || spec.VCPUs != 2 {
		t.Errorf("the machine was launched as %+v", spec)
	}
	v := must[*client.CreateVolumeOutput](t)(r.CreateVolume(ctx, &client.CreateVolumeInput{
		AvailabilityZone: aws.String("us-east-1b"), Size: aws.Int32(4), VolumeType: "gp3", Encrypted: aws.Bool(true),
	}))
	volume := func() types.Volume {
		out := must[*client.DescribeVolumesOutput](t)(r.DescribeVolumes(ctx, &client.DescribeVolumesInput{VolumeIds: []string{*v.VolumeId}}))
		return out.Volumes[0]
	}
	waitFor(t, "volume available", func() bool { return volume().State == types.VolumeStateAvailable })
	must[*client.AttachVolumeOutput](t)(r.AttachVolume(ctx, &client.AttachVolumeInput{VolumeId: v.VolumeId, InstanceId: &id, Device: aws.String("/dev/sdf")}))
	waitFor(t, "volume attached", func() bool { return volume().Attachments[0].State == types.VolumeAttachmentStateAttached })
	_, err := r.DeleteVolume(ctx, &client.DeleteVolumeInput{VolumeId: v.VolumeId})
	if code(err) != "VolumeInUse" {
		t.Errorf("delete an attached volume: %v", err)
	}
	must[*client.TerminateInstancesOutput](t)(r.TerminateInstances(ctx, &client.TerminateInstancesInput{InstanceIds: []string{id}}))
	r.waitForState(t, id, types.InstanceStateNameTerminated)
	if got := volume().State; got != types.VolumeStateAvailable {
		t.Errorf("the volume is %s after its instance ended, want available", got)
	}
	if m.Alive(id) {
		t.Error("the machine still runs")
	}
	second := r.runInstance(t, subnet)
	if *second.PrivateIpAddress == "10.0.1.4" {
		t.Error("the next instance has the address of the last one")
	}
}

// TestStoppedMachineKeepsItsDisk: stopping an instance ends its machine, and only its termination removes it.
func TestStoppedMachineKeepsItsDisk(t *testing.T) {
	m := newMachines()
	r := newRegion(t, func(c *ec2.Config) { c.Machines = m })
	start(t, r.svc)
	_, subnet := r.createVPCWithSubnet(t)
	id := *r.runInstance(t, subnet).InstanceId
	r.waitForState(t, id, types.InstanceStateNameRunning)
	must[*client.StopInstancesOutput](t)(r.StopInstances(t.Context(), &client.StopInstancesInput{InstanceIds: []string{id}}))
	r.waitForState(t, id, types.InstanceStateNameStopped)
	if log := m.lines(); slices.Contains(log, "terminate") || !slices.Contains(log, "stop") {
		t.Errorf("a stopped instance: %q", log)
	}
	must[*client.StartInstancesOutput](t)(r.StartInstances(t.Context(), &client.StartInstancesInput{InstanceIds: []string{id}}))
	r.waitForState(t, id, types.InstanceStateNameRunning)
	must[*client.TerminateInstancesOutput](t)(r.TerminateInstances(t.Context(), &client.TerminateInstancesInput{InstanceIds: []string{id}}))
	r.waitForState(t, id, types.InstanceStateNameTerminated)
	if log := m.lines(); !slices.Contains(log, "terminate") {
		t.Errorf("a terminated instance: %q", log)
	}
}

func TestDeadMachineIsImpaired(t *testing.T) {
	m := newMachines()
	r := newRegion(t, func(c *ec2.Config) { c.Machines = m })
	told := make(chan struct{}, 100)
	r.svc.AddWatcher(func() { told <- struct{}{} })
	start(t, r.svc)
	_, subnet := r.createVPCWithSubnet(t)
	id := *r.runInstance(t, subnet).InstanceId
	r.waitForState(t, id, types.InstanceStateNameRunning)
	_ = m.Terminate(t.Context(), id)
	waitFor(t, "impaired", func() bool { f, _ := r.svc.InstanceInfo(id); return f.Impaired })
	out := must[*client.DescribeInstanceStatusOutput](t)(r.DescribeInstanceStatus(t.Context(), &client.DescribeInstanceStatusInput{InstanceIds: []string{id}}))
	if got := out.InstanceStatuses[0].InstanceStatus.Status; got != types.SummaryStatusImpaired {
		t.Errorf("status is %s, want impaired", got)
	}
	if len(told) == 0 {
		t.Error("the watchers were not called")
	}
}

type profiles struct{}

func (profiles) InstanceProfile(name string) (ec2.Profile, bool) {
	ok := strings.HasSuffix(name, "worker")
	return ec2.Profile{
		ARN: "arn:aws:iam::000000000000:instance-profile/worker", ID: "AIPA1", Role: "worker-role", RoleARN: "arn:aws:iam::000000000000:role/worker-role",
	}, ok
}

func TestMetadata(t *testing.T) {
	r := newRegion(t, func(c *ec2.Config) { c.Profiles = profiles{} })
	vpc, subnet := r.createVPCWithSubnet(t)
	id := *r.runInstance(t, subnet).InstanceId
	issued := 0
	m := r.svc.Metadata(func(_, role string) (ec2.Credentials, error) {
		issued++
		return ec2.Credentials{AccessKeyID: "ASIA1", SecretAccessKey: "s", Token: role, Expiration: r.clock.Now().Add(6 * time.Hour)}, nil
	})
	if got, ok := m.FindInstance(vpc, netip.MustParseAddr("10.0.1.4")); !ok || got != id {
		t.Fatalf("10.0.1.4 is %q, want %s", got, id)
	}
	if required, enabled := m.TokenOptions(id); !required || !enabled {
		t.Errorf("tokens required %v, enabled %v; want both", required, enabled)
	}
	for path, want := range map[string]string{
		"meta-data/instance-id": id, "meta-data/local-hostname": "ip-10-0-1-4.ec2.internal", "meta-data/tags/instance/Name": "one",
		"meta-data/placement/availability-zone": "us-east-1b", "user-data": "#!/bin/sh",
	} {
		if got, found, err := m.GetValue(id, path); err != nil || !found || string(got) != want {
			t.Errorf("%s = %q, %v, %v; want %q", path, got, found, err, want)
		}
	}
	for range 2 {
		got, _, err := m.GetValue(id, "meta-data/iam/security-credentials/worker-role")
		if err != nil || !strings.Contains(string(got), `"AccessKeyId": "ASIA1"`) {
			t.Errorf("credentials: %s, %v", got, err)
		}
	}
	if issued != 1 {
		t.Errorf("credentials were issued %d times, want once", issued)
	}
	if _, found, _ := m.GetValue(id, "meta-data/public-keys"); found {
		t.Error("the metadata has public keys")
	}
}

// TestPublicKeyInMetadata: an instance has the public key of its key pair also after that was deleted.
func TestPublicKeyInMetadata(t *testing.T) {
	r := newRegion(t)
	_, subnet := r.createVPCWithSubnet(t)
	const key = "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIGVXZ8nTT4a6Wb0MmJxQtuWgtCFCWRx8xFcZ2u0yqj2F"
	if _, err := r.ImportKeyPair(t.Context(), &client.ImportKeyPairInput{KeyName: new("ours"), PublicKeyMaterial: []byte(key + " someone@home")}); err != nil {
		t.Fatal(err)
	}
	out := must[*client.RunInstancesOutput](t)(r.RunInstances(t.Context(), &client.RunInstancesInput{
		ImageId: aws.String(image), InstanceType: "t3.medium", MinCount: aws.Int32(1), MaxCount: aws.Int32(1), SubnetId: &subnet, KeyName: new("ours"),
	}))
	if _, err := r.DeleteKeyPair(t.Context(), &client.DeleteKeyPairInput{KeyName: new("ours")}); err != nil {
		t.Fatal(err)
	}
	m := r.svc.Metadata(nil)
	for path, want := range map[string]string{"meta-data/public-keys": "0=ours", "meta-data/public-keys/0/openssh-key": key + " ours"} {
		if got, found, err := m.GetValue(*out.Instances[0].InstanceId, path); err != nil || !found || string(got) != want {
			t.Errorf("%s = %q, %v, %v; want %q", path, got, found, err, want)
		}
	}
}

// unbootableImage is an image of an architecture that this host cannot run.
func unbootableImage() ec2.Image {
	return ec2.Image{ID: "ami-0123456789abcdef1", Architecture: "arm64", RootDevice: "/dev/xvda", RootSizeGiB: 8}
}

func TestRunInstancesErrors(t *testing.T) {
	r := newRegion(t, func(c *ec2.Config) {
		c.Profiles = profiles{}
		c.Quotas.VCPUs = 4
		c.Images = append(c.Images, unbootableImage())
		c.Unbootable = func(id string) string {
			if id == unbootableImage().ID {
				return "This computer is amd64."
			}
			return ""
		}
	})
	_, subnet := r.createVPCWithSubnet(t)
	good := func() *client.RunInstancesInput {
		return &client.RunInstancesInput{
			ImageId: aws.String(image), InstanceType: "t3.medium", MinCount: aws.Int32(1), MaxCount: aws.Int32(1), SubnetId: &subnet,
		}
	}
	for name, c := range map[string]struct {
		change func(*client.RunInstancesInput)
		want   string
	}{
		"unknown image":      {func(in *client.RunInstancesInput) { in.ImageId = aws.String("ami-00000000000000000") }, "InvalidAMIID.NotFound"},
		"unknown type":       {func(in *client.RunInstancesInput) { in.InstanceType = "t9.huge" }, "InvalidParameterValue"},
		"other architecture": {func(in *client.RunInstancesInput) { in.InstanceType = "m7g.large" }, "InvalidParameterValue"},
		"not to be booted here": {func(in *client.RunInstancesInput) {
			in.ImageId, in.InstanceType = aws.String("ami-0123456789abcdef1"), "m7g.large"
		}, "Unsupported"},
		"market": {func(in *client.RunInstancesInput) {
			in.InstanceMarketOptions = &types.InstanceMarketOptionsRequest{MarketType: "capacity-block"}
		}, "InvalidParameterValue"},
		"unknown subnet": {func(in *client.RunInstancesInput) { in.SubnetId = aws.String("subnet-00000000000000000") }, "InvalidSubnetID.NotFound"},
		"unknown group":  {func(in *client.RunInstancesInput) { in.SecurityGroupIds = []string{"sg-00000000000000000"} }, "InvalidGroup.NotFound"},
		"user data too long": {func(in *client.RunInstancesInput) {
			in.UserData = aws.String(base64.StdEncoding.EncodeToString(make([]byte, 16385)))
		}, "InvalidParameterValue"},
		"user data no base64": {func(in *client.RunInstancesInput) { in.UserData = aws.String("#!") }, "InvalidUserData.Malformed"},
		"too many vCPUs":      {func(in *client.RunInstancesInput) { in.MinCount, in.MaxCount = aws.Int32(3), aws.Int32(3) }, "VcpuLimitExceeded"},
		"unknown profile": {func(in *client.RunInstancesInput) {
			in.IamInstanceProfile = &types.IamInstanceProfileSpecification{Name: aws.String("nobody")}
		}, "InvalidParameterValue"},
		"reserved tag": {func(in *client.RunInstancesInput) { in.TagSpecifications = tags("instance", "aws:x", "y") }, "InvalidParameterValue"},
		"dry run":      {func(in *client.RunInstancesInput) { in.DryRun = aws.Bool(true) }, "DryRunOperation"},
	} {
		t.Run(name, func(t *testing.T) {
			in := good()
			c.change(in)
			if _, err := r.RunInstances(t.Context(), in); code(err) != c.want {
				t.Errorf("got %v, want %s", err, c.want)
			}
		})
	}
	out := must[*client.DescribeInstancesOutput](t)(r.DescribeInstances(t.Context(), &client.DescribeInstancesInput{}))
	if len(out.Reservations) != 0 {
		t.Errorf("refused launches left %d reservations", len(out.Reservations))
	}
}

func TestRunInstancesTokenIsIdempotent(t *testing.T) {
	r := newRegion(t)
	_, subnet := r.createVPCWithSubnet(t)
	in := &client.RunInstancesInput{
		ImageId: aws.String(image), InstanceType: "t3.medium", MinCount: aws.Int32(2), MaxCount: aws.Int32(2), SubnetId: &subnet, ClientToken: aws.String("one"),
	}
	first := must[*client.RunInstancesOutput](t)(r.RunInstances(t.Context(), in))
	again := must[*client.RunInstancesOutput](t)(r.RunInstances(t.Context(), in))
	id := func(o *client.RunInstancesOutput) []string {
		return []string{*o.Instances[0].InstanceId, *o.Instances[1].InstanceId}
	}
	if diff := cmp.Diff(id(first), id(again)); diff != "" {
		t.Errorf("a repeated request launched other instances (-first +second):\n%s", diff)
	}
	in.InstanceType = "t3.large"
	if _, err := r.RunInstances(t.Context(), in); code(err) != "IdempotentParameterMismatch" {
		t.Errorf("the token with other parameters: %v", err)
	}
}
