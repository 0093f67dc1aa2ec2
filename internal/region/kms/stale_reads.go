// SPDX-License-Identifier: Apache-2.0

package kms

import (
	"strings"

	"github.com/slipway-k8s/slipway/internal/region/visibility"
	"github.com/slipway-k8s/slipway/internal/region/wire"
)

// SetVisibility delays the visibility of new keys, aliases and grants: calls that come too early do not see a new one that
// they name or would list. For as long, changed tags and aliases do not count for who may use a key. By default changes are
// visible at once.
func (s *Service) SetVisibility(d visibility.Delay) {
	s.unseen.SetDelay(s.cfg.Now, d)
	s.store.Lock()
	defer s.store.Unlock()
	s.stale.setDelay(s.cfg.Now, d)
}

// grantPrefix is in front of the ids of grants in [Service.unseen].
const grantPrefix = "grant "

// unseenRules are how operations treat keys, aliases and grants that are not visible yet.
func (s *Service) unseenRules() visibility.Rules {
	return visibility.Rules{
		Named: func(operation string, in any) []string {
			members := []string{"KeyId", "TargetKeyId", "SourceKeyId", "DestinationKeyId", "AliasName"}
			if operation == "CreateAlias" {
				members = []string{"TargetKeyId"}
			}

			ids := []string{grantPrefix + wire.StringMember(in, "GrantId")}
			for _, member := range members {
				ids = append(ids, wire.StringMember(in, member))
			}

			return ids
		},
		NotFound: func(_, id string) error {
			if grantID, ok := strings.CutPrefix(id, grantPrefix); ok {
				return newMissingGrantError(grantID)
			}

			return s.newNotFoundError(s.nameOf(id))
		},
		Listed: map[string]func(any) string{
			"Keys":    visibility.IDsByMember("", "KeyId"),
			"Aliases": visibility.IDsByMember("", "AliasName"),
			"Grants":  visibility.IDsByMember(grantPrefix, "GrantId"),
		},
	}
}

// newMissingGrantError returns the error about a grant that does not exist.
func newMissingGrantError(id string) error {
	return newErrorf(notFound, "Grant ID %s not found", id)
}

// nameOf returns the id of a key, or the name of an alias, from its ARN. It returns other texts unchanged.
func (s *Service) nameOf(arn string) string {
	return strings.TrimPrefix(strings.TrimPrefix(arn, s.aliasARN("")), "key/")
}
