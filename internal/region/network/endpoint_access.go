// SPDX-License-Identifier: Apache-2.0

package network

import (
	"net/http"
	"net/netip"
	"slices"

	"github.com/slipway-k8s/slipway/internal/region/netspec"
)

// registryService is the service name of the image registry for VPC endpoints.
const registryService = "ecr.dkr"

// endpointPort is the port that an interface endpoint's security groups must allow, as AWS's
// services use HTTPS.
const endpointPort = 443

// endpointAccess maps the addresses of machines without internet access to the services that they
// reach through endpoints.
type endpointAccess map[netip.Addr][]string

// newEndpointAccess computes the access of all machines in a VPC.
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

// endpointsOf returns the services that a machine reaches through endpoints.
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

// endpointAdmits reports whether the endpoint's rules allow connections from addr.
func endpointAdmits(rules []netspec.Rule, addr netip.Addr) bool {
	return slices.ContainsFunc(rules, func(r netspec.Rule) bool {
		matches := r.Protocol == "" || r.Protocol == anyProtocol ||
			r.Protocol == "tcp" && r.From <= endpointPort && endpointPort <= r.To
		return matches && slices.ContainsFunc(r.Peers, func(p netip.Prefix) bool { return p.Contains(addr) })
	})
}

// guardEndpoints rejects requests of machines that cannot reach the service. On AWS the connection
// would time out; here it is closed immediately, which fails sooner for the same reason.
func (s *vpcServices) guardEndpoints(next http.Handler, service func(*http.Request) string) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		from, known := RequestSourceFrom(r.Context())
		var services []string
		limited := false
		if access := s.access.Load(); known && access != nil {
			services, limited = (*access)[from.Addr]
		}

		if limited && !slices.Contains(services, service(r)) {
			panic(http.ErrAbortHandler)
		}

		next.ServeHTTP(w, r)
	})
}
