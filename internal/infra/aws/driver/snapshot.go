// SPDX-License-Identifier: Apache-2.0

package driver

import (
	"context"

	"github.com/aws/aws-sdk-go-v2/service/ec2"

	"github.com/slipway-k8s/slipway/internal/infra/aws/transport"
	"github.com/slipway-k8s/slipway/internal/infra/awskind"
	"github.com/slipway-k8s/slipway/internal/infra/graph"
	"github.com/slipway-k8s/slipway/internal/infra/plan"
)

// Snapshot is a snapshot of a claim's volume. We make none: it is only removed.
type Snapshot struct {
	KMSKey graph.Text   `aws:"KmsKeyId"`
	Tags   awskind.Tags `aws:"Tags,tags"`
}

// Kind implements [graph.Resource].
func (Snapshot) Kind() graph.Kind { return graph.Kind{Name: "snapshot"} }

type snapshotDeleteAPI interface {
	DeleteSnapshot(
		context.Context,
		*ec2.DeleteSnapshotInput,
		...func(*ec2.Options),
	) (*ec2.DeleteSnapshotOutput, error)
}

// registerSnapshots deletes snapshots of volumes.
func registerSnapshots(c *Cloud, api snapshotDeleteAPI) {
	registerDriver(c, driver[Snapshot]{remove: func(ctx context.Context, t task[Snapshot]) error {
		_, err := api.DeleteSnapshot(ctx, &ec2.DeleteSnapshotInput{SnapshotId: &t.id})
		if err = transport.Wrap(err, "delete %s", t.id); transport.ErrorCode(err) == "InvalidSnapshot.InUse" {
			return transport.NewError("delete "+t.id+": an image was made of it: deregister that first", plan.InUse, err)
		}

		return err
	}})
}
