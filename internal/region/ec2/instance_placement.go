// SPDX-License-Identifier: Apache-2.0

package ec2

// placementRequest is the network location that a launch request asks for.
type placementRequest struct {
	subnet   *string
	groups   []string
	publicIP *bool
}

// parsePlacement reads the network location of a launch, from its one network interface or from the request
// itself.
func parsePlacement(l *launchRequest) (placementRequest, error) {
	w := placementRequest{subnet: l.in.SubnetId, groups: strs(l.in.SecurityGroupIds)}
	l.privateIP = str(l.in.PrivateIpAddress)
	if len(l.in.NetworkInterfaces) == 0 {
		return w, nil
	}

	f := l.in.NetworkInterfaces[0]

	switch {
	case w.subnet != nil || len(w.groups) > 0:
		return w, newErrorf(
			codeInvalidParameterCombination,
			"Network interfaces and an instance-level subnet ID or security groups may not be specified on the same request",
		)

	case len(l.in.NetworkInterfaces) > 1:
		return w, newErrorf(
			codeUnsupportedOperation,
			"This region supports one network interface for each instance",
		)

	case f.DeviceIndex == nil || *f.DeviceIndex != 0:
		return w, newErrorf(
			codeInvalidParameterValue,
			"Each network interface requires a device index; the first is 0.",
		)

	case f.NetworkCardIndex != nil && *f.NetworkCardIndex != 0:
		return w, newErrorf(
			codeInvalidParameterValue,
			"Value (%d) for parameter networkCardIndex is invalid: the instance type has one network card.",
			*f.NetworkCardIndex,
		)

	case f.DeleteOnTermination != nil && !*f.DeleteOnTermination:
		return w, notImplemented("NetworkInterface.1.DeleteOnTermination=false")

	case f.PrivateIpAddress != nil:
		l.privateIP = *f.PrivateIpAddress
	}

	return placementRequest{f.SubnetId, strs(f.Groups), f.AssociatePublicIpAddress}, nil
}

// resolvePlacement sets the subnet, the security groups and the addresses of a launch.
func (s launchHandlers) resolvePlacement(l *launchRequest) error {
	w, err := parsePlacement(l)
	if err != nil {
		return err
	}

	if w.subnet == nil {
		zone := ""
		if l.in.Placement != nil {
			zone = str(l.in.Placement.AvailabilityZone)
		}

		if w.subnet, err = s.st.defaultSubnetID(zone); err != nil {
			return err
		}
	}

	n, err := s.st.findSubnet(w.subnet)
	if err != nil {
		return err
	}

	if p := l.in.Placement; p != nil && str(p.AvailabilityZone) != "" &&
		*p.AvailabilityZone != str(n.AvailabilityZone) {
		return newErrorf(
			codeInvalidParameterValue,
			"The availability zone '%s' does not match the subnet's zone '%s'",
			*p.AvailabilityZone,
			str(n.AvailabilityZone),
		)
	}

	if len(w.groups) == 0 {
		w.groups = []string{s.st.defaultSecurityGroupID(str(n.VpcId))}
	}

	if _, err := s.st.resolveSecurityGroups(str(n.VpcId), w.groups, s.cfg.Quotas.GroupsPerENI); err != nil {
		return err
	}

	l.subnet = n
	l.groups = w.groups
	l.publicIP = *n.MapPublicIpOnLaunch
	if w.publicIP != nil {
		l.publicIP = *w.publicIP
	}

	return nil
}

// defaultSecurityGroupID returns the id of a VPC's default security group.
func (st *serviceState) defaultSecurityGroupID(vpc string) string {
	return str(st.namedSecurityGroup(vpc, "default"))
}
