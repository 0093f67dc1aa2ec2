// SPDX-License-Identifier: Apache-2.0

package iampolicy_test

import (
	"fmt"
	"slices"
	"strings"

	"github.com/slipway-k8s/slipway/internal/infra/iampolicy"
	"github.com/slipway-k8s/slipway/internal/region/authz"
)

// trace returns the authorization requests of a user.
func (b *bench) trace(user string) []authz.Request {
	b.mu.Lock()
	defer b.mu.Unlock()
	return slices.DeleteFunc(slices.Clone(b.asked), func(r authz.Request) bool { return !strings.HasSuffix(r.Principal.ARN, "/"+user) })
}

// necessary removes every action from every statement in turn, and decides all requests again.
func (b *bench) necessary(docs []iampolicy.Policy, asked []authz.Request) {
	b.Helper()
	var all []authz.Policy
	var at [][2]int
	for d, doc := range docs {
		for s, st := range doc.Statement {
			if st.Effect == "Deny" {
				continue
			}

			all = append(all, parse(b.T, st))
			at = append(at, [2]int{d, s})
		}
	}
	allowedBy := func(p authz.Policy, r authz.Request) bool { return authz.Evaluate([]authz.Policy{p}, r).Allowed }
	// only counts, for each statement and action, the requests that no other statement allows.
	only := map[string]int{}
	for _, r := range asked {
		var by []int
		for i, p := range all {
			if allowedBy(p, r) {
				by = append(by, i)
			}
		}
		if len(by) == 1 {
			only[fmt.Sprint(by[0], r.Action)]++
		}
	}
	n := 0
	for i, where := range at {
		st := docs[where[0]].Statement[where[1]]
		for _, action := range st.Action {
			n++
			if only[fmt.Sprint(i, action)] == 0 {
				b.Errorf("%s in statement %s is not needed", action, st.Sid)
			}
		}
	}
	b.Logf("%d statements with %d actions, %d different; each is needed: %d questions were decided anew", len(at), n, len(iampolicy.AllowedActions(docs)), len(asked))
}
