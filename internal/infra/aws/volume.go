// SPDX-License-Identifier: Apache-2.0

package aws

import (
	"context"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/ec2"
	ec2types "github.com/aws/aws-sdk-go-v2/service/ec2/types"

	"github.com/slipway-k8s/slipway/internal/infra/awskind"
	"github.com/slipway-k8s/slipway/internal/infra/graph"
	"github.com/slipway-k8s/slipway/internal/infra/plan"
)

type volumeAPI interface {
	tagAPI
	DescribeVolumes(context.Context, *ec2.DescribeVolumesInput, ...func(*ec2.Options)) (*ec2.DescribeVolumesOutput, error)
	CreateVolume(context.Context, *ec2.CreateVolumeInput, ...func(*ec2.Options)) (*ec2.CreateVolumeOutput, error)
	ModifyVolume(context.Context, *ec2.ModifyVolumeInput, ...func(*ec2.Options)) (*ec2.ModifyVolumeOutput, error)
	DeleteVolume(context.Context, *ec2.DeleteVolumeInput, ...func(*ec2.Options)) (*ec2.DeleteVolumeOutput, error)
}

// volumes drives the EBS volumes that have an address: those that outlive instances.
func volumes(c *Cloud, api volumeAPI, scope Scope) {
	c.find(func(ctx context.Context) ([]plan.Actual, error) { return readVolumes(ctx, api, scope) },
		awskind.Volume{})
	register(c, driver[awskind.Volume]{
		create: func(ctx context.Context, t task[awskind.Volume]) (plan.Made, error) {
			key, _ := t.want.KMSKey.Literal()
			out, err := api.CreateVolume(ctx, &ec2.CreateVolumeInput{
				AvailabilityZone: &t.want.Zone, VolumeType: ec2types.VolumeType(t.want.VolumeType), Size: number(t.want.Size),
				Iops: number(t.want.IOPS), Throughput: number(t.want.Throughput), Encrypted: &t.want.Encrypted, KmsKeyId: optional(key),
				ClientToken: &t.token, TagSpecifications: specify(ec2types.ResourceTypeVolume, t.want.Tags),
			})
			if err != nil {
				return plan.Made{}, wrap(err, "create volume")
			}
			return plan.Made{ID: aws.ToString(out.VolumeId)}, nil
		},
		update: func(ctx context.Context, t task[awskind.Volume]) (plan.Made, error) {
			w, h := t.want, t.have
			if w.VolumeType != h.VolumeType || w.Size != h.Size || w.IOPS != 0 && w.IOPS != h.IOPS || w.Throughput != 0 && w.Throughput != h.Throughput {
				_, err := api.ModifyVolume(ctx, &ec2.ModifyVolumeInput{
					VolumeId: &t.id, VolumeType: ec2types.VolumeType(w.VolumeType), Size: number(w.Size), Iops: number(w.IOPS), Throughput: number(w.Throughput),
				})
				if err != nil {
					return plan.Made{}, wrap(err, "modify")
				}
			}
			return kept(t), retag(ctx, api, t.id, w.Tags, h.Tags)
		},
		remove: func(ctx context.Context, t task[awskind.Volume]) error {
			_, err := api.DeleteVolume(ctx, &ec2.DeleteVolumeInput{VolumeId: &t.id})
			return c.blocked(ctx, wrap(err, "delete"), "volume-id", t.id)
		},
	})
}

func readVolumes(ctx context.Context, api volumeAPI, scope Scope) ([]plan.Actual, error) {
	var out []plan.Actual
	pages := ec2.NewDescribeVolumesPaginator(api, &ec2.DescribeVolumesInput{Filters: ours(scope)})
	for pages.HasMorePages() {
		page, err := pages.NextPage(ctx)
		if err != nil {
			return nil, wrap(err, "list volumes")
		}
		for _, v := range page.Volumes {
			if v.State == ec2types.VolumeStateDeleting || v.State == ec2types.VolumeStateDeleted {
				continue
			}
			r := fromVolume(v)
			out = append(out, plan.Actual{Addr: addressOf(r.Tags), ID: aws.ToString(v.VolumeId), Resource: r})
		}
	}
	return out, nil
}

func fromVolume(v ec2types.Volume) awskind.Volume {
	return awskind.Volume{
		Zone: aws.ToString(v.AvailabilityZone), VolumeType: string(v.VolumeType), Size: int(aws.ToInt32(v.Size)),
		IOPS: int(aws.ToInt32(v.Iops)), Throughput: int(aws.ToInt32(v.Throughput)), Encrypted: aws.ToBool(v.Encrypted),
		KMSKey: graph.Lit(aws.ToString(v.KmsKeyId)), Tags: fromEC2(v.Tags),
	}
}

// number returns nil for 0: what is not said is AWS's to choose.
func number(n int) *int32 {
	if n == 0 {
		return nil
	}
	return aws.Int32(int32(n)) //nolint:gosec // sizes of AWS's own limits
}
