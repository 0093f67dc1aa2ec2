// SPDX-License-Identifier: Apache-2.0

package inventory_test

import (
	"context"
	"testing"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/ec2"
	ec2types "github.com/aws/aws-sdk-go-v2/service/ec2/types"

	"github.com/slipway-k8s/slipway/internal/cluster/clusterstate"
	"github.com/slipway-k8s/slipway/internal/cluster/inventory"
	"github.com/slipway-k8s/slipway/internal/infra/awskind"
)

// sharedCloud has machines of two clusters of one name, and one of an older version without an id.
type sharedCloud struct{ cloud }

// DescribeInstances implements [ec2.DescribeInstancesAPIClient].
func (sharedCloud) DescribeInstances(context.Context, *ec2.DescribeInstancesInput, ...func(*ec2.Options)) (*ec2.DescribeInstancesOutput, error) {
	var list []ec2types.Instance
	for id, cluster := range map[string]string{"i-1": "aaaaaaaaaaaaaaaa", "i-2": "bbbbbbbbbbbbbbbb", "i-3": ""} {
		i := instance(id, inventory.RoleWorker, "workers", "")
		if cluster != "" {
			i.Tags = append(i.Tags, ec2types.Tag{Key: aws.String(awskind.TagClusterID), Value: aws.String(cluster)})
		}
		list = append(list, i)
	}
	return &ec2.DescribeInstancesOutput{Reservations: []ec2types.Reservation{{Instances: list}}}, nil
}

// TestOtherClusterOfTheName: `slipway ssh` must not open a shell on a machine of another cluster.
func TestOtherClusterOfTheName(t *testing.T) {
	own := clusterstate.Ownership{ID: "aaaaaaaaaaaaaaaa"}
	machines, err := inventory.Reader{Cluster: "demo", Ownership: own, EC2: sharedCloud{}, AutoScaling: sharedCloud{}}.ReadMachines(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if len(machines) != 2 || machines[0].ID != "i-1" || machines[1].ID != "i-3" {
		t.Errorf("machines: %+v", machines)
	}
}
