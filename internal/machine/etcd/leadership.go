// SPDX-License-Identifier: Apache-2.0

package etcd

import (
	"context"
	"errors"
	"fmt"
)

// ErrNoSuccessor is returned if no other member can take over the leadership.
var ErrNoSuccessor = errors.New("no other healthy member can take over the leadership")

// YieldLeadership moves the leadership away from the member at url, which is in slot self. It reports
// whether it did: it does nothing if the member is not the leader. It returns ErrNoSuccessor if no other
// voter is healthy.
func (m Manager) YieldLeadership(ctx context.Context, self, url string) (bool, error) {
	status, err := m.Status(ctx, url)
	if err != nil {
		return false, err
	}

	if !status.Leader {
		return false, nil
	}

	successor, ok := chooseSuccessor(m.Members(ctx, self), self)
	if !ok {
		return false, ErrNoSuccessor
	}

	c, err := m.newClient(url)
	if err != nil {
		return false, err
	}

	defer func() { _ = c.Close() }()
	ctx, cancel := context.WithTimeout(ctx, m.requestTimeout())
	defer cancel()
	if _, err := c.MoveLeader(ctx, successor); err != nil {
		return false, fmt.Errorf("move the leadership to member %x: %w", successor, err)
	}

	return true, nil
}

// chooseSuccessor returns the id of a healthy voter in another slot, and whether there is one. It takes the first one after
// self in the order of the slots: when members that should not lead hand the leadership on, each member gets its turn.
func chooseSuccessor(members []Member, self string) (uint64, bool) {
	var first, next Member // first in the order of the slots, and first after self
	for _, m := range members {
		if m.Slot == "" || m.Slot == self || !m.Healthy || m.Learner {
			continue
		}

		if first.Slot == "" || m.Slot < first.Slot {
			first = m
		}

		if m.Slot > self && (next.Slot == "" || m.Slot < next.Slot) {
			next = m
		}
	}

	if next.Slot == "" {
		next = first
	}

	return next.ID, next.Slot != ""
}
