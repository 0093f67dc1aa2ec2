// SPDX-License-Identifier: Apache-2.0

// Package vcert is in the place of the client of CyberArk's (formerly Venafi's) certificate managers, which some Go module proxies
// do not serve. It has the types and functions that cert-manager uses, and refuses to make a client: issuers of this type do not work.
package vcert

import (
	"errors"
	"net/http"

	"github.com/Venafi/vcert/v5/pkg/endpoint"
)

// Config has the settings of a client.
type Config struct {
	ConnectorType   endpoint.ConnectorType
	BaseUrl         string //nolint:revive,staticcheck // the client's name
	Zone            string
	Credentials     *endpoint.Authentication
	ConnectionTrust string
	LogVerbose      bool
	Client          *http.Client
}

// NewClient returns an error.
func NewClient(*Config, ...bool) (endpoint.Connector, error) {
	return nil, errors.New("this build of cert-manager has no client of CyberArk Certificate Manager")
}
