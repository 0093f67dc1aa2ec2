// SPDX-License-Identifier: Apache-2.0

package model

import (
	"encoding/json"
	"fmt"

	"github.com/slipway-k8s/slipway/internal/infra/graph"
)

type (
	policyPrincipal map[string]string
	policyCondition map[string]map[string]any
)

// policyStatement is an Allow statement.
type policyStatement struct {
	ID        string
	Principal policyPrincipal
	Actions   []string
	Resources []string
	Condition policyCondition
}

// policyDocument returns an IAM policy document.
func policyDocument(statements ...policyStatement) graph.JSON {
	list := make([]map[string]any, 0, len(statements))
	for _, s := range statements {
		m := map[string]any{"Sid": s.ID, "Effect": "Allow", "Action": s.Actions}
		if s.Resources != nil {
			m["Resource"] = s.Resources
		}

		if s.Principal != nil {
			m["Principal"] = s.Principal
		}

		if s.Condition != nil {
			m["Condition"] = s.Condition
		}

		list = append(list, m)
	}

	return graph.CanonicalJSON(encodePolicy(map[string]any{"Version": "2012-10-17", "Statement": list}))
}

// encodePolicy returns the text of a policy.
func encodePolicy(policy any) string {
	text, err := json.Marshal(policy)
	if err != nil {
		panic(fmt.Sprintf("model: policy: %v", err)) // strings and lists of strings only
	}

	return string(text)
}
