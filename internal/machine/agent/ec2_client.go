// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/ec2"
	"github.com/aws/aws-sdk-go-v2/service/ec2/types"
	"github.com/aws/smithy-go"

	"github.com/slipway-k8s/slipway/internal/machine/node"
)

// Tags of the cluster's machines and volumes.
const (
	tagCluster   = "slipway.dev/cluster"
	tagClusterID = "slipway.dev/id"
	tagRole      = "slipway.dev/role"
	tagGroup     = "slipway.dev/group"
	tagSlot      = "slipway.dev/etcd-slot"
	// tagScalingGroup is set by Auto Scaling. Nobody else can set tags that begin with aws:.
	tagScalingGroup = "aws:autoscaling:groupName"
)

// EC2API lists the EC2 operations of the agent. Only control-plane machines have the permissions.
type EC2API interface {
	DescribeInstances(
		context.Context,
		*ec2.DescribeInstancesInput,
		...func(*ec2.Options),
	) (*ec2.DescribeInstancesOutput, error)
	DescribeInstanceAttribute(
		context.Context,
		*ec2.DescribeInstanceAttributeInput,
		...func(*ec2.Options),
	) (*ec2.DescribeInstanceAttributeOutput, error)
	DescribeVolumes(
		context.Context,
		*ec2.DescribeVolumesInput,
		...func(*ec2.Options),
	) (*ec2.DescribeVolumesOutput, error)
	CreateVolume(
		context.Context,
		*ec2.CreateVolumeInput,
		...func(*ec2.Options),
	) (*ec2.CreateVolumeOutput, error)
	AttachVolume(
		context.Context,
		*ec2.AttachVolumeInput,
		...func(*ec2.Options),
	) (*ec2.AttachVolumeOutput, error)
	DetachVolume(
		context.Context,
		*ec2.DetachVolumeInput,
		...func(*ec2.Options),
	) (*ec2.DetachVolumeOutput, error)
	ElasticIPAPI
}

// EC2Client reads and changes one cluster's resources in EC2.
type EC2Client struct {
	// EC2 is the API client.
	EC2 EC2API
	// Cluster is the cluster's name, the value of the tag slipway.dev/cluster.
	Cluster string
	// ClusterID is the cluster's random id, the value of the tag slipway.dev/id. Resources that have another
	// one belong to another cluster of the same name and are left out. Those of an older slipway have none.
	ClusterID string
}

// isOurs reports whether a resource with the cluster's name does not belong to another cluster of this name.
func (c EC2Client) isOurs(tags []types.Tag) bool {
	id := tagValue(tags, tagClusterID)
	return id == "" || c.ClusterID == "" || id == c.ClusterID
}

// Machine is an EC2 instance of the cluster.
type Machine struct {
	// ID is the instance id.
	ID string
	// Account is the AWS account that owns the instance.
	Account string
	// Name is the private DNS name, which is also the node's name.
	Name string
	// Address is the private IPv4 address.
	Address string
	// State is the instance state, such as running.
	State string
	// Role is the value of the tag slipway.dev/role.
	Role string
	// Group is the name of the instance group.
	Group string
	// ScalingGroup is the name of the Auto Scaling group that launched the machine; empty if none did.
	ScalingGroup string
	// VPC is the id of the VPC.
	VPC string
	// Image is the id of the machine image.
	Image string
	// TokensRequired is set if the metadata service requires tokens.
	TokensRequired bool
	// Slot of a control-plane machine; empty for workers.
	Slot string
	// Launched is the launch time.
	Launched time.Time
	// EndedSince is when [machineList] first listed the machine as terminated; zero for others.
	EndedSince time.Time
}

// Volume is the EBS volume of a slot's etcd member.
type Volume struct {
	// ID is the volume id.
	ID string
	// Slot is the value of the tag slipway.dev/etcd-slot.
	Slot string
	// Zone is the availability zone.
	Zone string
	// State is the volume state, such as available or in-use.
	State string
	// AttachedTo is the id of the instance that the volume is attached to; empty for none.
	AttachedTo string
	// Detaching is set while the volume is being detached from that instance.
	Detaching bool
	// Created is the creation time.
	Created time.Time
	// KMSKey is the ARN of the key that encrypts the volume; empty if it is not encrypted.
	KMSKey string
}

