// SPDX-License-Identifier: Apache-2.0

package driver

import (
	"context"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/ec2"
	ec2types "github.com/aws/aws-sdk-go-v2/service/ec2/types"

	"github.com/slipway-k8s/slipway/internal/infra/aws/transport"
	"github.com/slipway-k8s/slipway/internal/infra/awskind"
	"github.com/slipway-k8s/slipway/internal/infra/graph"
	"github.com/slipway-k8s/slipway/internal/infra/plan"
)

type volumeAPI interface {
	tagAPI
	ec2.DescribeVolumesAPIClient
	CreateVolume(
		context.Context,
		*ec2.CreateVolumeInput,
		...func(*ec2.Options),
	) (*ec2.CreateVolumeOutput, error)
	ModifyVolume(
		context.Context,
		*ec2.ModifyVolumeInput,
		...func(*ec2.Options),
	) (*ec2.ModifyVolumeOutput, error)
	DeleteVolume(
		context.Context,
		*ec2.DeleteVolumeInput,
		...func(*ec2.Options),
	) (*ec2.DeleteVolumeOutput, error)
}

// registerVolumes registers the driver of EBS volumes that outlive instances. The root volumes of
// instances have no address and are not read.
func registerVolumes(c *Cloud, api volumeAPI, scope Scope) {
	c.addReader(
		func(ctx context.Context) ([]plan.ActualResource, error) { return readVolumes(ctx, api, scope) },
		awskind.Volume{},
	)

	registerDriver(c, driver[awskind.Volume]{
		create: func(ctx context.Context, t task[awskind.Volume]) (plan.StepResult, error) {
			key, _ := t.want.KMSKey.Literal()
			out, err := api.CreateVolume(ctx, &ec2.CreateVolumeInput{
				AvailabilityZone:  &t.want.Zone,
				VolumeType:        ec2types.VolumeType(t.want.VolumeType),
				Size:              int32OrNil(t.want.Size),
				Iops:              int32OrNil(t.want.IOPS),
				Throughput:        int32OrNil(t.want.Throughput),
				Encrypted:         &t.want.Encrypted,
				KmsKeyId:          stringOrNil(key),
				ClientToken:       &t.token,
				TagSpecifications: tagSpecifications(ec2types.ResourceTypeVolume, t.want.Tags),
			})
			if err != nil {
				return plan.StepResult{}, transport.Wrap(err, "create volume")
			}

			return plan.StepResult{ID: aws.ToString(out.VolumeId)}, nil
		},
		update: func(ctx context.Context, t task[awskind.Volume]) (plan.StepResult, error) {
			if needsModification(t.want, t.have) {
				_, err := api.ModifyVolume(ctx, &ec2.ModifyVolumeInput{
					VolumeId:   &t.id,
					VolumeType: ec2types.VolumeType(t.want.VolumeType),
					Size:       int32OrNil(t.want.Size),
					Iops:       int32OrNil(t.want.IOPS),
					Throughput: int32OrNil(t.want.Throughput),
				})
				if err != nil {
					return plan.StepResult{}, transport.Wrap(err, "modify")
				}
			}

			return keepIdentity(t), retagEC2(ctx, api, t.id, t.want.Tags, t.have.Tags)
		},
		remove: func(ctx context.Context, t task[awskind.Volume]) error {
			_, err := api.DeleteVolume(ctx, &ec2.DeleteVolumeInput{VolumeId: &t.id})
			return c.explainInUse(ctx, transport.Wrap(err, "delete"), "volume-id", t.id)
		},
	})
}

// needsModification reports whether type, size or performance differ. IOPS and throughput that are
// not set are AWS's defaults.
func needsModification(want, have awskind.Volume) bool {
	return want.VolumeType != have.VolumeType ||
		want.Size != have.Size ||
		want.IOPS != 0 && want.IOPS != have.IOPS ||
		want.Throughput != 0 && want.Throughput != have.Throughput
}

func readVolumes(ctx context.Context, api volumeAPI, scope Scope) ([]plan.ActualResource, error) {
	var out []plan.ActualResource
	pages := ec2.NewDescribeVolumesPaginator(api, &ec2.DescribeVolumesInput{Filters: clusterFilters(scope)})
	for pages.HasMorePages() {
		page, err := pages.NextPage(ctx)
		if err != nil {
			return nil, transport.Wrap(err, "list volumes")
		}

		for _, v := range page.Volumes {
			if v.State == ec2types.VolumeStateDeleting || v.State == ec2types.VolumeStateDeleted {
				continue
			}

			r := FromVolume(v)
			out = append(out, newActual(v.VolumeId, r.Tags, r))
		}
	}

	return out, nil
}

// FromVolume returns a volume that EC2 lists.
func FromVolume(v ec2types.Volume) awskind.Volume {
	return awskind.Volume{
		Zone:       aws.ToString(v.AvailabilityZone),
		VolumeType: string(v.VolumeType),
		Size:       int(aws.ToInt32(v.Size)),
		IOPS:       int(aws.ToInt32(v.Iops)),
		Throughput: int(aws.ToInt32(v.Throughput)),
		Encrypted:  aws.ToBool(v.Encrypted),
		KMSKey:     graph.LiteralText(aws.ToString(v.KmsKeyId)),
		Tags:       FromEC2Tags(v.Tags),
	}
}
