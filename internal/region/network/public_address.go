// SPDX-License-Identifier: Apache-2.0

package network

import (
	"net/netip"
	"strconv"

	"github.com/slipway-k8s/slipway/internal/region/netspec"
)

// addressCheckSeconds is the interval and timeout, in seconds, of health checks for machines with a
// public address.
const addressCheckSeconds = 5

// publicAddressBalancers makes machines with a public loopback address reachable from the host.
// Each such address is modelled as a load balancer with one target, which listens on the single
// ports that the machine's security groups open to all addresses. The machine's rules are applied
// to each connection again; connections come from its subnet's router.
func publicAddressBalancers(vpc netspec.VPC) []netspec.LoadBalancer {
	gateways := map[string]netip.Addr{}
	for _, s := range vpc.Subnets {
		gateways[s.ID] = nthAddr(s.CIDR, 1)
	}

	var out []netspec.LoadBalancer

	for _, i := range vpc.Interfaces {
		if !i.Public.IsLoopback() {
			continue
		}

		lb := netspec.LoadBalancer{
			ARN:        "address:" + i.ID,
			PublicAddr: i.Public,
			Addrs:      map[string]netip.Addr{i.Subnet: gateways[i.Subnet]},
			HostOnly:   true,
			Ingress:    i.Ingress,
		}

		for _, r := range i.Ingress {
			if r.Protocol == "tcp" && r.From == r.To {
				lb.Listeners = append(lb.Listeners, netspec.Listener{
					Port: r.From,
					TargetGroup: netspec.TargetGroup{
						ARN:             lb.ARN + ":" + strconv.Itoa(r.From),
						Targets:         []netspec.Target{{ID: i.InstanceID, Addr: i.Addr, Port: r.From}},
						CrossZone:       true,
						EndDeregistered: true,
						HealthCheck: netspec.HealthCheck{
							Protocol:           "TCP",
							Interval:           addressCheckSeconds,
							Timeout:            addressCheckSeconds,
							HealthyThreshold:   1,
							UnhealthyThreshold: 1,
						},
					},
				})
			}
		}

		if len(lb.Listeners) > 0 {
			out = append(out, lb)
		}
	}

	return out
}
