// SPDX-License-Identifier: Apache-2.0

package access

import (
	"bytes"
	"context"
	"errors"
	"net"
	"testing"

	"github.com/slipway-k8s/slipway/api/v1alpha1"
	"github.com/slipway-k8s/slipway/internal/cluster"
)

// names is a DNS that knows some hosts.
type names map[string]bool

// LookupHost implements [Resolver].
func (n names) LookupHost(_ context.Context, host string) ([]string, error) {
	if n[host] {
		return []string{"192.0.2.1"}, nil
	}
	return nil, errors.New("no such host")
}

// LookupNS implements [Resolver].
func (names) LookupNS(context.Context, string) ([]*net.NS, error) {
	return nil, errors.New("no such host")
}

// TestNamedServer: a kubeconfig has the API's name where it resolves, with the port that the name's
// balancer listens on.
func TestNamedServer(t *testing.T) {
	for _, c := range []struct{ dns, api, server, want string }{
		{"", "Public", "https://lb:443", "https://lb:443"},
		{"Public", "Public", "https://lb:443", "https://api.example.com:443"},
		{"Public", "ElasticIP", "https://192.0.2.1:6443", "https://api.example.com:6443"},
		{"Private", "Internal", "https://lb:443", "https://api.example.com:443"},
		{"Private", "Public", "https://lb:443", "https://api.example.com:6443"},
	} {
		var spec v1alpha1.ClusterSpec
		spec.Topology.DNS.Type, spec.API.LoadBalancer.Type, spec.API.PublicName = c.dns, c.api, "api.example.com"
		var said bytes.Buffer
		env := &cluster.Env{Resolver: names{"api.example.com": true}}
		env.Hooks.Notify = func(message string) { said.WriteString(message) }
		if got := PreferDNSName(t.Context(), env, spec, c.server); got != c.want {
			t.Errorf("%+v: got %s", c, got)
		}
		env.Resolver = names{}
		if got := PreferDNSName(t.Context(), env, spec, c.server); got != c.server || (c.dns != "") != (said.Len() > 0) {
			t.Errorf("%+v: unresolved, got %s, said %q", c, got, said.String())
		}
	}
}
