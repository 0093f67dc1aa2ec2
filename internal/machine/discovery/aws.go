// SPDX-License-Identifier: Apache-2.0

package discovery

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/ec2"
	ec2types "github.com/aws/aws-sdk-go-v2/service/ec2/types"
	"github.com/aws/aws-sdk-go-v2/service/route53"
	r53types "github.com/aws/aws-sdk-go-v2/service/route53/types"

	"github.com/slipway-k8s/slipway/internal/machine/node"
)

// Tags of the cluster's machines and volumes.
const (
	tagCluster   = "slipway.dev/cluster"
	tagClusterID = "slipway.dev/id"
	tagRole      = "slipway.dev/role"
	tagSlot      = "slipway.dev/etcd-slot"
)

// InstanceAPI lists the EC2 operations of the function.
type InstanceAPI interface {
	ec2.DescribeInstancesAPIClient
	ec2.DescribeVolumesAPIClient
}

// RecordAPI lists the Route 53 operations of the function.
type RecordAPI interface {
	ListResourceRecordSets(
		context.Context,
		*route53.ListResourceRecordSetsInput,
		...func(*route53.Options),
	) (*route53.ListResourceRecordSetsOutput, error)
	ChangeResourceRecordSets(
		context.Context,
		*route53.ChangeResourceRecordSetsInput,
		...func(*route53.Options),
	) (*route53.ChangeResourceRecordSetsOutput, error)
}

// filter returns a filter of EC2.
func filter(name string, values ...string) ec2types.Filter {
	return ec2types.Filter{Name: &name, Values: values}
}

// listInstances returns the machines that match filters. what completes "list the machines" in errors.
func (f Function) listInstances(ctx context.Context, what string, filters ...ec2types.Filter) ([]Machine, error) {
	var out []Machine
	pages := ec2.NewDescribeInstancesPaginator(f.Instances, &ec2.DescribeInstancesInput{Filters: filters})
	for pages.HasMorePages() {
		page, err := pages.NextPage(ctx)
		if err != nil {
			return nil, fmt.Errorf("list the machines %s: %w", what, err)
		}

		for _, r := range page.Reservations {
			for _, i := range r.Instances {
				out = append(out, newMachine(i))
			}
		}
	}

	return out, nil
}

// listMachines returns the pending and running machines of the control plane. If a slot has several, it also reads which
// of them has the slot's volume.
func (f Function) listMachines(ctx context.Context) ([]Machine, error) {
	out, err := f.listInstances(ctx, "of the control plane of cluster "+f.Cluster,
		filter("tag:"+tagCluster, f.Cluster),
		filter("tag:"+tagClusterID, f.ClusterID),
		filter("tag:"+tagRole, node.RoleTagControlPlane),
		filter("instance-state-name", "pending", "running"),
	)
	if err != nil || !hasSlotTwice(out) {
		return out, err
	}

	return out, f.markVolumes(ctx, out)
}

// haveEnded reports whether EC2 says of each of the machines that it ends or has ended. That EC2, which is eventually
// consistent, does not list a machine as running says less.
func (f Function) haveEnded(ctx context.Context, machines []Machine) (bool, error) {
	ids := make([]string, 0, len(machines))
	for _, m := range machines {
		ids = append(ids, m.ID)
	}

	list, err := f.listInstances(ctx, "of cluster "+f.Cluster+" that have ended",
		filter("instance-id", ids...),
		filter("instance-state-name", "shutting-down", "terminated"),
	)
	if err != nil {
		return false, err
	}

	ended := map[string]bool{}
	for _, m := range list {
		ended[m.ID] = true
	}

	return len(ended) == len(ids), nil
}

func newMachine(i ec2types.Instance) Machine {
	m := Machine{
		ID:       aws.ToString(i.InstanceId),
		Address:  aws.ToString(i.PrivateIpAddress),
		Launched: aws.ToTime(i.LaunchTime),
	}

	for _, t := range i.Tags {
		if aws.ToString(t.Key) == tagSlot {
			m.Slot = aws.ToString(t.Value)
		}
	}

	return m
}

