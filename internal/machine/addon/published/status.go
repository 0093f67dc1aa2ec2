// SPDX-License-Identifier: Apache-2.0

package published

import (
	"encoding/json"
	"fmt"
	"slices"
	"time"
)

// StatusName is the name of the ConfigMap in kube-system with the Status of each channel, by the
// name of the channel. It has no contents of objects.
const StatusName = "slipway-addon-channels"

// SerialAnnotation of that ConfigMap has the highest serial of published channels that was applied.
const SerialAnnotation = "slipway.dev/addon-channels-serial"

// State is how far the control plane has come with a channel.
type State string

// The states.
const (
	// Applied is of a channel that the cluster has.
	Applied State = "Applied"
	// Applying is of a channel with add-ons that are not healthy yet.
	Applying State = "Applying"
	// Drifted is of a channel of mode Report that the cluster differs from.
	Drifted State = "Drifted"
	// Failed is of a channel with add-ons that could not be applied, or whose source could not be
	// read.
	Failed State = "Failed"
	// Pending is of a channel whose source was not read yet.
	Pending State = "Pending"
)

// Status is what the control plane did with one channel.
type Status struct {
	// Serial of the change that published the channel last.
	Serial int64 `json:"serial"`
	// Mode of the channel.
	Mode Mode `json:"mode"`
	// State of the channel.
	State State `json:"state"`
	// Differences is the number of objects that differ, and of add-ons that left the channel.
	Differences int `json:"differences"`
	// Message names what is waited for, what differs, or what failed.
	Message string `json:"message,omitempty"`
	// Source is what is known of the source that the channel is followed from. Nil: it has none.
	Source *SourceStatus `json:"source,omitempty"`
}

// Equal reports whether two statuses say the same.
func (s Status) Equal(other Status) bool {
	left := s.Source
	right := other.Source
	s.Source = nil
	other.Source = nil
	if s != other || (left == nil) != (right == nil) {
		return false
	}

	return left == nil || left.equal(*right)
}

// SourceStatus is what is known of the source of a channel.
type SourceStatus struct {
	// Address of the source.
	Address string `json:"address"`
	// Revision that the control plane applies: the digest of an artifact, or the id of a commit.
	// Empty: none was accepted.
	Revision string `json:"revision,omitempty"`
	// Created is the time of creation in the revision. Zero: it has none.
	Created time.Time `json:"created,omitzero"`
	// AcceptedAt is when the control plane read the revision for the first time.
	AcceptedAt time.Time `json:"acceptedAt,omitzero"`
	// IsVerified is set if a given key has signed the revision.
	IsVerified bool `json:"isVerified,omitempty"`
	// CheckedAt is when the source was last read without an error.
	CheckedAt time.Time `json:"checkedAt,omitzero"`
	// RolledBackFrom is the revision that was applied before, if the source has gone back from it
	// to an older one.
	RolledBackFrom string `json:"rolledBackFrom,omitempty"`
	// Former are the revisions that were accepted before, the last one first.
	Former []FormerRevision `json:"former,omitempty"`
	// Error says why the source is not read, or why its newest revision is refused. The revision
	// above stays applied.
	Error string `json:"error,omitempty"`
}

func (s SourceStatus) equal(other SourceStatus) bool {
	isSame := func(a, b FormerRevision) bool {
		return a.Revision == b.Revision && a.Created.Equal(b.Created) && a.AcceptedAt.Equal(b.AcceptedAt)
	}

	return s.Address == other.Address && s.Revision == other.Revision && s.Created.Equal(other.Created) &&
		s.AcceptedAt.Equal(other.AcceptedAt) && s.IsVerified == other.IsVerified && s.CheckedAt.Equal(other.CheckedAt) &&
		s.RolledBackFrom == other.RolledBackFrom && slices.EqualFunc(s.Former, other.Former, isSame) && s.Error == other.Error
}

// FormerRevision is a revision that was accepted earlier.
type FormerRevision struct {
	Revision   string    `json:"revision"`
	Created    time.Time `json:"created,omitzero"`
	AcceptedAt time.Time `json:"acceptedAt"`
}

// maxFormer is how many earlier revisions are kept.
const maxFormer = 10

// Accept returns the status with a revision that was read at a time and is applied from now on. If
// that revision was older than the current one or, if it is not known when they were made, was
// accepted before, the status says so.
func (s SourceStatus) Accept(revision string, created, now time.Time) SourceStatus {
	now = now.UTC().Truncate(time.Second)
	s.CheckedAt = now
	s.Error = ""
	if s.Revision == revision {
		return s
	}

	knew := func(f FormerRevision) bool { return f.Revision == revision }
	isBack := slices.ContainsFunc(s.Former, knew)
	if !created.IsZero() && !s.Created.IsZero() {
		isBack = created.Before(s.Created)
	}

	s.RolledBackFrom = ""
	if isBack {
		s.RolledBackFrom = s.Revision
	}

	if s.Revision != "" {
		former := FormerRevision{Revision: s.Revision, Created: s.Created, AcceptedAt: s.AcceptedAt}
		s.Former = slices.Insert(slices.Clone(s.Former), 0, former)
		s.Former = s.Former[:min(len(s.Former), maxFormer)]
	}

	s.Revision = revision
	s.Created = created.UTC()
	s.AcceptedAt = now

	return s
}

// ParseStatus returns the status of each channel from the data of the ConfigMap.
func ParseStatus(data map[string]string) (map[string]Status, error) {
	out := map[string]Status{}
	for name, text := range data {
		var status Status
		if err := json.Unmarshal([]byte(text), &status); err != nil {
			return nil, fmt.Errorf("decode channel %s of ConfigMap kube-system/%s: %w", name, StatusName, err)
		}

		out[name] = status
	}

	return out, nil
}
