// SPDX-License-Identifier: Apache-2.0

package store

import (
	"context"
	"fmt"
	"time"

	"github.com/slipway-k8s/slipway/internal/lib/diag"
	"github.com/slipway-k8s/slipway/internal/lib/propagation"
)

// keyAuthorization repeats calls that KMS refuses because the key is new. The policy for 'slipway state init' allows the use
// of a key by its tag and its alias, and it may take KMS five minutes until these count.
type keyAuthorization struct {
	// isNew is set once this run has created the key, or has found one that is younger than [newKeyAge]. The refusal of an
	// older key is final.
	isNew bool
	// created is the ARN of the key that this run has created.
	created string
	// found describes the key that this run has found. Empty: it has created the key.
	found string
	// isTagged is set once this run has tagged the key.
	isTagged bool
	// report is called when a wait begins. Nil: nothing is reported.
	report func(message string)
}

// wait runs call, which needs the key to do what, such as "create its alias". It is repeated for about six minutes while the
// caller may not use the new key, and returns the last error then.
func (k *keyAuthorization) wait(ctx context.Context, what string, call func() error) error {
	isReported := false

	err := propagation.WaitForAuthorization(ctx, func(err error) bool {
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
	if !isReported || err == nil || !isDeniedByKey(err) {
		return err
	}

	return diag.WithHint(
		fmt.Errorf("KMS still refuses to %s, %s after it was asked first: %w", what, propagation.AuthorizationLimit, err),
		"the policy for 'slipway state init' allows that by the tag "+stateKeyTag+" and the alias of the key: see whether "+
			"the key has both and the caller has this policy, and run the command again",
	)
}

// newKeyAge is the age up to which a key is new, in which its tag and its alias may not count yet: a killed run of somebody
// else may have created it.
const newKeyAge = 10 * time.Minute

// isDeniedByKey reports whether KMS, or S3 for KMS, has refused a call because its caller may not make it.
func isDeniedByKey(err error) bool {
	return IsAccessDenied(err) || errorCode(err) == "AccessDeniedException"
}
