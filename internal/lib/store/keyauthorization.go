// SPDX-License-Identifier: Apache-2.0

package store

import (
	"context"
	"fmt"

	"github.com/slipway-k8s/slipway/internal/lib/propagation"
)

// keyAuthorization repeats calls that KMS refuses because the key is new. The policy for 'slipway state init' allows the use
// of a key by its tag and its alias, and it may take KMS five minutes until these count.
type keyAuthorization struct {
	// isNew is set once this run has created the key. The refusal of an older key is final.
	isNew bool
	// isTagged is set once this run has tagged the key.
	isTagged bool
	// report is called when a wait begins. Nil: nothing is reported.
	report func(message string)
}

// wait runs call, which needs the key to do what, such as "create its alias". It is repeated for about six minutes while the
// caller may not use the new key, and returns the last error then.
func (k *keyAuthorization) wait(ctx context.Context, what string, call func() error) error {
	isReported := false

	return propagation.WaitForAuthorization(ctx, func(err error) bool {
		if !k.isNew || !isDeniedByKey(err) {
			return false
		}

		if !isReported && k.report != nil {
			k.report(fmt.Sprintf(
				"waiting up to %.0f minutes to %s: KMS refuses it until the tag and the alias of the new key count in policies",
				propagation.AuthorizationLimit.Minutes(),
				what,
			))
		}

		isReported = true

		return true
	}, call)
}

// isDeniedByKey reports whether KMS, or S3 for KMS, has refused a call because its caller may not make it.
func isDeniedByKey(err error) bool {
	return IsAccessDenied(err) || errorCode(err) == "AccessDeniedException"
}
