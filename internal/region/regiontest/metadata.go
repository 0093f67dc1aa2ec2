// SPDX-License-Identifier: Apache-2.0

package regiontest

import (
	"context"
	"errors"
	"net/http"
	"net/netip"
	"testing"

	"github.com/slipway-k8s/slipway/internal/region/ec2"
	"github.com/slipway-k8s/slipway/internal/region/imds"
)

// Metadata returns the metadata service as the machine with a private address in a VPC sees it. It has no credentials of roles.
func (r Region) Metadata(tb testing.TB, vpc, address string) http.Handler {
	tb.Helper()
	addr, err := netip.ParseAddr(address)
	if err != nil {
		tb.Fatal(err)
	}

	source := r.services.EC2.Metadata(func(string, string) (ec2.Credentials, error) {
		return ec2.Credentials{}, errors.New("the metadata service of a test has no credentials")
	})
	handler, err := imds.New(imds.Options{
		Source:        source,
		RequestOrigin: func(context.Context) (string, netip.Addr, bool) { return vpc, addr, true },
		Clock:         r.now,
	})
	if err != nil {
		tb.Fatal(err)
	}

	return handler
}
