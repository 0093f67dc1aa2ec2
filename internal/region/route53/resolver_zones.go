// SPDX-License-Identifier: Apache-2.0

package route53

import (
	"net/netip"
	"strconv"
	"strings"

	sdk "github.com/aws/aws-sdk-go/service/route53"

	"github.com/slipway-k8s/slipway/internal/region/netbuilder"
	"github.com/slipway-k8s/slipway/internal/region/netspec"
	"github.com/slipway-k8s/slipway/internal/region/sdkshape"
)

// ResolverZones returns the A and SRV records of all zones for the resolvers of VPCs. A public zone applies to every VPC; a
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
		r := z.Records[k]
		if kind := sdkshape.String(r.Type); kind == sdk.RRTypeA || kind == sdk.RRTypeSrv {
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

	if r.TTL != nil {
		out.TTL = uint32(*r.TTL)
	}

	for _, v := range r.ResourceRecords {
		if a, err := netip.ParseAddr(sdkshape.String(v.Value)); err == nil {
			out.Addrs = append(out.Addrs, a)
		}

		if s, ok := parseService(sdkshape.String(v.Value)); ok {
			out.Services = append(out.Services, s)
		}
	}

	return out
}

// parseService parses the value of an SRV record: priority, weight, port and name. The second result is false for a
// value of another type.
func parseService(value string) (netspec.DNSService, bool) {
	fields := strings.Fields(value)
	if len(fields) != 4 {
		return netspec.DNSService{}, false
	}

	var numbers [3]uint16

	for i := range numbers {
		n, err := strconv.ParseUint(fields[i], 10, 16)
		if err != nil {
			return netspec.DNSService{}, false
		}

		numbers[i] = uint16(n)
	}

	return netspec.DNSService{
		Priority: numbers[0],
		Weight:   numbers[1],
		Port:     numbers[2],
		Target:   strings.TrimSuffix(fields[3], "."),
	}, true
}
