// SPDX-License-Identifier: Apache-2.0

package ec2

import (
	"slices"
	"strings"

	sdk "github.com/aws/aws-sdk-go/service/ec2"
)

// launchInstance adds one new instance with its network interface and volumes to the state, and returns its
// id.
func (s launchHandlers) launchInstance(l *launchRequest, reservation string, index int64) (string, error) {
	id := s.newID("i")
	networkInterface, err := networkInterfaceHandlers(s).newNetworkInterface(interfaceSpec{
		subnet:    l.subnet,
		kind:      "interface",
		groups:    l.groups,
		privateIP: l.privateIP,
	})
	if err != nil {
		return "", err
	}

	networkInterface.Attachment.InstanceId = new(id)
	if l.publicIP {
		ip := addressHandlers(s).allocatePublicIP()
		networkInterface.Association = &sdk.NetworkInterfaceAssociation{
			PublicIp:      new(ip),
			PublicDnsName: new(s.cfg.publicDNSName(ip)),
			IpOwnerId:     new("amazon"),
		}
	}

	i := s.newInstance(l, id, networkInterface, index)
	s.st.Instances[id] = i
	x := &instanceExtra{
		ReservationID: reservation,
		UserData:      str(l.in.UserData),
		PublicKey:     s.st.publicKeyOf(str(l.in.KeyName)),
		Shutdown:      "stop",
		NoTermination: isTrue(l.in.DisableApiTermination),
		NoStop:        isTrue(l.in.DisableApiStop),
		Interface:     str(networkInterface.NetworkInterfaceId),
	}
	if b := str(l.in.InstanceInitiatedShutdownBehavior); b != "" {
		x.Shutdown = b
	}

	if l.profile != nil {
		x.Role = l.profile.Role
	}

	s.st.Extra[id] = x
	if err := s.addLaunchVolumes(l, i); err != nil {
		s.st.discardInstance(id)
		return "", err
	}

	s.st.setTags(id, l.tags["instance"])
	s.st.setTags(id, l.templateTags)
	s.st.setTags(x.Interface, l.tags["network-interface"])

	return id, nil
}

// newInstance returns the record of an instance in state pending; index is its number in the reservation,
// from 0.
func (s launchHandlers) newInstance(
	l *launchRequest,
	id string,
	networkInterface *sdk.NetworkInterface,
	index int64,
) *sdk.Instance {
	i := &sdk.Instance{
		InstanceId:     new(id),
		ImageId:        l.in.ImageId,
		InstanceType:   new(l.instanceType),
		Architecture:   new(l.image.Architecture),
		AmiLaunchIndex: new(index),
		ClientToken:    new(str(l.in.ClientToken)),
		KeyName:        l.in.KeyName,
		LaunchTime:     new(s.cfg.Now().UTC()),
		State:          newInstanceState(sdk.InstanceStateNamePending),
		SubnetId:       l.subnet.SubnetId,
		VpcId:          l.subnet.VpcId,
		Placement: &sdk.Placement{
			AvailabilityZone: l.subnet.AvailabilityZone,
			Tenancy:          new("default"),
			GroupName:        new(""),
		},
		MetadataOptions:       l.metadataOptions,
		Monitoring:            &sdk.Monitoring{State: new("disabled")},
		EbsOptimized:          new(isTrue(l.in.EbsOptimized)),
		PrivateIpAddress:      networkInterface.PrivateIpAddress,
		PrivateDnsName:        new(s.cfg.privateName(id, networkInterface, l.hostname)),
		PublicDnsName:         new(""),
		PrivateDnsNameOptions: new(l.hostname),
		RootDeviceName:        new(l.image.RootDevice),
		RootDeviceType:        new("ebs"),
		VirtualizationType:    new("hvm"),
		Hypervisor:            new("xen"),
		EnaSupport:            new(true),
		SourceDestCheck:       new(true),
		PlatformDetails:       new("Linux/UNIX"),
		UsageOperation:        new("RunInstances"),
		StateTransitionReason: new(""),
		CpuOptions:            s.instanceTypes[l.instanceType].cpuOptions(),
		ProductCodes:          []*sdk.ProductCode{},
		BlockDeviceMappings:   []*sdk.InstanceBlockDeviceMapping{},
	}
	if l.in.Monitoring != nil && isTrue(l.in.Monitoring.Enabled) {
		i.Monitoring.State = new("enabled")
	}

	if l.in.InstanceMarketOptions != nil {
		i.InstanceLifecycle = new(sdk.InstanceLifecycleTypeSpot)
		i.SpotInstanceRequestId = new("sir-" + s.randomHex(8))
	}

	if l.profile != nil {
		i.IamInstanceProfile = &sdk.IamInstanceProfile{Arn: new(l.profile.ARN), Id: new(l.profile.ID)}
	}

	return i
}

