// SPDX-License-Identifier: Apache-2.0

// Package dns is compiled in the place of one file of lego, the ACME client in Traefik. Lego's own names 180 DNS providers, and
// some Go module proxies do not serve the clients of all of them. This one has that of AWS.
package dns

import (
	"fmt"

	"github.com/go-acme/lego/v5/challenge"
	"github.com/go-acme/lego/v5/providers/dns/route53"
)

// NewDNSChallengeProviderByName returns the provider with a name.
func NewDNSChallengeProviderByName(name string) (challenge.Provider, error) {
	if name == "route53" {
		return route53.NewDNSProvider()
	}

	return nil, fmt.Errorf("this build of Traefik has no DNS provider %s, only route53", name)
}
