// SPDX-License-Identifier: Apache-2.0

package ec2

import (
	"context"

	sdk "github.com/aws/aws-sdk-go/service/ec2"

	"github.com/slipway-k8s/slipway/internal/region/netspec"
)

// fabricVolume is a volume's device as the machines know it.
func fabricVolume(v *sdk.Volume) netspec.Volume {
	return netspec.Volume{ID: str(v.VolumeId), Size: int(*v.Size)}
}

// beginCreateVolume makes a volume: real, or by the clock alone.
func (s *Service) beginCreateVolume(id string) {
	if s.cfg.Machines == nil {
		s.scheduleTransition(transitionVolumeAvailable, id)
		return
	}

	d := fabricVolume(s.st.Volumes[id])
	s.enqueueJob(id, func(ctx context.Context) {
		s.completeJob(ctx, transitionVolumeAvailable, id, s.cfg.Machines.CreateVolume(ctx, d))
	})
}

func (s *Service) beginDeleteVolume(id string) {
	if s.cfg.Machines == nil {
		s.scheduleTransition(transitionVolumeDeleted, id)
		return
	}

	s.enqueueJob(id, func(ctx context.Context) {
		s.completeJob(ctx, transitionVolumeDeleted, id, s.cfg.Machines.DeleteVolume(ctx, id))
	})
}

func (s *Service) beginAttach(v *sdk.Volume, a *sdk.VolumeAttachment) {
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

func (s *Service) beginDetach(v *sdk.Volume, a *sdk.VolumeAttachment) {
	id := str(v.VolumeId)
	instance := str(a.InstanceId)
	if s.cfg.Machines == nil {
		s.scheduleTransition(transitionVolumeDetached, id)
		return
	}

	s.enqueueJob(id, func(ctx context.Context) {
		s.completeJob(ctx, transitionVolumeDetached, id, s.cfg.Machines.Detach(ctx, id, instance))
	})
}

// applyVolumeTransition moves a volume on; a failure is in Arg.
func (s *Service) applyVolumeTransition(t transition) {
	v := s.st.Volumes[t.ID]
	if v == nil {
		return
	}

	switch {
	case t.Kind == transitionVolumeDeleted:
		s.removeTags(t.ID)
		s.jobLocks.removeKey(t.ID)
		delete(s.st.Volumes, t.ID)

	case t.Kind == transitionVolumeAvailable && t.Arg != "":
		v.State = new(sdk.VolumeStateError)
	case t.Kind == transitionVolumeAvailable:
		v.State = new(sdk.VolumeStateAvailable)
	case t.Kind == transitionVolumeDetached, t.Kind == transitionVolumeAttached && t.Arg != "":
		s.clearAttachments(v)
	case t.Kind == transitionVolumeAttached:
		s.completeAttachments(v)
	}
}

func (s *Service) completeAttachments(v *sdk.Volume) {
	for _, a := range v.Attachments {
		if str(a.State) != sdk.VolumeAttachmentStateAttaching {
			continue
		}

		a.State = new(sdk.VolumeAttachmentStateAttached)
		i := s.st.Instances[str(a.InstanceId)]
		if i == nil {
			continue
		}

		for _, m := range i.BlockDeviceMappings {
			if m.Ebs != nil && str(m.Ebs.VolumeId) == str(v.VolumeId) {
				m.Ebs.Status = new(sdk.AttachmentStatusAttached)
			}
		}
	}
}
