// SPDX-License-Identifier: Apache-2.0

// Package endpoint has the interface of the client that package vcert is in the place of.
package endpoint

import (
	"fmt"

	"github.com/Venafi/vcert/v5/pkg/certificate"
)

// ConnectorType is the type of a server.
type ConnectorType int

// The types of servers.
const (
	ConnectorTypeUndefined ConnectorType = iota
	ConnectorTypeFake
	ConnectorTypeCloud
	ConnectorTypeTPP
	ConnectorTypeFirefly
	ConnectorTypeNGTS
)

// Authentication has the credentials of a client.
type Authentication struct {
	User         string
	Password     string
	APIKey       string
	AccessToken  string
	ClientId     string //nolint:revive,staticcheck // the client's name
	ClientSecret string
	Scope        string
	TokenURL     string
}

// Connector is a client.
type Connector interface {
	GetType() ConnectorType
	Ping() error
	ReadZoneConfiguration() (*ZoneConfiguration, error)
	RequestCertificate(request *certificate.Request) (string, error)
	RetrieveCertificate(request *certificate.Request) (*certificate.PEMCollection, error)
}

// ZoneConfiguration is the policy of a zone.
type ZoneConfiguration struct{}

// UpdateCertificateRequest does nothing.
func (*ZoneConfiguration) UpdateCertificateRequest(*certificate.Request) {}

// ValidateCertificateRequest does nothing.
func (*ZoneConfiguration) ValidateCertificateRequest(*certificate.Request) error { return nil }

// ErrCertificatePending means that a certificate is not issued yet.
type ErrCertificatePending struct{ CertificateID, Status string }

// Error implements error.
func (e ErrCertificatePending) Error() string {
	return fmt.Sprintf("certificate %s is pending: %s", e.CertificateID, e.Status)
}

// ErrRetrieveCertificateTimeout means that a certificate was not issued in time.
type ErrRetrieveCertificateTimeout struct{ CertificateID string }

// Error implements error.
func (e ErrRetrieveCertificateTimeout) Error() string {
	return fmt.Sprintf("certificate %s was not issued in time", e.CertificateID)
}