// addLaunchVolumes adds the root volume and the other volumes of the request's block device mappings.
func (s launchHandlers) addLaunchVolumes(l *launchRequest, i *sdk.Instance) error {
	maps := slices.Clone(l.in.BlockDeviceMappings)
	if !slices.ContainsFunc(
		maps,
		func(m *sdk.BlockDeviceMapping) bool { return str(m.DeviceName) == l.image.RootDevice },
	) {
		maps = append(
			maps,
			&sdk.BlockDeviceMapping{
				DeviceName: new(l.image.RootDevice),
				Ebs:        &sdk.EbsBlockDevice{VolumeType: new("gp3")},
			},
		)
	}

	for _, m := range maps {
		if m.Ebs == nil || m.NoDevice != nil {
			continue
		}

		size := max(l.image.RootSizeGiB, 1)
		v, err := volumeHandlers(s).newVolume(str(l.subnet.AvailabilityZone), m.Ebs, size)
		if err != nil {
			return err
		}

		id := str(v.VolumeId)
		s.st.Volumes[id] = v
		s.st.setTags(id, l.tags["volume"])
		ephemeral := m.Ebs.DeleteOnTermination == nil || *m.Ebs.DeleteOnTermination
		volumeHandlers(s).recordAttachment(v, i, str(m.DeviceName), ephemeral)
	}

	return nil
}

// discardInstance removes an instance that was not started, with its volumes and its network interface.
func (st *serviceState) discardInstance(id string) {
	i := st.Instances[id]
	for _, m := range i.BlockDeviceMappings {
		st.removeTags(str(m.Ebs.VolumeId))
		delete(st.Volumes, str(m.Ebs.VolumeId))
	}

	st.removeInterface(st.Extra[id].Interface)
	st.removeTags(id)
	delete(st.Instances, id)
	delete(st.Extra, id)
}

// refreshInstance computes the derived fields of an instance: network interface, addresses and tags.
func (st *serviceState) refreshInstance(i *sdk.Instance) {
	id := str(i.InstanceId)
	if i.Tags = st.tagList(id); len(i.Tags) == 0 {
		i.Tags = nil // unlike a VPC, an instance without tags has no tagSet
	}

	n := st.Interfaces[st.Extra[id].Interface]
	i.NetworkInterfaces = []*sdk.InstanceNetworkInterface{}
	i.SecurityGroups = []*sdk.GroupIdentifier{}
	i.PublicIpAddress = nil
	i.PublicDnsName = new("")
	if n == nil {
		return
	}

	i.SecurityGroups = n.Groups
	i.SourceDestCheck = n.SourceDestCheck
	if n.Association != nil {
		i.PublicIpAddress = n.Association.PublicIp
		if a := st.Attributes[str(i.VpcId)]; a != nil && a.DNSHostnames {
			i.PublicDnsName = n.Association.PublicDnsName
		}
	}

	for _, id := range st.interfaceIDs(id) {
		i.NetworkInterfaces = append(i.NetworkInterfaces, instanceInterface(st.Interfaces[id]))
	}
}

// instanceInterface returns an attached network interface in the form that instances show.
func instanceInterface(n *sdk.NetworkInterface) *sdk.InstanceNetworkInterface {
	out := &sdk.InstanceNetworkInterface{
		NetworkInterfaceId: n.NetworkInterfaceId,
		SubnetId:           n.SubnetId,
		VpcId:              n.VpcId,
		OwnerId:            n.OwnerId,
		MacAddress:         n.MacAddress,
		PrivateIpAddress:   n.PrivateIpAddress,
		PrivateDnsName:     n.PrivateDnsName,
		SourceDestCheck:    n.SourceDestCheck,
		Status:             n.Status,
		Description:        n.Description,
		InterfaceType:      n.InterfaceType,
		Groups:             n.Groups,
		Attachment: &sdk.InstanceNetworkInterfaceAttachment{
			AttachmentId:        n.Attachment.AttachmentId,
			AttachTime:          n.Attachment.AttachTime,
			Status:              n.Attachment.Status,
			DeleteOnTermination: n.Attachment.DeleteOnTermination,
			DeviceIndex:         n.Attachment.DeviceIndex,
			NetworkCardIndex:    n.Attachment.NetworkCardIndex,
		},
	}
	if n.Association != nil {
		out.Association = &sdk.InstanceNetworkInterfaceAssociation{
			PublicIp:      n.Association.PublicIp,
			PublicDnsName: n.Association.PublicDnsName,
			IpOwnerId:     n.Association.IpOwnerId,
		}
	}

	out.PrivateIpAddresses = []*sdk.InstancePrivateIpAddress{{
		Primary:          new(true),
		PrivateIpAddress: n.PrivateIpAddress,
		PrivateDnsName:   n.PrivateDnsName,
		Association:      out.Association,
	}}
	for _, a := range secondaryAddresses(n) {
		out.PrivateIpAddresses = append(out.PrivateIpAddresses, &sdk.InstancePrivateIpAddress{
			Primary:          new(false),
			PrivateIpAddress: a.PrivateIpAddress,
			PrivateDnsName:   a.PrivateDnsName,
		})
	}

	for _, p := range n.Ipv4Prefixes {
		out.Ipv4Prefixes = append(out.Ipv4Prefixes, &sdk.InstanceIpv4Prefix{Ipv4Prefix: p.Ipv4Prefix})
	}

	return out
}

// privateHostname returns the first label of an instance's private DNS name.
func privateHostname(i *sdk.Instance) string {
	name, _, _ := strings.Cut(str(i.PrivateDnsName), ".")
	return name
}
