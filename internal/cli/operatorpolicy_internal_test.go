// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"bytes"
	"strings"
	"testing"

	"github.com/slipway-k8s/slipway/internal/infra/iampolicy"
)

// TestOperatorPolicyWarnsOfExisting: who attaches the policies reads what of others they allow: an operator chooses it in the manifest.
func TestOperatorPolicyWarnsOfExisting(t *testing.T) {
	t.Parallel()

	var out bytes.Buffer
	a := &app{Env: Env{Stderr: newScreen(&out)}}
	a.warnOfExisting(iampolicy.Input{})
	if out.Len() > 0 {
		t.Errorf("a cluster without resources of others: %s", out.String())
	}

	a.warnOfExisting(iampolicy.Input{Existing: iampolicy.ExistingResources{
		VPC:             "vpc-1",
		ProfileRoles:    []string{"arn:aws:iam::123456789012:role/prod-admin"},
		ManagedPolicies: []string{"arn:aws:iam::aws:policy/ReadOnlyAccess"},
	}})
	for _, want := range []string{"role/prod-admin", "policy/ReadOnlyAccess", "vpc-1"} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("no warning of %s in:\n%s", want, out.String())
		}
	}
}
