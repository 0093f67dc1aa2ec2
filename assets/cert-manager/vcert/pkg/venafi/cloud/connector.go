// SPDX-License-Identifier: Apache-2.0

// Package cloud has a type of the client that package vcert is in the place of.
package cloud

import "github.com/Venafi/vcert/v5/pkg/endpoint"

// Connector is never made.
type Connector struct{ endpoint.Connector }

// Authenticate does nothing.
func (*Connector) Authenticate(*endpoint.Authentication) error { return nil }
