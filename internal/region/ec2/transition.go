// SPDX-License-Identifier: Apache-2.0

package ec2

import (
	"cmp"
	"slices"
	"time"
)

// transition is a change of state at a given time.
type transition struct {
	At   time.Time // when it is due
	Kind string    // one of the constants below
	ID   string    // of the resource
	Arg  string    // error of the job that it ends; empty if the job succeeded
}

// scheduleTransition schedules a transition one delay from now; see Config.TransitionDelay and
// Config.ProvisioningDelay.
func (s *Service) scheduleTransition(kind, id string) {
	delay := s.cfg.TransitionDelay
	if s.cfg.ProvisioningDelay != nil {
		delay = s.cfg.ProvisioningDelay(provisioningKind(kind), delay)
	}

	s.st.Pending = append(s.st.Pending, transition{At: s.cfg.Now().Add(delay), Kind: kind, ID: id})
	s.wake.Send()
}

// provisioningKind returns the name under which a delay is configured for a transition, as in fault.Kinds.
func provisioningKind(transition string) string {
	switch transition {
	case transitionNATAvailable:
		return "nat-gateway"
	case transitionNATDeleted:
		return "nat-gateway-deletion"
	case transitionVolumeAvailable, transitionVolumeOptimizing, transitionVolumeModified, transitionSnapshotCompleted:
		return "volume"
	case transitionVolumeDeleted:
		return "volume-deletion"
	case transitionVolumeAttached:
		return "volume-attachment"
	case transitionVolumeDetached:
		return "volume-detachment"
	case transitionInstanceRunning:
		return "instance"
	case transitionInstanceStopped, transitionInstanceTerminated:
		return "instance-deletion"
	}

	return "vpc"
}

// applyDueTransitions applies the transitions that are due, oldest first. The caller holds the lock.
func (s *Service) applyDueTransitions() {
	for {
		now := s.cfg.Now()
		due := slices.ContainsFunc(s.st.Pending, func(t transition) bool { return !t.At.After(now) })
		if !due {
			return
		}

		slices.SortStableFunc(
			s.st.Pending,
			func(a, b transition) int { return cmp.Compare(a.At.UnixNano(), b.At.UnixNano()) },
		)

		t := s.st.Pending[0]
		s.st.Pending = s.st.Pending[1:]
		s.applyTransition(t)
		s.markChanged()
	}
}

// nextTransitionTime returns when the next transition is due, or false if none is scheduled.
func (st *serviceState) nextTransitionTime() (time.Time, bool) {
	var at time.Time
	for _, t := range st.Pending {
		if at.IsZero() || t.At.Before(at) {
			at = t.At
		}
	}

	return at, !at.IsZero()
}

// The kinds of transition. They are part of the saved state.
const (
	transitionVPCAvailable        = "vpc-available"
	transitionCIDRAssociated      = "cidr-associated"
	transitionPeeringProcessed    = "peering-processed"
	transitionPeeringActive       = "peering-active"
	transitionNATAvailable        = "nat-available"
	transitionNATDeleted          = "nat-deleted"
	transitionNATExpired          = "nat-forgotten"
	transitionEndpointAvailable   = "endpoint-available"
	transitionEndpointDeleted     = "endpoint-deleted"
	transitionImageAvailable      = "image-available"
	transitionVolumeAvailable     = "volume-available"
	transitionVolumeDeleted       = "volume-deleted"
	transitionVolumeAttached      = "volume-attached"
	transitionVolumeDetached      = "volume-detached"
	transitionInterfaceAttached   = "interface-attached"
	transitionInterfaceDetached   = "interface-detached"
	transitionVolumeOptimizing    = "volume-optimizing"
	transitionVolumeModified      = "volume-modified"
	transitionSnapshotCompleted   = "snapshot-completed"
	transitionInstanceRunning     = "instance-running"
	transitionInstanceStopped     = "instance-stopped"
	transitionInstanceTerminated  = "instance-terminated"
	transitionInstanceInterrupted = "instance-interrupted"
	transitionInstanceExpired     = "instance-forgotten"
)

// applyTransition applies a transition of any kind.
func (s *Service) applyTransition(t transition) {
	switch t.Kind {
	case transitionVPCAvailable:
		vpcHandlers{s}.applyVPCTransition(t)
	case transitionCIDRAssociated:
		vpcHandlers{s}.applyCIDRTransition(t)
	case transitionPeeringProcessed, transitionPeeringActive:
		vpcPeeringHandlers{s}.applyPeeringTransition(t)
	case transitionNATAvailable, transitionNATDeleted, transitionNATExpired:
		natGatewayHandlers{s}.applyNATGatewayTransition(t)
	case transitionEndpointAvailable, transitionEndpointDeleted:
		vpcEndpointHandlers{s}.applyEndpointTransition(t)
	case transitionImageAvailable:
		imageHandlers{s}.applyImageTransition(t)
	case transitionVolumeAvailable,
		transitionVolumeDeleted,
		transitionVolumeAttached,
		transitionVolumeDetached:
		volumeHandlers{s}.applyVolumeTransition(t)

	case transitionInterfaceAttached, transitionInterfaceDetached:
		networkInterfaceHandlers{s}.applyInterfaceTransition(t)
	case transitionVolumeOptimizing, transitionVolumeModified:
		volumeHandlers{s}.applyModificationTransition(t)
	case transitionSnapshotCompleted:
		snapshotHandlers{s}.applySnapshotTransition(t)
	case transitionInstanceRunning,
		transitionInstanceStopped,
		transitionInstanceTerminated,
		transitionInstanceInterrupted,
		transitionInstanceExpired:
		instanceHandlers{s}.applyInstanceTransition(t)
	}
}