// ListMachines returns the machines of the cluster, sorted by launch time. EC2 also lists
// terminated instances for about an hour.
func (c EC2Client) ListMachines(ctx context.Context) ([]Machine, error) {
	return c.describeMachines(
		ctx,
		&ec2.DescribeInstancesInput{Filters: []types.Filter{newFilter("tag:"+tagCluster, c.Cluster)}},
	)
}

// ListControlPlane returns the pending and running control-plane machines, sorted by launch time.
func (c EC2Client) ListControlPlane(ctx context.Context) ([]Machine, error) {
	return c.describeMachines(ctx, &ec2.DescribeInstancesInput{Filters: []types.Filter{
		newFilter("tag:"+tagCluster, c.Cluster),
		newFilter("tag:"+tagRole, node.RoleTagControlPlane),
		newFilter("instance-state-name", "pending", "running"),
	}})
}

// FindMachine returns the machine with an instance id. The second result is false if EC2 does not
// know it or if it belongs to another cluster.
func (c EC2Client) FindMachine(ctx context.Context, id string) (Machine, bool, error) {
	all, err := c.describeMachines(ctx, &ec2.DescribeInstancesInput{Filters: []types.Filter{
		newFilter("instance-id", id), newFilter("tag:"+tagCluster, c.Cluster),
	}})
	if err != nil || len(all) != 1 {
		return Machine{}, false, err
	}

	return all[0], true, nil
}

func (c EC2Client) describeMachines(ctx context.Context, in *ec2.DescribeInstancesInput) ([]Machine, error) {
	var out []Machine
	for pages := ec2.NewDescribeInstancesPaginator(c.EC2, in); pages.HasMorePages(); {
		page, err := pages.NextPage(ctx)
		if err != nil {
			return nil, fmt.Errorf("list machines of cluster %s: %w", c.Cluster, err)
		}

		for _, r := range page.Reservations {
			for _, i := range r.Instances {
				if !c.isOurs(i.Tags) {
					continue
				}

				m := machineFromEC2(i)
				m.Account = aws.ToString(r.OwnerId)
				out = append(out, m)
			}
		}
	}

	slices.SortFunc(out, func(a, b Machine) int {
		return cmp.Or(a.Launched.Compare(b.Launched), cmp.Compare(a.ID, b.ID))
	})

	return out, nil
}

func machineFromEC2(i types.Instance) Machine {
	m := Machine{
		ID:       aws.ToString(i.InstanceId),
		Name:     aws.ToString(i.PrivateDnsName),
		Address:  aws.ToString(i.PrivateIpAddress),
		Role:     tagValue(i.Tags, tagRole),
		Group:    tagValue(i.Tags, tagGroup),
		Slot:     tagValue(i.Tags, tagSlot),
		Launched: aws.ToTime(i.LaunchTime),

		ScalingGroup: tagValue(i.Tags, tagScalingGroup),
		VPC:          aws.ToString(i.VpcId),
		Image:        aws.ToString(i.ImageId),
	}
	if i.MetadataOptions != nil {
		m.TokensRequired = i.MetadataOptions.HttpTokens == types.HttpTokensStateRequired
	}

	if i.State != nil {
		m.State = string(i.State.Name)
	}

	return m
}

// ListVolumes returns the volumes of the cluster's slots, oldest first.
func (c EC2Client) ListVolumes(ctx context.Context) ([]Volume, error) {
	var out []Volume
	in := &ec2.DescribeVolumesInput{
		Filters: []types.Filter{newFilter("tag:"+tagCluster, c.Cluster), newFilter("tag-key", tagSlot)},
	}
	for pages := ec2.NewDescribeVolumesPaginator(c.EC2, in); pages.HasMorePages(); {
		page, err := pages.NextPage(ctx)
		if err != nil {
			return nil, fmt.Errorf("list volumes of cluster %s: %w", c.Cluster, err)
		}

		for _, v := range page.Volumes {
			if c.isOurs(v.Tags) {
				out = append(out, volumeFromEC2(v))
			}
		}
	}

	slices.SortFunc(
		out,
		func(a, b Volume) int { return cmp.Or(a.Created.Compare(b.Created), cmp.Compare(a.ID, b.ID)) },
	)

	return out, nil
}

