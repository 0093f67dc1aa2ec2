// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"context"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/ec2"
	"github.com/aws/aws-sdk-go-v2/service/ec2/types"
)

// twoClusters is an EC2 with the machines, volumes and addresses of two clusters of the same name.
type twoClusters struct {
	EC2API
	taken []string
}

func tagsOf(id string) []types.Tag {
	tags := []types.Tag{{Key: aws.String(tagCluster), Value: aws.String("demo")}, {Key: aws.String(tagSlot), Value: aws.String("a")}}
	if id != "" {
		tags = append(tags, types.Tag{Key: aws.String(tagClusterID), Value: &id})
	}
	return tags
}

func (*twoClusters) DescribeInstances(context.Context, *ec2.DescribeInstancesInput, ...func(*ec2.Options)) (*ec2.DescribeInstancesOutput, error) {
	var out ec2.DescribeInstancesOutput
	for _, id := range []string{"ours", "theirs", ""} {
		out.Reservations = append(out.Reservations, types.Reservation{Instances: []types.Instance{{InstanceId: aws.String("i-" + id), Tags: tagsOf(id)}}})
	}
	return &out, nil
}

func (*twoClusters) DescribeVolumes(context.Context, *ec2.DescribeVolumesInput, ...func(*ec2.Options)) (*ec2.DescribeVolumesOutput, error) {
	var out ec2.DescribeVolumesOutput
	for _, id := range []string{"theirs", "ours"} {
		v := slotVolume("vol-"+id, "a", "z", "", time.Time{})
		v.Tags = tagsOf(id)
		out.Volumes = append(out.Volumes, v)
	}
	return &out, nil
}

func (*twoClusters) DescribeAddresses(context.Context, *ec2.DescribeAddressesInput, ...func(*ec2.Options)) (*ec2.DescribeAddressesOutput, error) {
	var out ec2.DescribeAddressesOutput
	for _, id := range []string{"theirs", "ours"} {
		out.Addresses = append(out.Addresses, types.Address{AllocationId: aws.String("eipalloc-" + id), Tags: tagsOf(id)})
	}
	return &out, nil
}

func (c *twoClusters) AssociateAddress(_ context.Context, in *ec2.AssociateAddressInput, _ ...func(*ec2.Options)) (*ec2.AssociateAddressOutput, error) {
	c.taken = append(c.taken, *in.AllocationId)
	return &ec2.AssociateAddressOutput{}, nil
}

// TestMachinesOfAnotherCluster: a machine finds nothing of another cluster of the same name. What an older
// slipway created has no id.
func TestMachinesOfAnotherCluster(t *testing.T) {
	cloud := &twoClusters{}
	c := EC2Client{EC2: cloud, Cluster: "demo", ClusterID: "ours"}
	machines, err := c.ListMachines(t.Context())
	if err != nil || len(machines) != 2 || machines[0].ID != "i-" || machines[1].ID != "i-ours" {
		t.Errorf("%+v, %v", machines, err)
	}
	volumes, err := c.ListVolumes(t.Context())
	if err != nil || len(volumes) != 1 || volumes[0].ID != "vol-ours" {
		t.Errorf("%+v, %v", volumes, err)
	}
	if err := c.AssociateElasticIP(t.Context(), "a", "i-me"); err != nil || len(cloud.taken) != 1 || cloud.taken[0] != "eipalloc-ours" {
		t.Errorf("%v, %v", cloud.taken, err)
	}
}