// markVolumes sets HasVolume of the machines to which their slot's volume is attached.
func (f Function) markVolumes(ctx context.Context, machines []Machine) error {
	pages := ec2.NewDescribeVolumesPaginator(f.Instances, &ec2.DescribeVolumesInput{Filters: []ec2types.Filter{
		filter("tag:"+tagCluster, f.Cluster),
		filter("tag:"+tagClusterID, f.ClusterID),
		filter("tag-key", tagSlot),
	}})
	for pages.HasMorePages() {
		page, err := pages.NextPage(ctx)
		if err != nil {
			return fmt.Errorf("list the volumes of cluster %s: %w", f.Cluster, err)
		}

		for _, v := range page.Volumes {
			markVolume(machines, v)
		}
	}

	return nil
}

func markVolume(machines []Machine, v ec2types.Volume) {
	slot := ""
	for _, t := range v.Tags {
		if aws.ToString(t.Key) == tagSlot {
			slot = aws.ToString(t.Value)
		}
	}

	for _, a := range v.Attachments {
		for i, m := range machines {
			attached := a.State == ec2types.VolumeAttachmentStateAttached
			if attached && m.Slot == slot && m.ID == aws.ToString(a.InstanceId) {
				machines[i].HasVolume = true
			}
		}
	}
}

// listRecords returns the records of the zone that have no routing policy.
func (f Function) listRecords(ctx context.Context) ([]Record, error) {
	var out []Record
	in := &route53.ListResourceRecordSetsInput{HostedZoneId: &f.Zone}
	for {
		page, err := f.Records.ListResourceRecordSets(ctx, in)
		if err != nil {
			return nil, fmt.Errorf("list the records of zone %s: %w", f.Zone, err)
		}

		for _, r := range page.ResourceRecordSets {
			if r.SetIdentifier == nil && r.AliasTarget == nil {
				out = append(out, newRecord(r))
			}
		}

		if !page.IsTruncated {
			return out, nil
		}

		in.StartRecordName = page.NextRecordName
		in.StartRecordType = page.NextRecordType
		in.StartRecordIdentifier = page.NextRecordIdentifier
	}
}

func newRecord(r r53types.ResourceRecordSet) Record {
	out := Record{
		Name: strings.ToLower(strings.TrimSuffix(aws.ToString(r.Name), ".")),
		Type: string(r.Type),
		TTL:  aws.ToInt64(r.TTL),
	}

	for _, v := range r.ResourceRecords {
		out.Values = append(out.Values, aws.ToString(v.Value))
	}

	slices.Sort(out.Values)

	return out
}

// changeRecords makes all changes or none.
func (f Function) changeRecords(ctx context.Context, changes []Change) error {
	batch := &r53types.ChangeBatch{}
	for _, c := range changes {
		action := r53types.ChangeActionUpsert
		if c.Delete {
			action = r53types.ChangeActionDelete
		}

		set := &r53types.ResourceRecordSet{
			Name: &c.Record.Name,
			Type: r53types.RRType(c.Record.Type),
			TTL:  &c.Record.TTL,
		}

		for _, v := range c.Record.Values {
			set.ResourceRecords = append(set.ResourceRecords, r53types.ResourceRecord{Value: &v})
		}

		batch.Changes = append(batch.Changes, r53types.Change{Action: action, ResourceRecordSet: set})
	}

	_, err := f.Records.ChangeResourceRecordSets(
		ctx,
		&route53.ChangeResourceRecordSetsInput{HostedZoneId: &f.Zone, ChangeBatch: batch},
	)
	if err != nil {
		return fmt.Errorf("change %d records of zone %s: %w", len(changes), f.Zone, err)
	}

	return nil
}
