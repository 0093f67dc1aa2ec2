// SPDX-License-Identifier: Apache-2.0

package etcdadmin

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/ec2"
	ec2types "github.com/aws/aws-sdk-go-v2/service/ec2/types"

	"github.com/slipway-k8s/slipway/internal/cluster"
	"github.com/slipway-k8s/slipway/internal/cluster/clusterstate"
	"github.com/slipway-k8s/slipway/internal/cluster/operation"
	"github.com/slipway-k8s/slipway/internal/infra/awskind"
	"github.com/slipway-k8s/slipway/internal/lib/diag"
	"github.com/slipway-k8s/slipway/internal/lib/store"
	"github.com/slipway-k8s/slipway/internal/machine/backup"
	"github.com/slipway-k8s/slipway/internal/machine/node"
	"github.com/slipway-k8s/slipway/internal/manifest"
)

// endTimeout is how long the machine in the former zone may take to end, and the one in the new zone to run.
const endTimeout = 5 * time.Minute

// MovePlan is how etcd of a cluster with one control-plane machine moves to the zone that the manifest names. The volume cannot
// follow: a backup is restored on a new one.
type MovePlan struct {
	// Cluster is the name of the cluster.
	Cluster string `json:"cluster"`
	// Slot is that of the machine.
	Slot string `json:"slot"`
	// Zone of the manifest.
	Zone string `json:"zone"`
	// Volume in another zone, which is set aside, and its zone; empty if there is none.
	Volume     string `json:"volume,omitempty"`
	VolumeZone string `json:"volumeZone,omitempty"`
	// Machines in other zones that have not ended.
	Machines []string `json:"machines,omitempty"`
	// Works is set if etcd answers. A backup is taken then.
	Works bool `json:"works"`
	// Backup is the newest one that can be restored, or the one that was asked for; nil if there is none.
	Backup *backup.Backup `json:"backup,omitempty"`
	// Done is set if etcd has its data in the zone of the manifest.
	Done bool `json:"done"`
}

// movedEC2 are the calls of a move to EC2.
type movedEC2 interface {
	ec2.DescribeInstancesAPIClient
	ec2.DescribeVolumesAPIClient
	DeleteTags(context.Context, *ec2.DeleteTagsInput, ...func(*ec2.Options)) (*ec2.DeleteTagsOutput, error)
	TerminateInstances(
		context.Context,
		*ec2.TerminateInstancesInput,
		...func(*ec2.Options),
	) (*ec2.TerminateInstancesOutput, error)
}

// mover reads and changes what belongs to the slot of a cluster's only control-plane machine.
type mover struct {
	ec2     movedEC2
	filters []ec2types.Filter
	zone    string
}

// PlanMove plans the move of etcd to the zone of the manifest. snapshot is the backup to restore; empty: the newest.
func (a *Admin) PlanMove(ctx context.Context, snapshot string) (MovePlan, error) {
	out := MovePlan{Cluster: a.name, Slot: node.PossibleSlots(a.name)[0].Name}
	zones := manifest.ControlPlaneZones(a.set)
	if len(zones) != 1 {
		return out, diag.WithHint(
			fmt.Errorf("cluster %s has %d control-plane machines: only that of a single one moves", a.name, len(zones)),
			"members of several machines are replaced in their zones: slipway apply --recreate-lost-volumes",
		)
	}

	out.Zone = zones[0]
	if err := a.checkDirect(ctx); err != nil {
		return out, err
	}

	m, err := a.newMover(ctx, out)
	if err != nil {
		return out, err
	}

	present, err := m.read(ctx, &out)
	if err != nil {
		return out, err
	}

	joined, err := a.joinedVolume(ctx, out.Slot)
	if err != nil {
		return out, err
	}

	if out.Done = out.isDone(present, joined); out.Done {
		return out, nil
	}

	return out, a.planMovedBackup(ctx, &out, snapshot)
}

// isDone reports whether the slot has nothing in other zones, and its volume in the zone is the one that has had data last. A member
// that never had data has nothing to move.
func (p MovePlan) isDone(present, joined string) bool {
	return p.Volume == "" && len(p.Machines) == 0 && present != "" && (joined == "" || joined == present)
}

