// SPDX-License-Identifier: Apache-2.0

// Package tpp has types of the client that package vcert is in the place of.
package tpp

import (
	"github.com/Venafi/vcert/v5/pkg/certificate"
	"github.com/Venafi/vcert/v5/pkg/endpoint"
)

// Connector is never made.
type Connector struct{ endpoint.Connector }

// OauthVerifyTokenResponse describes a token.
type OauthVerifyTokenResponse struct{}

// OauthGetRefreshTokenResponse has a token.
type OauthGetRefreshTokenResponse struct {
	Access_token string //nolint:revive,staticcheck // the client's name
}

// Authenticate does nothing.
func (*Connector) Authenticate(*endpoint.Authentication) error { return nil }

// VerifyAccessToken does nothing.
func (*Connector) VerifyAccessToken(*endpoint.Authentication) (OauthVerifyTokenResponse, error) {
	return OauthVerifyTokenResponse{}, nil
}

// GetRefreshToken does nothing.
func (*Connector) GetRefreshToken(*endpoint.Authentication) (OauthGetRefreshTokenResponse, error) {
	return OauthGetRefreshTokenResponse{}, nil
}

// ResetCertificate does nothing.
func (*Connector) ResetCertificate(*certificate.Request, bool) error { return nil }

// ErrCertNotFound means that there is no certificate.
type ErrCertNotFound struct{ Err error }

// Error implements error.
func (e *ErrCertNotFound) Error() string { return "there is no certificate" }
