// SPDX-License-Identifier: Apache-2.0

package network

import (
	"net/http"
	"net/netip"
	"slices"

	"github.com/slipway-k8s/slipway/internal/region/netspec"
)

// registryService is the service that the image registry counts as for endpoints.
const registryService = "ecr.dkr"

// endpointPort is where AWS's services listen: an endpoint's security groups are asked about it.
const endpointPort = 443

// endpointAccess is which services the machines of a VPC get to, by address. A machine with a way out is not in it.
type endpointAccess map[netip.Addr][]string

// newEndpointAccess follows each machine's way to each service.
func newEndpointAccess(vpc netspec.VPC) endpointAccess {
	s := &ruleset{subnets: map[string]netspec.Subnet{}}
	for _, sub := range vpc.Subnets {
		s.subnets[sub.ID] = sub
	}

	out := endpointAccess{}

	for _, i := range vpc.Interfaces {
		if !s.reachesOutside(i) {
			out[i.Addr] = endpointsOf(vpc, i)
		}
	}

	return out
}

// endpointsOf are the services that a machine reaches through endpoints.
func endpointsOf(vpc netspec.VPC, i netspec.Interface) []string {
	var out []string
	for _, e := range vpc.Endpoints {
		if e.Subnets != nil && slices.Contains(e.Subnets, i.Subnet) ||
			e.Subnets == nil && endpointAdmits(e.Ingress, i.Addr) {
			out = append(out, e.Service)
		}
	}

	return out
}

// endpointAdmits says whether rules let addr in to an endpoint.
func endpointAdmits(rules []netspec.Rule, addr netip.Addr) bool {
	return slices.ContainsFunc(rules, func(r netspec.Rule) bool {
		fits := r.Protocol == "" || r.Protocol == anyProtocol ||
			r.Protocol == "tcp" && r.From <= endpointPort && endpointPort <= r.To
		return fits && slices.ContainsFunc(r.Peers, func(p netip.Prefix) bool { return p.Contains(addr) })
	})
}

// guardEndpoints lets a request through if its sender reaches the service. AWS would leave the sender waiting; here its
// connection ends at once, which fails sooner and for the same reason.
func (s *vpcServices) guardEndpoints(next http.Handler, service func(*http.Request) string) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		from, known := RequestSourceFrom(r.Context())
		limited := []string(nil)
		isLimited := false
		if at := s.access.Load(); known && at != nil {
			limited, isLimited = (*at)[from.Addr]
		}

		if isLimited && !slices.Contains(limited, service(r)) {
			panic(http.ErrAbortHandler)
		}

		next.ServeHTTP(w, r)
	})
}