// checkDirect returns an error if a stack owns the machine and its volume.
func (a *Admin) checkDirect(ctx context.Context) error {
	via, err := clusterstate.ReadProvisioner(ctx, a.state, a.name)
	if err != nil {
		return err
	}

	if via == clusterstate.CloudFormation {
		return diag.WithHint(
			fmt.Errorf("cluster %s belongs to a CloudFormation stack, which would replace the volume", a.name),
			"restore a backup into another cluster: slipway etcd restore --from "+a.name,
		)
	}

	return nil
}

func (a *Admin) newMover(ctx context.Context, p MovePlan) (mover, error) {
	owner, _, err := clusterstate.ReadOwnership(ctx, a.state, a.name)
	if err != nil {
		return mover{}, err
	}

	cfg, err := a.env.AWS(ctx, a.set.Cluster.Spec.CloudProvider.AWS.Region)
	if err != nil {
		return mover{}, err
	}

	filter := func(tag, value string) ec2types.Filter {
		return ec2types.Filter{Name: aws.String("tag:" + tag), Values: []string{value}}
	}

	return mover{
		ec2:  ec2.NewFromConfig(cfg),
		zone: p.Zone,
		filters: []ec2types.Filter{
			filter(awskind.TagCluster, a.name), filter(awskind.TagClusterID, owner.ID), filter(awskind.TagSlot, p.Slot),
		},
	}, nil
}

// read adds the volume and the machines of other zones to a plan. It returns the volume in the zone of the plan; empty if there is
// none.
func (m mover) read(ctx context.Context, p *MovePlan) (present string, err error) {
	pages := ec2.NewDescribeVolumesPaginator(m.ec2, &ec2.DescribeVolumesInput{Filters: m.filters})
	for pages.HasMorePages() {
		page, err := pages.NextPage(ctx)
		if err != nil {
			return "", fmt.Errorf("list the volumes of slot %s of cluster %s: %w", p.Slot, p.Cluster, err)
		}

		for _, v := range page.Volumes {
			switch {
			case v.State == ec2types.VolumeStateDeleting || v.State == ec2types.VolumeStateDeleted:
			case aws.ToString(v.AvailabilityZone) == p.Zone:
				present = aws.ToString(v.VolumeId)
			default:
				p.Volume = aws.ToString(v.VolumeId)
				p.VolumeZone = aws.ToString(v.AvailabilityZone)
			}
		}
	}

	p.Machines, _, err = m.listMachines(ctx)

	return present, err
}

// listMachines returns the machines of the slot that have not ended: those of other zones, and those that run in the zone.
func (m mover) listMachines(ctx context.Context) (elsewhere, here []string, err error) {
	pages := ec2.NewDescribeInstancesPaginator(m.ec2, &ec2.DescribeInstancesInput{Filters: m.filters})
	for pages.HasMorePages() {
		page, err := pages.NextPage(ctx)
		if err != nil {
			return nil, nil, fmt.Errorf("list the machines of the control plane: %w", err)
		}

		for _, r := range page.Reservations {
			for _, i := range r.Instances {
				switch {
				case i.State == nil || i.State.Name == ec2types.InstanceStateNameTerminated:
				case i.Placement == nil || aws.ToString(i.Placement.AvailabilityZone) != m.zone:
					elsewhere = append(elsewhere, aws.ToString(i.InstanceId))
				case i.State.Name == ec2types.InstanceStateNameRunning:
					here = append(here, aws.ToString(i.InstanceId))
				}
			}
		}
	}

	slices.Sort(elsewhere)

	return elsewhere, here, nil
}

// joinedVolume returns the volume on which the slot's member has had data last; empty if there is none.
func (a *Admin) joinedVolume(ctx context.Context, slot string) (string, error) {
	o, err := a.archive.Store.Get(ctx, node.EtcdJoinedKey(a.name, slot))
	if errors.Is(err, store.ErrNotFound) {
		return "", nil
	}

	if err != nil {
		return "", err
	}

	var record struct {
		Volume string `json:"volume"`
	}
	if err := json.Unmarshal(o.Body, &record); err != nil {
		return "", fmt.Errorf("read %s: %w", o.Key, err)
	}

	return record.Volume, nil
}

