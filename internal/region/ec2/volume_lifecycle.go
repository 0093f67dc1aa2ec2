// SPDX-License-Identifier: Apache-2.0

package ec2

import (
	"context"
	"errors"
	"slices"
	"time"

	sdk "github.com/aws/aws-sdk-go/service/ec2"

	"github.com/slipway-k8s/slipway/internal/region/netspec"
)

// toVolumeSpec returns a volume in the form that Machines uses.
func toVolumeSpec(v *sdk.Volume) netspec.Volume {
	return netspec.Volume{ID: str(v.VolumeId), Size: int(*v.Size)}
}

// beginCreateVolume starts the creation of a volume: a job, or only a transition if the service has no
// machines.
func (s volumeHandlers) beginCreateVolume(id string) {
	if s.cfg.Machines == nil {
		s.scheduleTransition(transitionVolumeAvailable, id)
		return
	}

	d := toVolumeSpec(s.st.Volumes[id])
	s.enqueueJob(id, func(ctx context.Context) {
		s.completeJob(ctx, transitionVolumeAvailable, id, s.cfg.Machines.CreateVolume(ctx, d))
	})
}

func (s volumeHandlers) beginDeleteVolume(id string) {
	if s.cfg.Machines == nil {
		s.scheduleTransition(transitionVolumeDeleted, id)
		return
	}

	s.enqueueJob(id, func(ctx context.Context) {
		s.completeJob(ctx, transitionVolumeDeleted, id, s.cfg.Machines.DeleteVolume(ctx, id))
	})
}

func (s volumeHandlers) beginAttach(v *sdk.Volume, a *sdk.VolumeAttachment) {
	id := str(v.VolumeId)
	instance := str(a.InstanceId)
	device := str(a.Device)
	if s.cfg.Machines == nil {
		s.scheduleTransition(transitionVolumeAttached, id)
		return
	}

	s.enqueueJob(id, func(ctx context.Context) {
		s.completeJob(ctx, transitionVolumeAttached, id, s.cfg.Machines.Attach(ctx, id, instance, device))
	})
}

func (s volumeHandlers) beginDetach(v *sdk.Volume, a *sdk.VolumeAttachment) {
	id := str(v.VolumeId)
	instance := str(a.InstanceId)
	if s.cfg.Machines == nil {
		s.scheduleTransition(transitionVolumeDetached, id)
		return
	}

	s.jobs = append(s.jobs, func(ctx context.Context) { s.detachWhenUnmounted(ctx, id, instance) })
	s.wake.Send()
}

// detachRetryInterval is how often the detachment of a mounted volume is tried again.
const detachRetryInterval = 500 * time.Millisecond

// detachWhenUnmounted detaches a volume. While a file system on it is mounted, the attachment stays in state
// detaching, as on AWS. It holds no lock between two attempts, so that a forced detachment or the end of the
// instance can come first.
func (s volumeHandlers) detachWhenUnmounted(ctx context.Context, id, instance string) {
	for ctx.Err() == nil && !s.tryDetach(ctx, id, instance) {
		waitForSignal(ctx, nil, detachRetryInterval)
	}
}

// tryDetach reports whether a detachment has ended: the volume was detached, by this or by another job, or
// the attempt failed for another reason than a mount.
func (s volumeHandlers) tryDetach(ctx context.Context, id, instance string) bool {
	m := s.jobLocks.mutexFor(id)
	m.Lock()
	defer m.Unlock()
	if !s.isDetaching(id, instance) {
		return true
	}

	err := s.cfg.Machines.Detach(ctx, id, instance)
	if errors.Is(err, netspec.ErrVolumeBusy) {
		return false
	}

	s.completeJob(ctx, transitionVolumeDetached, id, err)

	return true
}

func (s volumeHandlers) isDetaching(id, instance string) bool {
	s.store.Lock()
	defer s.store.Unlock()
	v := s.st.Volumes[id]

	return v != nil && slices.ContainsFunc(v.Attachments, func(a *sdk.VolumeAttachment) bool {
		return str(a.InstanceId) == instance && str(a.State) == sdk.VolumeAttachmentStateDetaching
	})
}

// beginForceDetach detaches a volume although a file system on it may be mounted.
func (s volumeHandlers) beginForceDetach(v *sdk.Volume, a *sdk.VolumeAttachment) {
	id := str(v.VolumeId)
	instance := str(a.InstanceId)
	s.enqueueJob(id, func(ctx context.Context) {
		s.completeJob(ctx, transitionVolumeDetached, id, s.cfg.Machines.ForceDetach(ctx, id, instance))
	})
}

// applyVolumeTransition applies a transition of a volume. Arg is the error if the job failed.
func (s volumeHandlers) applyVolumeTransition(t transition) {
	v := s.st.Volumes[t.ID]
	if v == nil {
		return
	}

	switch {
	case t.Kind == transitionVolumeDeleted:
		s.st.removeTags(t.ID)
		s.jobLocks.removeKey(t.ID)
		delete(s.st.Volumes, t.ID)
		delete(s.st.Modifications, t.ID)
		delete(s.st.ModificationTimes, t.ID)

	case t.Kind == transitionVolumeAvailable && t.Arg != "":
		v.State = new(sdk.VolumeStateError)
	case t.Kind == transitionVolumeAvailable:
		v.State = new(sdk.VolumeStateAvailable)
	case t.Kind == transitionVolumeDetached, t.Kind == transitionVolumeAttached && t.Arg != "":
		s.st.clearAttachments(v)
	case t.Kind == transitionVolumeAttached:
		s.st.completeAttachments(v)
	}
}

// resumeVolumeJobs queues the unfinished jobs of one volume.
func (s volumeHandlers) resumeVolumeJobs(v *sdk.Volume) {
	id := str(v.VolumeId)
	switch str(v.State) {
	case sdk.VolumeStateCreating:
		s.beginCreateVolume(id)
	case sdk.VolumeStateDeleting:
		s.beginDeleteVolume(id)
	}

	m := s.st.Modifications[id]
	if m != nil && str(m.ModificationState) == sdk.VolumeModificationStateOptimizing && s.cfg.Machines != nil {
		s.beginGrow(id)
	}

	for _, a := range v.Attachments {
		i := s.st.Instances[str(a.InstanceId)]
		running := i != nil && str(i.State.Name) == sdk.InstanceStateNameRunning
		switch {
		case str(a.State) == sdk.VolumeAttachmentStateAttaching && running:
			s.beginAttach(v, a)
		case str(a.State) == sdk.VolumeAttachmentStateDetaching:
			s.beginDetach(v, a)
		}
	}
}
