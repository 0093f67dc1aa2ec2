// SPDX-License-Identifier: Apache-2.0

package ec2

import (
	"cmp"

	sdk "github.com/aws/aws-sdk-go/service/ec2"
)

// resolveHostname sets how the instances of a launch are named: as the request says, and where it says nothing, as the
// subnet does.
func resolveHostname(l *launchRequest) error {
	onLaunch := l.subnet.PrivateDnsNameOptionsOnLaunch
	l.hostname = sdk.PrivateDnsNameOptionsResponse{
		HostnameType:                    onLaunch.HostnameType,
		EnableResourceNameDnsARecord:    onLaunch.EnableResourceNameDnsARecord,
		EnableResourceNameDnsAAAARecord: onLaunch.EnableResourceNameDnsAAAARecord,
	}

	in := l.in.PrivateDnsNameOptions
	if in == nil {
		return nil
	}

	l.hostname.HostnameType = cmp.Or(in.HostnameType, onLaunch.HostnameType)
	l.hostname.EnableResourceNameDnsARecord = cmp.Or(
		in.EnableResourceNameDnsARecord,
		onLaunch.EnableResourceNameDnsARecord,
	)
	l.hostname.EnableResourceNameDnsAAAARecord = cmp.Or(
		in.EnableResourceNameDnsAAAARecord,
		onLaunch.EnableResourceNameDnsAAAARecord,
	)

	return checkHostnameType("privateDnsNameOptions.hostnameType", l.hostname.HostnameType)
}

// checkHostnameType refuses what is not one of EC2's types of host names. Unset is none.
func checkHostnameType(parameter string, hostnameType *string) error {
	switch t := str(hostnameType); t {
	case "", sdk.HostnameTypeIpName, sdk.HostnameTypeResourceName:
		return nil
	default:
		return invalidParameter(parameter, t, "")
	}
}

// privateName returns the private DNS name of an instance: that of its id, or that of its address. The name of its network
// interface is always that of the address.
func (cfg *Config) privateName(id string, n *sdk.NetworkInterface, hostname sdk.PrivateDnsNameOptionsResponse) string {
	if str(hostname.HostnameType) == sdk.HostnameTypeResourceName {
		return id + "." + PrivateDNSDomain(cfg.Region)
	}

	return str(n.PrivateDnsName)
}
