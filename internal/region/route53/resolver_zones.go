// SPDX-License-Identifier: Apache-2.0

package route53

import (
	"net/netip"
	"strings"

	sdk "github.com/aws/aws-sdk-go/service/route53"

	"github.com/slipway-k8s/slipway/internal/region/netbuilder"
	"github.com/slipway-k8s/slipway/internal/region/sdkshape"
)

// ResolverZones returns the A records of all zones for the resolvers of VPCs. A public zone applies to every VPC; a
// private zone applies to its own VPCs, where it hides a public zone of the same name.
func (s *Service) ResolverZones() []netbuilder.HostedZone {
	var out []netbuilder.HostedZone
	s.store.View(func() {
		for _, id := range sdkshape.SortedKeys(s.st.Zones) {
			out = append(out, s.st.Zones[id].toNetworkZone())
		}
	})

	return out
}

func (z *hostedZone) toNetworkZone() netbuilder.HostedZone {
	out := netbuilder.HostedZone{Name: strings.TrimSuffix(*z.Shape.Name, ".")}
	for _, v := range z.VPCs {
		out.VPCs = append(out.VPCs, sdkshape.String(v.VPCId))
	}

	for _, k := range sdkshape.SortedKeys(z.Records) {
		if r := z.Records[k]; sdkshape.String(r.Type) == sdk.RRTypeA {
			out.Records = append(out.Records, toDNSRecord(r))
		}
	}

	return out
}

func toDNSRecord(r *sdk.ResourceRecordSet) netbuilder.DNSRecord {
	out := netbuilder.DNSRecord{Name: strings.TrimSuffix(*r.Name, ".")}
	if r.AliasTarget != nil {
		out.AliasTarget = strings.TrimSuffix(sdkshape.String(r.AliasTarget.DNSName), ".")
	}

	for _, v := range r.ResourceRecords {
		if a, err := netip.ParseAddr(sdkshape.String(v.Value)); err == nil {
			out.Addrs = append(out.Addrs, a)
		}
	}

	return out
}
