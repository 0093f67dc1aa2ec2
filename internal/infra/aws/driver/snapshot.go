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

// Snapshot is a snapshot of the volume of a PersistentVolumeClaim. Slipway creates none and only
// deletes them.
type Snapshot struct {
	// KMSKey is the ARN of the key that encrypts the snapshot; empty if it is not encrypted.
	KMSKey graph.Text `aws:"KmsKeyId"`
	// Tags are all tags of the snapshot.
	Tags awskind.Tags `aws:"Tags,tags"`
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

// registerSnapshots registers the driver of snapshots.
func registerSnapshots(c *Cloud, api snapshotDeleteAPI) {
	registerDriver(c, driver[Snapshot]{remove: func(ctx context.Context, t task[Snapshot]) error {
		_, err := api.DeleteSnapshot(ctx, &ec2.DeleteSnapshotInput{SnapshotId: &t.id})
		if err = transport.Wrap(err, "delete %s", t.id); transport.ErrorCode(err) == "InvalidSnapshot.InUse" {
			op := "delete " + t.id + ": an image was created from it; deregister the image first"
			return transport.NewError(op, plan.InUse, err)
		}

		return err
	}})
}
