// SPDX-License-Identifier: Apache-2.0

package driver

import (
	"context"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/autoscaling"
	astypes "github.com/aws/aws-sdk-go-v2/service/autoscaling/types"

	"github.com/slipway-k8s/slipway/internal/infra/aws/transport"
	"github.com/slipway-k8s/slipway/internal/infra/awskind"
)

type warmPoolAPI interface {
	PutWarmPool(
		context.Context,
		*autoscaling.PutWarmPoolInput,
		...func(*autoscaling.Options),
	) (*autoscaling.PutWarmPoolOutput, error)
	DeleteWarmPool(
		context.Context,
		*autoscaling.DeleteWarmPoolInput,
		...func(*autoscaling.Options),
	) (*autoscaling.DeleteWarmPoolOutput, error)
}

// setWarmPool creates, changes or deletes the warm pool of a group. Deleting it terminates its
// instances.
func (s *scalingDriver) setWarmPool(ctx context.Context, group string, want, have awskind.WarmPool) error {
	switch {
	case want == have:
		return nil
	case want.State == "":
		_, err := s.api.DeleteWarmPool(
			ctx,
			&autoscaling.DeleteWarmPoolInput{AutoScalingGroupName: &group, ForceDelete: aws.Bool(true)},
		)

		return transport.Wrap(err, "delete the warm pool of %s", group)
	}

	_, err := s.api.PutWarmPool(ctx, &autoscaling.PutWarmPoolInput{
		AutoScalingGroupName:     &group,
		MinSize:                  aws.Int32(int32(want.MinSize)),
		MaxGroupPreparedCapacity: aws.Int32(int32(want.MaxPrepared)),
		PoolState:                astypes.WarmPoolState(want.State),
		InstanceReusePolicy:      &astypes.InstanceReusePolicy{ReuseOnScaleIn: &want.Reuse.OnScaleIn},
	})

	return transport.Wrap(err, "set the warm pool of %s", group)
}

// fromWarmPool returns the warm pool of a group; zero if it has none. MaxPrepared is -1 if AWS does
// not limit it.
func fromWarmPool(c *astypes.WarmPoolConfiguration) awskind.WarmPool {
	if c == nil || c.Status == astypes.WarmPoolStatusPendingDelete {
		return awskind.WarmPool{}
	}

	out := awskind.WarmPool{
		MinSize:     int(aws.ToInt32(c.MinSize)),
		MaxPrepared: -1,
		State:       string(c.PoolState),
	}
	if c.MaxGroupPreparedCapacity != nil {
		out.MaxPrepared = int(*c.MaxGroupPreparedCapacity)
	}

	if c.InstanceReusePolicy != nil {
		out.Reuse.OnScaleIn = aws.ToBool(c.InstanceReusePolicy.ReuseOnScaleIn)
	}

	return out
}
