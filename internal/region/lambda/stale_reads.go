// SPDX-License-Identifier: Apache-2.0

package lambda

import (
	"strings"

	"github.com/slipway-k8s/slipway/internal/region/visibility"
	"github.com/slipway-k8s/slipway/internal/region/wire"
)

// SetVisibility delays the visibility of new functions and permissions: calls that come too early do not see a new one that
// they name or would list. Events of other services see both. By default changes are visible at once.
func (s *Service) SetVisibility(d visibility.Delay) { s.unseen.SetDelay(s.cfg.Now, d) }

// functionPrefix is in front of the names of functions in [Service.unseen].
const functionPrefix = "function "

// permissionID returns the id of a permission in [Service.unseen].
func permissionID(function, statement string) string {
	return "permission " + function + " " + statement
}

// unseenRules are how operations treat functions and permissions that are not visible yet.
func (s *Service) unseenRules() visibility.Rules {
	return visibility.Rules{
		Named: func(operation string, in any) []string {
			if operation == "CreateFunction" {
				return nil
			}

			given := wire.StringMember(in, "FunctionName") + wire.StringMember(in, "Resource")
			name := s.functionName(&given)
			ids := []string{functionPrefix + name}
			if operation == "RemovePermission" {
				ids = append(ids, permissionID(name, wire.StringMember(in, "StatementId")))
			}

			return ids
		},
		NotFound: func(_, id string) error {
			if name, ok := strings.CutPrefix(id, functionPrefix); ok {
				return s.newNotFoundError(name)
			}

			return newMissingStatementError(id[strings.LastIndex(id, " ")+1:])
		},
		Listed: map[string]func(any) string{
			"Functions": visibility.IDsByMember(functionPrefix, "FunctionName"),
		},
	}
}
