// SPDX-License-Identifier: Apache-2.0

package ec2

import (
	"context"

	"github.com/slipway-k8s/slipway/internal/region/wire"
)

// withSystemTags wraps a handler so that the resource it creates has the tags of [wire.SystemTags] from the
// start: no caller ever sees it without them.
func withSystemTags[I, O any](
	ctx context.Context,
	s *Service,
	name string,
	do func(*I) (*O, error),
) func(*I) (*O, error) {
	tags := wire.SystemTags(ctx)
	kinds := createdKinds()[name]
	if tags == nil || len(kinds) == 0 {
		return do
	}

	return func(in *I) (*O, error) {
		s.createdIDs = []string{}
		defer func() { s.createdIDs = nil }()
		out, err := do(in)

		for _, id := range s.createdIDs {
			if err == nil && resourceKind(id) == kinds[0] && s.resourceExists(id) {
				s.st.setTags(id, tags)
			}
		}

		return out, err
	}
}