// ListExistingVolumes returns the volumes of the cluster's slots, and those with one of the ids whatever their tags are. Those
// that are deleted or failed are left out.
func (c EC2Client) ListExistingVolumes(ctx context.Context, ids []string) ([]Volume, error) {
	out, err := c.ListVolumes(ctx)
	if err != nil {
		return nil, err
	}

	if len(ids) > 0 {
		more, err := c.findVolumes(ctx, ids)
		if err != nil {
			return nil, err
		}

		for _, v := range more {
			if !slices.ContainsFunc(out, func(o Volume) bool { return o.ID == v.ID }) {
				out = append(out, v)
			}
		}
	}

	return slices.DeleteFunc(out, func(v Volume) bool { return slices.Contains(unusableStates(), v.State) }), nil
}

// findVolumes returns the volumes with ids that exist.
func (c EC2Client) findVolumes(ctx context.Context, ids []string) ([]Volume, error) {
	var out []Volume
	in := &ec2.DescribeVolumesInput{Filters: []types.Filter{newFilter("volume-id", ids...)}}
	for pages := ec2.NewDescribeVolumesPaginator(c.EC2, in); pages.HasMorePages(); {
		page, err := pages.NextPage(ctx)
		if err != nil {
			return nil, fmt.Errorf("find volumes %v: %w", ids, err)
		}

		for _, v := range page.Volumes {
			out = append(out, volumeFromEC2(v))
		}
	}

	return out, nil
}

// unusableStates are the states of volumes whose data is lost.
func unusableStates() []string { return []string{"deleting", "deleted", "error"} }

func volumeFromEC2(v types.Volume) Volume {
	out := Volume{
		ID:      aws.ToString(v.VolumeId),
		Slot:    tagValue(v.Tags, tagSlot),
		Zone:    aws.ToString(v.AvailabilityZone),
		State:   string(v.State),
		Created: aws.ToTime(v.CreateTime),
		KMSKey:  aws.ToString(v.KmsKeyId),
	}

	for _, a := range v.Attachments {
		if a.State != types.VolumeAttachmentStateDetached {
			out.AttachedTo = aws.ToString(a.InstanceId)
			out.Detaching = a.State == types.VolumeAttachmentStateDetaching
		}
	}

	return out
}

// AttachVolume attaches a volume to an instance with the given device name.
func (c EC2Client) AttachVolume(ctx context.Context, volume, instance, device string) error {
	_, err := c.EC2.AttachVolume(
		ctx,
		&ec2.AttachVolumeInput{VolumeId: &volume, InstanceId: &instance, Device: &device},
	)
	if err != nil {
		return fmt.Errorf("attach volume %s to %s: %w", volume, instance, err)
	}

	return nil
}

// DetachVolume detaches a volume from an instance.
func (c EC2Client) DetachVolume(ctx context.Context, volume, instance string) error {
	_, err := c.EC2.DetachVolume(ctx, &ec2.DetachVolumeInput{VolumeId: &volume, InstanceId: &instance})
	if err != nil {
		return fmt.Errorf("detach volume %s from %s: %w", volume, instance, err)
	}

	return nil
}

// CheckDetachVolume returns an error unless DetachVolume is permitted. It changes nothing: EC2 answers a permitted dry
// run with the error DryRunOperation.
func (c EC2Client) CheckDetachVolume(ctx context.Context, volume, instance string) error {
	in := &ec2.DetachVolumeInput{VolumeId: &volume, InstanceId: &instance, DryRun: aws.Bool(true)}
	_, err := c.EC2.DetachVolume(ctx, in)
	if e, ok := errors.AsType[smithy.APIError](err); err == nil || ok && e.ErrorCode() == "DryRunOperation" {
		return nil
	}

	return fmt.Errorf("check whether this machine may detach volume %s: %w", volume, err)
}

func newFilter(name string, values ...string) types.Filter {
	return types.Filter{Name: &name, Values: values}
}

func tagValue(tags []types.Tag, key string) string {
	for _, t := range tags {
		if aws.ToString(t.Key) == key {
			return aws.ToString(t.Value)
		}
	}

	return ""
}
