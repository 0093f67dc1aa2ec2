// SPDX-License-Identifier: Apache-2.0

package node

import "slices"

// AbsentSlot is the content of the record of a slot that is not in the control plane. It is never deleted, because machines may not delete
// it. Who may write to the machine store can write one again that was signed when the slot was absent before. So it is not all that
// decides: a member gives its data up only if a quorum of the others confirms the removal, and a slot that has another volume counts.
type AbsentSlot struct {
	// Absent is set while the slot is not in the control plane and has no member.
	Absent bool `json:"absent"`
	// Volume is the id of the volume on which the slot's member had data last; empty: it never had any.
	Volume string `json:"volume,omitempty"`
	// Volumes are all that the slot had in EC2 when it was absent, with data or without; nil in records of earlier versions.
	Volumes []string `json:"volumes"`
}

// Covers reports whether the slot is absent with all of these volumes.
func (s AbsentSlot) Covers(volumes []string) bool {
	known := append([]string{s.Volume}, s.Volumes...)
	isOther := func(id string) bool { return !slices.Contains(known, id) }

	return s.Absent && !slices.ContainsFunc(volumes, isOther)
}
