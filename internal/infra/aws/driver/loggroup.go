// SPDX-License-Identifier: Apache-2.0

package driver

import (
	"context"
	"slices"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/cloudwatchlogs"
	logtypes "github.com/aws/aws-sdk-go-v2/service/cloudwatchlogs/types"

	"github.com/slipway-k8s/slipway/internal/infra/aws/transport"
	"github.com/slipway-k8s/slipway/internal/infra/awskind"
	"github.com/slipway-k8s/slipway/internal/infra/plan"
)

type logGroupAPI interface {
	DescribeLogGroups(
		context.Context,
		*cloudwatchlogs.DescribeLogGroupsInput,
		...func(*cloudwatchlogs.Options),
	) (*cloudwatchlogs.DescribeLogGroupsOutput, error)
	CreateLogGroup(
		context.Context,
		*cloudwatchlogs.CreateLogGroupInput,
		...func(*cloudwatchlogs.Options),
	) (*cloudwatchlogs.CreateLogGroupOutput, error)
	PutRetentionPolicy(
		context.Context,
		*cloudwatchlogs.PutRetentionPolicyInput,
		...func(*cloudwatchlogs.Options),
	) (*cloudwatchlogs.PutRetentionPolicyOutput, error)
	DeleteLogGroup(
		context.Context,
		*cloudwatchlogs.DeleteLogGroupInput,
		...func(*cloudwatchlogs.Options),
	) (*cloudwatchlogs.DeleteLogGroupOutput, error)
	logTagAPI
}

type logTagAPI interface {
	ListTagsForResource(
		context.Context,
		*cloudwatchlogs.ListTagsForResourceInput,
		...func(*cloudwatchlogs.Options),
	) (*cloudwatchlogs.ListTagsForResourceOutput, error)
	TagResource(
		context.Context,
		*cloudwatchlogs.TagResourceInput,
		...func(*cloudwatchlogs.Options),
	) (*cloudwatchlogs.TagResourceOutput, error)
	UntagResource(
		context.Context,
		*cloudwatchlogs.UntagResourceInput,
		...func(*cloudwatchlogs.Options),
	) (*cloudwatchlogs.UntagResourceOutput, error)
}

// registerLogGroups registers the driver of log groups. The log group of a function is found by the function's name.
func registerLogGroups(c *Cloud, api logGroupAPI) {
	c.addReader(func(ctx context.Context) ([]plan.ActualResource, error) {
		return c.function.readWith(func(name string) ([]plan.ActualResource, error) {
			return readLogGroup(ctx, api, awskind.FunctionLogGroup(name))
		})
	}, awskind.LogGroup{})

	registerDriver(c, driver[awskind.LogGroup]{
		create: func(ctx context.Context, t task[awskind.LogGroup]) (plan.StepResult, error) {
			in := &cloudwatchlogs.CreateLogGroupInput{LogGroupName: &t.want.Name, Tags: t.want.Tags}
			if _, err := api.CreateLogGroup(ctx, in); err != nil {
				return plan.StepResult{}, transport.Wrap(err, "create log group %s", t.want.Name)
			}

			return plan.StepResult{ID: t.want.Name}, putRetention(ctx, api, t.want)
		},
		update: func(ctx context.Context, t task[awskind.LogGroup]) (plan.StepResult, error) {
			return keepIdentity(t), updateLogGroup(ctx, api, t)
		},
		remove: func(ctx context.Context, t task[awskind.LogGroup]) error {
			_, err := api.DeleteLogGroup(ctx, &cloudwatchlogs.DeleteLogGroupInput{LogGroupName: &t.id})
			return transport.Wrap(err, "delete")
		},
	})
}

// findLogGroup returns the log group with a name; nil if there is none.
func findLogGroup(ctx context.Context, api logGroupAPI, name string) (*logtypes.LogGroup, error) {
	in := &cloudwatchlogs.DescribeLogGroupsInput{LogGroupNamePrefix: &name}
	for {
		page, err := api.DescribeLogGroups(ctx, in)
		if err != nil {
			return nil, transport.Wrap(err, "find log group %s", name)
		}

		i := slices.IndexFunc(page.LogGroups, func(g logtypes.LogGroup) bool {
			return aws.ToString(g.LogGroupName) == name
		})
		if i >= 0 {
			return &page.LogGroups[i], nil
		}

		if page.NextToken == nil {
			return nil, nil //nolint:nilnil // there is none, which is no error
		}

		in.NextToken = page.NextToken
	}
}

func readLogGroup(ctx context.Context, api logGroupAPI, name string) ([]plan.ActualResource, error) {
	group, err := findLogGroup(ctx, api, name)
	if err != nil || group == nil {
		return nil, err
	}

	in := &cloudwatchlogs.ListTagsForResourceInput{ResourceArn: group.LogGroupArn}
	tags, err := api.ListTagsForResource(ctx, in)
	err = transport.Wrap(err, "list the tags of log group %s", name)
	if plan.ErrorClassOf(err) == plan.NotFound { // it was deleted since it was listed
		return nil, nil
	}

	if err != nil {
		return nil, err
	}

	r := awskind.LogGroup{Name: name, Retention: int(aws.ToInt32(group.RetentionInDays)), Tags: tags.Tags}

	return []plan.ActualResource{newActual(&name, r.Tags, r)}, nil
}

func putRetention(ctx context.Context, api logGroupAPI, w awskind.LogGroup) error {
	_, err := api.PutRetentionPolicy(ctx, &cloudwatchlogs.PutRetentionPolicyInput{
		LogGroupName:    &w.Name,
		RetentionInDays: int32OrNil(w.Retention),
	})

	return transport.Wrap(err, "set the retention of log group %s", w.Name)
}

// updateLogGroup changes the retention and the tags of a log group.
func updateLogGroup(ctx context.Context, api logGroupAPI, t task[awskind.LogGroup]) error {
	if t.want.Retention != t.have.Retention {
		if err := putRetention(ctx, api, t.want); err != nil {
			return err
		}
	}

	set, remove := diffTags(t.want.Tags, t.have.Tags)
	if len(set)+len(remove) == 0 {
		return nil
	}

	group, err := findLogGroup(ctx, api, t.id)
	if err != nil || group == nil {
		return err
	}

	if len(set) > 0 {
		in := &cloudwatchlogs.TagResourceInput{ResourceArn: group.LogGroupArn, Tags: set}
		if _, err := api.TagResource(ctx, in); err != nil {
			return transport.Wrap(err, "tag log group %s", t.id)
		}
	}

	if len(remove) > 0 {
		in := &cloudwatchlogs.UntagResourceInput{ResourceArn: group.LogGroupArn, TagKeys: remove}
		if _, err := api.UntagResource(ctx, in); err != nil {
			return transport.Wrap(err, "untag log group %s", t.id)
		}
	}

	return nil
}
