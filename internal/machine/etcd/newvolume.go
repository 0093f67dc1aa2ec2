// SPDX-License-Identifier: Apache-2.0

package etcd

import (
	"slices"
	"time"
)

// volumeGap is the longest time between two looks at a slot's volumes that belong together. After a longer one, the agent has
// been paused or started again, and the time begins anew.
const volumeGap = time.Minute

// VolumeFacts is the complete input of a decision about a new volume for the slot of a machine that has found none.
type VolumeFacts struct {
	// Slot of this machine.
	Slot string
	// After is for how long no volume must have existed; 0: only the operator creates volumes.
	After time.Duration
	// Lost is the volume on which the slot's member had data, or the one that a machine created after the loss of that; empty if
	// it never had any.
	Lost string
	// Found are the volumes of the slot in all zones and states, and both of these whatever their tags are, as EC2 lists them now.
	Found []string
	// Members is the membership list of a healthy peer; nil while no peer answers with a quorum.
	Members []Member
	// Busy says who changes the control plane, or why that is not known; empty: nobody.
	Busy string
}

// VolumeWatch is for how long the slot has had no volume at each look. Its zero value has not looked.
type VolumeWatch struct {
	lost          string
	first, looked time.Time
}

// Observe returns the watch after another look. It is a pure function.
func (w VolumeWatch) Observe(f VolumeFacts, now time.Time) VolumeWatch {
	if len(f.Found) > 0 || f.Lost == "" {
		return VolumeWatch{}
	}

	if w.lost != f.Lost || w.first.IsZero() || now.Before(w.looked) || now.Sub(w.looked) > volumeGap {
		return VolumeWatch{lost: f.Lost, first: now, looked: now}
	}

	w.looked = now

	return w
}

// VolumeStep is whether the machine creates a volume, and the reason.
type VolumeStep struct {
	// Create is set if it does.
	Create bool
	// Reason of the decision.
	Reason string
}

// DecideVolume returns whether the machine of a slot creates a new volume. It is a pure function.
//
// A volume that a slot has never had data on is created by apply, which may just be doing it. A volume that exists in
// whatever state, zone or under other tags may come back. The others must have a quorum without the slot: they have all data, and
// the new member joins them as a learner.
func DecideVolume(f VolumeFacts, w VolumeWatch) VolumeStep {
	at := slices.IndexFunc(f.Members, func(m Member) bool { return m.Slot == f.Slot })
	own := Member{}
	if at >= 0 {
		own = f.Members[at]
	}

	wait := func(format string, args ...any) VolumeStep {
		return VolumeStep{Reason: waitAction(format, args...).Reason}
	}

	switch {
	case f.After == 0:
		return wait("slot %s has no volume: slipway apply --recreate-lost-volumes", f.Slot)
	case f.Lost == "":
		return wait("slot %s has no volume yet, and never had data: slipway apply creates it", f.Slot)
	case len(f.Found) > 0:
		return wait("slot %s has volume %s, which cannot be used here now", f.Slot, f.Found[0])
	case own.Healthy:
		return wait("volume %s of slot %s is lost, but its member answers", f.Lost, f.Slot)
	case len(f.Members) == 0 || !hasQuorum(f.Members, own.ID):
		return wait("volume %s of slot %s is lost, and no quorum of the other members answers", f.Lost, f.Slot)
	case f.Busy != "":
		return wait("volume %s of slot %s is lost; %s", f.Lost, f.Slot, f.Busy)
	case w.lost != f.Lost || w.looked.Sub(w.first) < f.After:
		return wait("volume %s of slot %s is lost for %s: a new one is created after %s", f.Lost, f.Slot,
			w.looked.Sub(w.first).Round(time.Second), f.After)
	}

	return VolumeStep{Create: true, Reason: "volume " + f.Lost + " of slot " + f.Slot + " is lost, and the other members have all data"}
}
