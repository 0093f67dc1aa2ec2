// SPDX-License-Identifier: Apache-2.0

package network

import (
	"testing"

	"github.com/miekg/dns"

	"github.com/slipway-k8s/slipway/internal/region/netspec"
)

// TestServiceNames: the resolver of a VPC knows the host names of the region's services.
func TestServiceNames(t *testing.T) {
	t.Parallel()
	const host = "123456789012.dkr.ecr.us-east-1.amazonaws.com"
	zone := newDNSZone(netspec.VPC{}, nil)
	zone.addServices([]string{host})

	records, known := zone.lookupRecords(dns.Fqdn(host))
	if len(records) != 1 || !known {
		t.Fatalf("%s has the records %v", host, records)
	}

	if a, ok := records[0].(*dns.A); !ok || a.A.String() != serviceAddr().String() {
		t.Errorf("%s is %v", host, records[0])
	}
}
