// SPDX-License-Identifier: Apache-2.0

package route53

import (
	"net/netip"
	"strings"

	sdk "github.com/aws/aws-sdk-go/service/route53"

	"github.com/slipway-k8s/slipway/internal/region/netbuilder"
	"github.com/slipway-k8s/slipway/internal/region/sdkshape"
)

// Names are the addresses in all zones, as the resolvers of VPCs should give them: a public zone's in every VPC, a
// private one's in its own, where it hides a public one of the same name.
func (s *Service) Names() []netbuilder.HostedZone {
	var out []netbuilder.HostedZone
	// It changes nothing, so there is nothing to save that could fail.
	_ = s.store.WithLock(func() error {
		for _, id := range sdkshape.SortedKeys(s.st.Zones) {
			z := s.st.Zones[id]
			p := netbuilder.HostedZone{Name: strings.TrimSuffix(*z.Shape.Name, ".")}
			for _, v := range z.VPCs {
				p.VPCs = append(p.VPCs, sdkshape.String(v.VPCId))
			}

			for _, k := range sdkshape.SortedKeys(z.Records) {
				if r := z.Records[k]; sdkshape.String(r.Type) == sdk.RRTypeA {
					p.Records = append(p.Records, toDNSRecord(r))
				}
			}

			out = append(out, p)
		}

		return nil
	})

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
