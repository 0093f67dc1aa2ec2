// SPDX-License-Identifier: Apache-2.0

package etcdadmin

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/ec2"
	ec2types "github.com/aws/aws-sdk-go-v2/service/ec2/types"

	"github.com/slipway-k8s/slipway/internal/cluster/clusterstate"
	"github.com/slipway-k8s/slipway/internal/infra/aws/driver"
	"github.com/slipway-k8s/slipway/internal/infra/aws/transport"
	"github.com/slipway-k8s/slipway/internal/infra/awskind"
	"github.com/slipway-k8s/slipway/internal/infra/graph"
	"github.com/slipway-k8s/slipway/internal/infra/plan"
	"github.com/slipway-k8s/slipway/internal/lib/diag"
	"github.com/slipway-k8s/slipway/internal/lib/sleep"
)

// movedEC2 are the calls of a move to EC2.
type movedEC2 interface {
	ec2.DescribeInstancesAPIClient
	ec2.DescribeVolumesAPIClient
	CreateTags(context.Context, *ec2.CreateTagsInput, ...func(*ec2.Options)) (*ec2.CreateTagsOutput, error)
	DeleteTags(context.Context, *ec2.DeleteTagsInput, ...func(*ec2.Options)) (*ec2.DeleteTagsOutput, error)
	TerminateInstances(
		context.Context,
		*ec2.TerminateInstancesInput,
		...func(*ec2.Options),
	) (*ec2.TerminateInstancesOutput, error)
}

// mover reads and changes what belongs to the slot of a cluster's only control-plane machine.
type mover struct {
	ec2 movedEC2
	// cluster selects what is of the cluster.
	cluster []ec2types.Filter
	slot    string
	zone    string
}

func (a *Admin) newMover(ctx context.Context, p MovePlan) (mover, error) {
	owner, record, err := clusterstate.ReadOwnership(ctx, a.state, a.name)
	if err != nil {
		return mover{}, err
	}

	if record.Key == "" {
		return mover{}, diag.WithHint(
			fmt.Errorf(
				"cluster %s has no record of its id in %s: what belongs to it in AWS is not known for certain",
				a.name,
				a.state.URL(),
			),
			"slipway apply writes it; see first what that would change: slipway plan "+a.name,
		)
	}

	cfg, err := a.env.AWS(ctx, a.set.Cluster.Spec.CloudProvider.AWS.Region)
	if err != nil {
		return mover{}, err
	}

	return mover{
		ec2: ec2.NewFromConfig(cfg),
		cluster: slices.Concat(
			driver.NewFilters("tag:"+awskind.TagCluster, a.name),
			driver.NewFilters("tag:"+awskind.TagClusterID, owner.ID),
		),
		slot: p.Slot,
		zone: p.Zone,
	}, nil
}

// inSlot selects what has the slot's tag.
func (m mover) inSlot() []ec2types.Filter {
	return slices.Concat(m.cluster, driver.NewFilters("tag:"+awskind.TagSlot, m.slot))
}

// read adds the volume and the machines of other zones to a plan. It returns the volume in the zone of the plan; empty if there is
// none.
func (m mover) read(ctx context.Context, p *MovePlan) (present string, err error) {
	volumes, err := m.listVolumes(ctx, m.inSlot())
	if err != nil {
		return "", err
	}

	var here, elsewhere []ec2types.Volume
	for _, v := range volumes {
		if aws.ToString(v.AvailabilityZone) == p.Zone {
			here = append(here, v)
		} else {
			elsewhere = append(elsewhere, v)
		}
	}

	if err := errors.Join(m.checkSingle(here, p), m.checkSingle(elsewhere, p)); err != nil {
		return "", err
	}

	for _, v := range here {
		present = aws.ToString(v.VolumeId)
	}

	for _, v := range elsewhere {
		p.Volume = aws.ToString(v.VolumeId)
		p.VolumeZone = aws.ToString(v.AvailabilityZone)
	}

	machines, err := m.listMachines(ctx)
	p.Machines = machines.elsewhere
	p.Ending = machines.ending

	return present, err
}

