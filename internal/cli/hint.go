// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"github.com/slipway-k8s/slipway/internal/lib/diag"
)

// withHint returns err with a hint.
func withHint(err error, hint string) error { return diag.WithHint(err, hint) }
