// SPDX-License-Identifier: Apache-2.0

// Package verror has the errors of the client that package vcert is in the place of.
package verror

import "errors"

// ServerUnavailableError means that a server does not answer.
var ServerUnavailableError = errors.New("the server is unavailable") //nolint:errname,revive,staticcheck // the client's name