// checkSingle returns an error that names all volumes if there are several: it cannot be known which has the data.
func (m mover) checkSingle(volumes []ec2types.Volume, p *MovePlan) error {
	if len(volumes) < 2 { //nolint:mnd // several
		return nil
	}

	var names []string
	for _, v := range volumes {
		names = append(names, aws.ToString(v.VolumeId)+" in "+aws.ToString(v.AvailabilityZone))
	}

	slices.Sort(names)

	return diag.WithHint(
		fmt.Errorf(
			"slot %s of cluster %s has several volumes: %s",
			m.slot,
			p.Cluster,
			strings.Join(names, ", "),
		),
		"find out which has the data, and delete the tags "+awskind.TagSlot+" and "+awskind.TagAddress+" of the others",
	)
}

// listVolumes returns the volumes that are not being deleted.
func (m mover) listVolumes(ctx context.Context, filters []ec2types.Filter) ([]ec2types.Volume, error) {
	pages := ec2.NewDescribeVolumesPaginator(m.ec2, &ec2.DescribeVolumesInput{Filters: filters})
	volumes, err := transport.CollectPages(ctx, pages, func(p *ec2.DescribeVolumesOutput) []ec2types.Volume { return p.Volumes })
	if err != nil {
		return nil, fmt.Errorf("list the volumes of slot %s: %w", m.slot, err)
	}

	return slices.DeleteFunc(volumes, func(v ec2types.Volume) bool {
		return v.State == ec2types.VolumeStateDeleting || v.State == ec2types.VolumeStateDeleted
	}), nil
}

// readAside adds the volume with the data to a plan, if a move that has not ended has set it aside.
func (m mover) readAside(ctx context.Context, joined string, p *MovePlan) error {
	if joined == "" {
		return nil
	}

	volumes, err := m.listVolumes(ctx, slices.Concat(m.cluster, driver.NewFilters("tag:"+awskind.TagSetAside, m.slot)))
	if err != nil {
		return err
	}

	for _, v := range volumes {
		if aws.ToString(v.VolumeId) == joined {
			p.Volume = joined
			p.VolumeZone = aws.ToString(v.AvailabilityZone)
			p.Aside = true
		}
	}

	return nil
}

// setAside takes a volume out of the cluster: it loses the tags by which machines and plans find it. Its data stays, and the deletion
// of the cluster finds it as a leftover with data. It gets its new tag first, so that it has one of them at each moment. It returns
// when EC2 lists the volume no more for the slot: a machine that starts before would find it.
func (m mover) setAside(ctx context.Context, volume string) error {
	err := m.tag(ctx, volume, map[string]string{awskind.TagSetAside: m.slot})
	if err == nil {
		err = m.untag(ctx, volume, awskind.TagSlot, awskind.TagAddress)
	}

	if err == nil {
		err = m.waitUntilUnlisted(ctx, volume)
	}

	if err != nil {
		return fmt.Errorf("set volume %s aside: %w", volume, err)
	}

	return nil
}

const (
	// listTimeout is how long EC2 may list a volume with its former tags.
	listTimeout = time.Minute
	// listInterval is the pause between two lists.
	listInterval = time.Second
)

// waitUntilUnlisted returns when EC2 does not list a volume for the slot.
func (m mover) waitUntilUnlisted(ctx context.Context, volume string) error {
	limited, cancel := context.WithTimeout(ctx, listTimeout)
	defer cancel()

	for {
		volumes, err := m.listVolumes(limited, m.inSlot())
		if err != nil {
			return err
		}

		if !slices.ContainsFunc(volumes, func(v ec2types.Volume) bool { return aws.ToString(v.VolumeId) == volume }) {
			return nil
		}

		if sleep.For(limited, listInterval) != nil {
			return diag.WithHint(
				cmp.Or(ctx.Err(), fmt.Errorf("EC2 still lists it with the tag %s after %s", awskind.TagSlot, listTimeout)),
				"run the command again in a minute",
			)
		}
	}
}

