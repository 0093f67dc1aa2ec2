// SPDX-License-Identifier: Apache-2.0

package route53

import (
	"net/netip"
	"strings"

	sdk "github.com/aws/aws-sdk-go/service/route53"

	"github.com/slipway-k8s/slipway/internal/region/picture"
	"github.com/slipway-k8s/slipway/internal/region/record"
)

// Names are the addresses in all zones, as the resolvers of VPCs should give them: a public zone's in every VPC, a
// private one's in its own, where it hides a public one of the same name.
func (s *Service) Names() []picture.Zone {
	var out []picture.Zone
	// It changes nothing, so there is nothing to save that could fail.
	_ = s.book.Do(func() error {
		for _, id := range record.Keys(s.st.Zones) {
			z := s.st.Zones[id]
			p := picture.Zone{Name: strings.TrimSuffix(*z.Shape.Name, ".")}
			for _, v := range z.VPCs {
				p.VPCs = append(p.VPCs, record.Str(v.VPCId))
			}
			for _, k := range record.Keys(z.Records) {
				if r := z.Records[k]; record.Str(r.Type) == sdk.RRTypeA {
					p.Records = append(p.Records, told(r))
				}
			}
			out = append(out, p)
		}
		return nil
	})
	return out
}

func told(r *sdk.ResourceRecordSet) picture.Record {
	out := picture.Record{Name: strings.TrimSuffix(*r.Name, ".")}
	if r.AliasTarget != nil {
		out.Alias = strings.TrimSuffix(record.Str(r.AliasTarget.DNSName), ".")
	}
	for _, v := range r.ResourceRecords {
		if a, err := netip.ParseAddr(record.Str(v.Value)); err == nil {
			out.Addrs = append(out.Addrs, a)
		}
	}
	return out
}
