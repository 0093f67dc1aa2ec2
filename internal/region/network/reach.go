// SPDX-License-Identifier: Apache-2.0

package network

import (
	"net/http"
	"net/netip"
	"slices"

	"github.com/slipway-k8s/slipway/internal/region/fabric"
)

// registryService is the service that the image registry counts as for endpoints.
const registryService = "ecr.dkr"

// endpointPort is where AWS's services listen: an endpoint's security groups are asked about it.
const endpointPort = 443

// reach is which services the machines of a VPC get to, by address. A machine with a way out is not in it.
type reach map[netip.Addr][]string

// newReach follows each machine's way to each service.
func newReach(vpc fabric.VPC) reach {
	s := &ruleset{subnets: map[string]fabric.Subnet{}}
	for _, sub := range vpc.Subnets {
		s.subnets[sub.ID] = sub
	}
	out := reach{}
	for _, i := range vpc.Interfaces {
		if !s.outward(i) {
			out[i.Addr] = endpointsOf(vpc, i)
		}
	}
	return out
}

// endpointsOf are the services that a machine reaches through endpoints.
func endpointsOf(vpc fabric.VPC, i fabric.Interface) []string {
	var out []string
	for _, e := range vpc.Endpoints {
		if e.Subnets != nil && slices.Contains(e.Subnets, i.Subnet) || e.Subnets == nil && admits(e.Ingress, i.Addr) {
			out = append(out, e.Service)
		}
	}
	return out
}

// admits says whether rules let addr in to an endpoint.
func admits(rules []fabric.Rule, addr netip.Addr) bool {
	return slices.ContainsFunc(rules, func(r fabric.Rule) bool {
		fits := r.Protocol == "" || r.Protocol == anyProtocol || r.Protocol == "tcp" && r.From <= endpointPort && endpointPort <= r.To
		return fits && slices.ContainsFunc(r.Peers, func(p netip.Prefix) bool { return p.Contains(addr) })
	})
}

// guard lets a request through if its sender reaches the service. AWS would leave the sender waiting; here its
// connection ends at once, which fails sooner and for the same reason.
func (s *services) guard(next http.Handler, service func(*http.Request) string) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		from, known := SourceFrom(r.Context())
		limited, isLimited := []string(nil), false
		if at := s.reach.Load(); known && at != nil {
			limited, isLimited = (*at)[from.Addr]
		}
		if isLimited && !slices.Contains(limited, service(r)) {
			panic(http.ErrAbortHandler)
		}
		next.ServeHTTP(w, r)
	})
}
