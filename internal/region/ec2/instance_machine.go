// SPDX-License-Identifier: Apache-2.0

package ec2

import (
	"context"
	"fmt"
	"log/slog"
	"net/netip"
	"time"

	sdk "github.com/aws/aws-sdk-go/service/ec2"

	"github.com/slipway-k8s/slipway/internal/region/netbuilder"
	"github.com/slipway-k8s/slipway/internal/region/netspec"
)

// bootVolume is a volume that an instance boots with, other than its root volume.
type bootVolume struct {
	volume netspec.Volume
	device string
}

// machineSpec returns the machine of an instance and its volumes, or false if the instance is no longer
// pending.
func (s instanceHandlers) machineSpec(id string) (netspec.Machine, []bootVolume, bool) {
	s.store.Lock()
	defer s.store.Unlock()
	i := s.st.Instances[id]
	if i == nil || str(i.State.Name) != sdk.InstanceStateNamePending {
		return netspec.Machine{}, nil, false
	}

	n := s.st.Subnets[str(i.SubnetId)]
	v := s.st.VPCs[str(i.VpcId)]
	cidr := netip.MustParsePrefix(str(n.CidrBlock))
	t := s.instanceTypes[str(i.InstanceType)]
	m := netspec.Machine{
		ID:       id,
		Image:    s.st.bootedImage(str(i.ImageId)),
		Hostname: privateHostname(i),
		Domain:   s.st.domainName(v),
		VPC:      str(i.VpcId),
		Iface:    netbuilder.BuildInterface(s.st.networkInput(nil), s.st.Interfaces[s.st.Extra[id].Interface]),
		Subnet:   cidr,
		Gateway:  cidr.Addr().Next(),
		Resolver: vpcCIDRs(v)[0].Addr().Next().Next(),
		VCPUs:    int(t.VCPU),
		MemoryMB: int(t.MemoryMiB),
	}

	for _, more := range s.st.Extra[id].MoreInterfaces {
		m.More = append(m.More, netbuilder.BuildInterface(s.st.networkInput(nil), s.st.Interfaces[more]))
	}

	var disks []bootVolume

	for _, b := range i.BlockDeviceMappings {
		if vol := s.st.Volumes[str(b.Ebs.VolumeId)]; vol != nil &&
			str(b.DeviceName) != str(i.RootDeviceName) {
			disks = append(disks, bootVolume{toVolumeSpec(vol), str(b.DeviceName)})
		}
	}

	return m, disks, true
}

// endInterval is the time between two attempts to end a machine.
const endInterval = time.Second

// endMachine stops or terminates a machine with end, and detaches its volumes. It tries until that succeeds, as long as the instance is
// in state, so that no instance counts as stopped whose machine runs. It returns nil if the instance is in another state, as one that
// is terminated while it does not stop.
func (s instanceHandlers) endMachine(
	ctx context.Context,
	id, state string,
	end func(context.Context, string) error,
) error {
	s.awaitEnd(ctx, id, state)
	err := s.tryEndMachine(ctx, id, end)
	for err != nil && ctx.Err() == nil {
		s.cfg.Log.ErrorContext(
			ctx,
			"failed to end a machine; retrying",
			slog.String("id", id),
			slog.Any("error", err),
		)

		waitForSignal(ctx, nil, endInterval)
		if !s.isInState(id, state) {
			return nil
		}

		err = s.tryEndMachine(ctx, id, end)
	}

	return err
}

// awaitEnd waits as long as a fault makes instances take to end, or until it is cleared. The machine runs on meanwhile, as in a zone that
// is down.
func (s instanceHandlers) awaitEnd(ctx context.Context, id, state string) {
	if s.cfg.ProvisioningDelay == nil {
		return
	}

	begin := s.cfg.Now()
	kind := provisioningKind(transitionInstanceTerminated)
	for ctx.Err() == nil && s.isInState(id, state) {
		if s.cfg.Now().Sub(begin) >= s.cfg.ProvisioningDelay(kind, 0) {
			return
		}

		waitForSignal(ctx, nil, endInterval)
	}
}

// isInState reports whether an instance exists and is in state.
func (s instanceHandlers) isInState(id, state string) bool {
	s.store.Lock()
	defer s.store.Unlock()
	i := s.st.Instances[id]

	return i != nil && str(i.State.Name) == state
}

func (s instanceHandlers) tryEndMachine(
	ctx context.Context,
	id string,
	end func(context.Context, string) error,
) error {
	if err := end(ctx, id); err != nil {
		return fmt.Errorf("end machine %s: %w", id, err)
	}

	s.store.Lock()
	var volumes []string
	if i := s.st.Instances[id]; i != nil {
		for _, b := range i.BlockDeviceMappings {
			if str(b.DeviceName) != str(i.RootDeviceName) {
				volumes = append(volumes, str(b.Ebs.VolumeId))
			}
		}
	}

	s.store.Unlock()

	for _, v := range volumes {
		if err := s.cfg.Machines.Detach(ctx, v, id); err != nil {
			return fmt.Errorf("detach %s from %s: %w", v, id, err)
		}
	}

	return nil
}
