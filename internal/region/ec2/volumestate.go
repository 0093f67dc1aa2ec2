// SPDX-License-Identifier: Apache-2.0

package ec2

import (
	"context"

	sdk "github.com/aws/aws-sdk-go/service/ec2"

	"github.com/slipway-k8s/slipway/internal/region/fabric"
)

// disk is a volume's device as the machines know it.
func disk(v *sdk.Volume) fabric.Volume { return fabric.Volume{ID: str(v.VolumeId), Size: int(*v.Size)} }

// beginVolume makes a volume: real, or by the clock alone.
func (s *Service) beginVolume(id string) {
	if s.cfg.Machines == nil {
		s.after(toVolume, id)
		return
	}
	d := disk(s.st.Volumes[id])
	s.work(id, func(ctx context.Context) { s.finish(ctx, toVolume, id, s.cfg.Machines.CreateVolume(ctx, d)) })
}

func (s *Service) endVolume(id string) {
	if s.cfg.Machines == nil {
		s.after(toVolumeGone, id)
		return
	}
	s.work(id, func(ctx context.Context) { s.finish(ctx, toVolumeGone, id, s.cfg.Machines.DeleteVolume(ctx, id)) })
}

func (s *Service) beginAttach(v *sdk.Volume, a *sdk.VolumeAttachment) {
	id, instance, device := str(v.VolumeId), str(a.InstanceId), str(a.Device)
	if s.cfg.Machines == nil {
		s.after(toAttached, id)
		return
	}
	s.work(id, func(ctx context.Context) {
		s.finish(ctx, toAttached, id, s.cfg.Machines.Attach(ctx, id, instance, device))
	})
}

func (s *Service) beginDetach(v *sdk.Volume, a *sdk.VolumeAttachment) {
	id, instance := str(v.VolumeId), str(a.InstanceId)
	if s.cfg.Machines == nil {
		s.after(toDetached, id)
		return
	}
	s.work(id, func(ctx context.Context) { s.finish(ctx, toDetached, id, s.cfg.Machines.Detach(ctx, id, instance)) })
}

// settleVolume moves a volume on; a failure is in Arg.
func (s *Service) settleVolume(t transition) {
	v := s.st.Volumes[t.ID]
	if v == nil {
		return
	}
	switch {
	case t.Kind == toVolumeGone:
		s.forget(t.ID)
		s.busy.forget(t.ID)
		delete(s.st.Volumes, t.ID)
	case t.Kind == toVolume && t.Arg != "":
		v.State = new(sdk.VolumeStateError)
	case t.Kind == toVolume:
		v.State = new(sdk.VolumeStateAvailable)
	case t.Kind == toDetached, t.Kind == toAttached && t.Arg != "":
		s.untie(v)
	case t.Kind == toAttached:
		s.settleAttached(v)
	}
}

func (s *Service) settleAttached(v *sdk.Volume) {
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
