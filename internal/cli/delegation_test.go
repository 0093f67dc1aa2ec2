// SPDX-License-Identifier: Apache-2.0

package cli_test

import (
	"context"
	"errors"
	"net"
	"path/filepath"
	"strings"
	"testing"

	"github.com/aws/aws-sdk-go-v2/service/route53"

	"github.com/slipway-k8s/slipway/internal/region/regiontest"
)

// servers is a DNS that knows one zone's name servers.
type servers []string

func (servers) LookupHost(context.Context, string) ([]string, error) {
	return nil, errors.New("no such host")
}

func (s servers) LookupNS(context.Context, string) ([]*net.NS, error) {
	var out []*net.NS
	for _, host := range s {
		out = append(out, &net.NS{Host: host + "."})
	}
	if len(out) == 0 {
		return nil, errors.New("no such host")
	}
	return out, nil
}

// TestDelegation: preflight says whether the world finds the cluster's public zone, and how to make it so.
func TestDelegation(t *testing.T) {
	r := regiontest.Start(t)
	s := newShell(t, r)
	s.resolver = servers{}
	s.must("state", "init", "--yes")
	s.must("create", "-f", filepath.Join("..", "..", "examples", "dns-public.yaml"), "--yes", "-q")
	preflight := func(code int, want string) {
		t.Helper()
		got, out, errs := s.run("preflight", "dns-public")
		if got != code || !strings.Contains(out, want) {
			t.Errorf("with %v: exit %d, %s%s; want %d and %q", s.resolver, got, out, errs, code, want)
		}
	}
	preflight(2, "does not exist yet")
	s.must("apply", "dns-public", "--yes", "-q")
	preflight(2, "is not delegated")
	zones, err := route53.NewFromConfig(r.AWSConfig()).ListHostedZones(t.Context(), &route53.ListHostedZonesInput{})
	if err != nil || len(zones.HostedZones) != 1 {
		t.Fatal(zones, err)
	}
	zone, err := route53.NewFromConfig(r.AWSConfig()).GetHostedZone(t.Context(), &route53.GetHostedZoneInput{Id: zones.HostedZones[0].Id})
	if err != nil {
		t.Fatal(err)
	}
	preflight(2, zone.DelegationSet.NameServers[0]) // what to put into the zone above
	s.resolver = servers{"ns1.registrar.example"}
	preflight(2, "is delegated to ns1.registrar.example, which are not its name servers")
	s.resolver = servers(zone.DelegationSet.NameServers)
	preflight(0, "no findings")
}
