// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"testing"

	"github.com/aws/aws-sdk-go-v2/aws"
)

// TestStateOwnerIsOfTheState: --state-owner names the account of the bucket with the state. The bucket that machines
// read (spec.configStore) is the caller's, or the state's own.
func TestStateOwnerIsOfTheState(t *testing.T) {
	const own, other = "111111111111", "222222222222"
	for name, test := range map[string]struct{ state, store, flag, want string }{
		"no flag":                       {"s3://state/a", "s3://state/a", "", own},
		"the state":                     {"s3://state/a", "s3://state/a", other, other},
		"machines in the state's":       {"s3://state/a", "s3://state/machines", other, other},
		"machines in another bucket":    {"s3://state/a", "s3://machines/a", other, own},
		"machines, state in a folder":   {"file:///a", "s3://machines/a", other, own},
		"a bucket with a similar name":  {"s3://state/a", "s3://state-2/a", other, own},
		"an owner that is not a number": {"s3://state/a", "s3://machines/a", "me", ""},
	} {
		t.Run(name, func(t *testing.T) {
			a := &app{stateFlag: test.state, stateOwnerFlag: test.flag, Env: Env{Getenv: func(string) string { return "" }}}
			c := a.stores()
			c.owner = own // as STS answered
			got, err := c.findOwner(t.Context(), aws.Config{}, test.store)
			if got != test.want || (err != nil) != (test.want == "") {
				t.Errorf("got %q, %v", got, err)
			}
		})
	}
}
