// SPDX-License-Identifier: Apache-2.0

// Package certificate has the requests of the client that package vcert is in the place of.
package certificate

import (
	"crypto/x509"
	"crypto/x509/pkix"
	"time"

	"github.com/Venafi/vcert/v5/pkg/util"
)

// CustomFieldType is the type of a custom field.
type CustomFieldType int

// CSROrigin says who makes a signing request.
type CSROrigin int

// ChainOption says where the root is in a chain.
type ChainOption int

// The values that cert-manager uses.
const (
	CustomFieldPlain CustomFieldType = iota
	CustomFieldOrigin
)

// The values that cert-manager uses.
const (
	UserProvidedCSR     CSROrigin   = 2
	ChainOptionRootLast ChainOption = 0
)

// CustomField is a custom field.
type CustomField struct {
	Type  CustomFieldType
	Name  string
	Value string
}

// PEMCollection is a certificate and its chain.
type PEMCollection struct {
	Certificate string
	Chain       []string
}

// Request asks for a certificate.
type Request struct {
	Subject          pkix.Name
	CustomFields     []CustomField
	FriendlyName     string
	PickupID         string
	CsrOrigin        CSROrigin
	ChainOption      ChainOption
	IssuerHint       util.IssuerHint
	Timeout          time.Duration
	ValidityDuration *time.Duration
}

// NewRequest returns an empty request.
func NewRequest(*x509.Certificate) *Request { return &Request{} }

// SetCSR does nothing.
func (r *Request) SetCSR([]byte) error { return nil }
