// SPDX-License-Identifier: Apache-2.0

package attack_test

import (
	"encoding/json"

	"github.com/slipway-k8s/slipway/internal/infra/iampolicy"
	"github.com/slipway-k8s/slipway/internal/region/authz"
)

func (l *lab) parse(docs []iampolicy.Policy) []authz.Policy {
	l.Helper()
	var out []authz.Policy
	for _, d := range docs {
		text, err := json.Marshal(d)
		l.check(err)

		out = append(out, l.parseText(string(text))...)
	}

	return out
}

func (l *lab) parseText(text string) []authz.Policy {
	l.Helper()
	p, err := authz.ParsePolicy(authz.IdentityPolicy, text)
	l.check(err)

	return []authz.Policy{p}
}