// giveBack gives a volume that was set aside its tags, unless the slot has another volume by now. It reports whether it did.
func (m mover) giveBack(ctx context.Context, volume string) (bool, error) {
	others, err := m.listVolumes(ctx, m.inSlot())
	if err != nil {
		return false, err
	}

	if slices.ContainsFunc(others, func(v ec2types.Volume) bool { return aws.ToString(v.VolumeId) != volume }) {
		return false, nil
	}

	err = m.tag(ctx, volume, map[string]string{
		awskind.TagSlot:    m.slot,
		awskind.TagAddress: string(graph.Address(awskind.Volume{}.Kind(), "etcd-"+m.slot)),
	})
	if err == nil {
		err = m.untag(ctx, volume, awskind.TagSetAside)
	}

	if err != nil {
		return false, fmt.Errorf("give volume %s its tags back: %w", volume, err)
	}

	return true, nil
}

func (m mover) tag(ctx context.Context, volume string, tags map[string]string) error {
	in := &ec2.CreateTagsInput{Resources: []string{volume}}
	for key, value := range tags {
		in.Tags = append(in.Tags, ec2types.Tag{Key: &key, Value: &value})
	}

	_, err := m.ec2.CreateTags(ctx, in)

	return err
}

func (m mover) untag(ctx context.Context, volume string, keys ...string) error {
	in := &ec2.DeleteTagsInput{Resources: []string{volume}}
	for _, key := range keys {
		in.Tags = append(in.Tags, ec2types.Tag{Key: &key})
	}

	_, err := m.ec2.DeleteTags(ctx, in)

	return err
}

// slotMachines are the machines of a slot that have not ended.
type slotMachines struct {
	// elsewhere are those of other zones, sorted, and ending are the ones of them that EC2 is ending already.
	elsewhere, ending []string
	// here are those that run in the zone.
	here []string
}

// listMachines returns the machines of the slot that have not ended.
func (m mover) listMachines(ctx context.Context) (slotMachines, error) {
	pages := ec2.NewDescribeInstancesPaginator(m.ec2, &ec2.DescribeInstancesInput{Filters: m.inSlot()})
	machines, err := transport.CollectPages(ctx, pages, listInstances)
	if err != nil {
		return slotMachines{}, fmt.Errorf("list the machines of the control plane: %w", err)
	}

	var out slotMachines
	for _, i := range machines {
		id := aws.ToString(i.InstanceId)

		switch {
		case i.State == nil || i.State.Name == ec2types.InstanceStateNameTerminated:
		case i.Placement == nil || aws.ToString(i.Placement.AvailabilityZone) != m.zone:
			out.elsewhere = append(out.elsewhere, id)
			if i.State.Name == ec2types.InstanceStateNameShuttingDown {
				out.ending = append(out.ending, id)
			}

		case i.State.Name == ec2types.InstanceStateNameRunning:
			out.here = append(out.here, id)
		}
	}

	slices.Sort(out.elsewhere)
	slices.Sort(out.ending)

	return out, nil
}

func listInstances(p *ec2.DescribeInstancesOutput) []ec2types.Instance {
	var out []ec2types.Instance
	for _, r := range p.Reservations {
		out = append(out, r.Instances...)
	}

	return out
}

// endMachines terminates the machines of other zones and returns what is still waited for; empty if nothing is. AWS ends a machine
// of a zone that is down when the zone is back, if it has accepted the call.
func (m mover) endMachines(ctx context.Context, lostZone bool) (string, error) {
	machines, err := m.listMachines(ctx)
	if err != nil {
		return "", err
	}

	for _, id := range machines.elsewhere {
		_, err := m.ec2.TerminateInstances(ctx, &ec2.TerminateInstancesInput{InstanceIds: []string{id}})
		err = transport.Wrap(err, "terminate machine %s", id)
		if err != nil && plan.ErrorClassOf(err) != plan.NotFound { // it may have ended meanwhile
			return "", err
		}
	}

	switch {
	case len(machines.elsewhere) > 0 && !lostZone:
		return "machine " + strings.Join(machines.elsewhere, ", ") + " has not ended yet", nil
	case len(machines.here) == 0:
		return "no machine runs in zone " + m.zone + " yet", nil
	}

	return "", nil
}