// planMovedBackup adds whether etcd works, and the backup.
func (a *Admin) planMovedBackup(ctx context.Context, p *MovePlan, snapshot string) error {
	status, err := a.Status(ctx)
	if err != nil {
		return err
	}

	p.Works = status.Quorum
	backups, err := a.Backups(ctx)
	if err != nil {
		return err
	}

	if snapshot != "" {
		found, err := chooseBackup(backups, snapshot)
		p.Backup = &found

		return err
	}

	p.Backup = newestUsable(backups)
	if p.Backup == nil && !p.Works {
		return diag.WithHint(
			fmt.Errorf("cluster %s has no backup of etcd that can be restored", a.name),
			"wait until zone "+p.VolumeZone+" is back: the data is on volume "+p.Volume,
		)
	}

	return nil
}

// newestUsable returns the newest backup whose test did not fail; nil if there is none.
func newestUsable(backups []backup.Backup) *backup.Backup {
	for _, b := range slices.Backward(backups) {
		if b.Verification == nil || b.Verification.OK {
			return &b
		}
	}

	return nil
}

// SetVolumeAside takes the volume of the former zone out of the cluster: it loses the tags by which machines and plans find it. Its
// data stays. Its owner is still the cluster, whose deletion finds it as a leftover with data.
func (a *Admin) SetVolumeAside(ctx context.Context, p MovePlan) error {
	if p.Volume == "" {
		return nil
	}

	return a.runMove(ctx, func(ctx context.Context) error {
		m, err := a.newMover(ctx, p)
		if err != nil {
			return err
		}

		in := &ec2.DeleteTagsInput{Resources: []string{p.Volume}}
		for _, key := range []string{awskind.TagSlot, awskind.TagAddress, awskind.TagCluster} {
			in.Tags = append(in.Tags, ec2types.Tag{Key: &key})
		}

		if _, err := m.ec2.DeleteTags(ctx, in); err != nil {
			return fmt.Errorf("set volume %s aside: %w", p.Volume, err)
		}

		a.env.Notifyf("volume %s was set aside: its data stays until you delete it", p.Volume)

		return nil
	})
}

// runMove does a part of a move while it holds the cluster's lock.
func (a *Admin) runMove(ctx context.Context, do func(context.Context) error) error {
	req := cluster.OperationRequest{Store: a.state, Cluster: a.name, Kind: "etcd-move"}

	return a.env.RunOperation(ctx, req, func(ctx context.Context, _ *operation.Operation, _ store.Store) error {
		return do(ctx)
	})
}

// EndMachines terminates the machines of other zones, and waits until they have ended and one runs in the zone. Two machines of one
// slot would both restore the backup. lostZone says that the others cannot end, because their zone is down.
func (a *Admin) EndMachines(ctx context.Context, p MovePlan, lostZone bool) error {
	return a.runMove(ctx, func(ctx context.Context) error {
		m, err := a.newMover(ctx, p)
		if err != nil {
			return err
		}

		deadline := a.env.Now().Add(endTimeout)
		for told := ""; ; {
			waits, err := m.endMachines(ctx, lostZone)
			if err != nil || waits == "" {
				return err
			}

			if waits != told {
				a.env.Notifyf("waiting: %s", waits)
				told = waits
			}

			if a.env.Now().After(deadline) {
				return diag.WithHint(
					fmt.Errorf("etcd cannot be restored in zone %s after %s: %s", p.Zone, endTimeout, waits),
					"rerun the command to wait again; if the zone of a machine that does not end is down, add --zone-is-down",
				)
			}

			select {
			case <-ctx.Done():
				return fmt.Errorf("wait for the machine in zone %s: %w", p.Zone, ctx.Err())
			case <-time.After(restorePollInterval):
			}
		}
	})
}

// endMachines terminates the machines of other zones and returns what is still waited for; empty if nothing is.
func (m mover) endMachines(ctx context.Context, lostZone bool) (string, error) {
	elsewhere, here, err := m.listMachines(ctx)
	if err != nil {
		return "", err
	}

	if len(elsewhere) > 0 {
		_, err := m.ec2.TerminateInstances(ctx, &ec2.TerminateInstancesInput{InstanceIds: elsewhere})
		if err != nil && !lostZone {
			return "", fmt.Errorf("terminate machine %s: %w", strings.Join(elsewhere, ", "), err)
		}
	}

	switch {
	case len(elsewhere) > 0 && !lostZone:
		return "machine " + strings.Join(elsewhere, ", ") + " has not ended yet", nil
	case len(here) == 0:
		return "no machine runs in zone " + m.zone + " yet", nil
	}

	return "", nil
}
