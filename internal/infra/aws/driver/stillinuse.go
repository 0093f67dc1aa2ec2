// SPDX-License-Identifier: Apache-2.0

package driver

import (
	"errors"
	"strings"

	"github.com/aws/smithy-go"

	"github.com/slipway-k8s/slipway/internal/infra/aws/transport"
	"github.com/slipway-k8s/slipway/internal/infra/plan"
)

// waitWhileInUse returns err of a deletion so that the deletion is repeated if err means that the resource is in use. What
// used it was deleted before, and AWS may not show that yet. If something else uses the resource, the deletion fails with
// AWS's message when the time for repetitions is over. Other errors are unchanged.
func waitWhileInUse(err error) error {
	if plan.ErrorClassOf(err) == plan.InUse {
		return transport.NotYet("%w", err)
	}

	return err
}

// isHeldByService reports whether EC2 refused a call because an AWS service still uses the resource, such as a NAT gateway
// that was deleted a moment ago. The code is also that of credentials that are not valid.
func isHeldByService(err error) bool {
	api, ok := errors.AsType[smithy.APIError](err)

	return ok && api.ErrorCode() == "AuthFailure" && !strings.Contains(api.ErrorMessage(), "credentials")
}
