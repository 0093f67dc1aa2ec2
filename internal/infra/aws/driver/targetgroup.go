// SPDX-License-Identifier: Apache-2.0

package driver

import (
	"context"

	"github.com/aws/aws-sdk-go-v2/aws"
	elb "github.com/aws/aws-sdk-go-v2/service/elasticloadbalancingv2"
	elbtypes "github.com/aws/aws-sdk-go-v2/service/elasticloadbalancingv2/types"

	"github.com/slipway-k8s/slipway/internal/infra/aws/transport"
	"github.com/slipway-k8s/slipway/internal/infra/awskind"
	"github.com/slipway-k8s/slipway/internal/infra/graph"
	"github.com/slipway-k8s/slipway/internal/infra/plan"
)

type targetGroupAPI interface {
	elb.DescribeTargetGroupsAPIClient
	DescribeTargetGroupAttributes(
		context.Context,
		*elb.DescribeTargetGroupAttributesInput,
		...func(*elb.Options),
	) (*elb.DescribeTargetGroupAttributesOutput, error)
	CreateTargetGroup(
		context.Context,
		*elb.CreateTargetGroupInput,
		...func(*elb.Options),
	) (*elb.CreateTargetGroupOutput, error)
	ModifyTargetGroup(
		context.Context,
		*elb.ModifyTargetGroupInput,
		...func(*elb.Options),
	) (*elb.ModifyTargetGroupOutput, error)
	ModifyTargetGroupAttributes(
		context.Context,
		*elb.ModifyTargetGroupAttributesInput,
		...func(*elb.Options),
	) (*elb.ModifyTargetGroupAttributesOutput, error)
	DeleteTargetGroup(
		context.Context,
		*elb.DeleteTargetGroupInput,
		...func(*elb.Options),
	) (*elb.DeleteTargetGroupOutput, error)
}

// registerTargetGroups registers the driver of target groups. They are read together with the load
// balancers.
func registerTargetGroups(c *Cloud, api balancerAPI) {
	registerDriver(c, driver[awskind.TargetGroup]{
		create: func(ctx context.Context, t task[awskind.TargetGroup]) (plan.StepResult, error) {
			w := t.want
			vpc := t.want.VPC.Literal()
			out, err := api.CreateTargetGroup(ctx, &elb.CreateTargetGroupInput{
				Name:                       &w.Name,
				VpcId:                      &vpc,
				Protocol:                   elbtypes.ProtocolEnum(w.Protocol),
				Port:                       int32OrNil(w.Port),
				TargetType:                 elbtypes.TargetTypeEnum(w.TargetType),
				HealthCheckProtocol:        elbtypes.ProtocolEnum(w.HealthCheckProtocol),
				HealthCheckPath:            stringOrNil(w.HealthCheckPath),
				HealthCheckPort:            stringOrNil(w.HealthCheckPort),
				HealthCheckIntervalSeconds: int32OrNil(w.HealthCheckInterval),
				HealthCheckTimeoutSeconds:  int32OrNil(w.HealthCheckTimeout),
				HealthyThresholdCount:      int32OrNil(w.HealthyThreshold),
				UnhealthyThresholdCount:    int32OrNil(w.UnhealthyThreshold),
				Tags:                       toELBTags(w.Tags),
			})
			if err != nil {
				return plan.StepResult{}, transport.Wrap(err, "create target group %s", w.Name)
			}

			t.id = aws.ToString(out.TargetGroups[0].TargetGroupArn)
			t.have = w
			t.have.Attributes = newTargetGroupAttributes()

			return updateTargetGroup(ctx, api, t)
		},
		update: func(ctx context.Context, t task[awskind.TargetGroup]) (plan.StepResult, error) {
			return updateTargetGroup(ctx, api, t)
		},
		remove: func(ctx context.Context, t task[awskind.TargetGroup]) error {
			_, err := api.DeleteTargetGroup(ctx, &elb.DeleteTargetGroupInput{TargetGroupArn: &t.id})
			return c.explainInUse(ctx, transport.Wrap(err, "delete"), "target-group", t.id)
		},
	})
}

// newTargetGroupAttributes returns the attributes that AWS gives to new target groups of instances over TCP,
// as far as Slipway sets them.
func newTargetGroupAttributes() map[string]string {
	return map[string]string{
		"deregistration_delay.connection_termination.enabled": "false",
		"deregistration_delay.timeout_seconds":                "300",
		"preserve_client_ip.enabled":                          "true",
	}
}

// updateTargetGroup changes the parts of a target group that differ.
func updateTargetGroup(
	ctx context.Context,
	api balancerAPI,
	t task[awskind.TargetGroup],
) (plan.StepResult, error) {
	w := t.want
	if len(plan.Diff(onlyHealthCheck(w), onlyHealthCheck(t.have))) > 0 {
		_, err := api.ModifyTargetGroup(ctx, &elb.ModifyTargetGroupInput{
			TargetGroupArn:             &t.id,
			HealthCheckProtocol:        elbtypes.ProtocolEnum(w.HealthCheckProtocol),
			HealthCheckPath:            stringOrNil(w.HealthCheckPath),
			HealthCheckPort:            stringOrNil(w.HealthCheckPort),
			HealthCheckIntervalSeconds: int32OrNil(w.HealthCheckInterval),
			HealthCheckTimeoutSeconds:  int32OrNil(w.HealthCheckTimeout),
			HealthyThresholdCount:      int32OrNil(w.HealthyThreshold),
			UnhealthyThresholdCount:    int32OrNil(w.UnhealthyThreshold),
		})
		if err != nil {
			return plan.StepResult{}, transport.Wrap(err, "set the health check")
		}
	}

	var attrs []elbtypes.TargetGroupAttribute

	for _, k := range changedKeys(w.Attributes, t.have.Attributes) {
		value := w.Attributes[k]
		attrs = append(attrs, elbtypes.TargetGroupAttribute{Key: &k, Value: &value})
	}

	if len(attrs) > 0 {
		in := &elb.ModifyTargetGroupAttributesInput{TargetGroupArn: &t.id, Attributes: attrs}
		if _, err := api.ModifyTargetGroupAttributes(ctx, in); err != nil {
			return plan.StepResult{}, transport.Wrap(err, "set attributes")
		}
	}

	return keepIdentity(t), retagELB(ctx, api, t.id, w.Tags, t.have.Tags)
}

// onlyHealthCheck returns g with nothing but the settings of its health check.
func onlyHealthCheck(g awskind.TargetGroup) awskind.TargetGroup {
	return awskind.TargetGroup{
		HealthCheckProtocol: g.HealthCheckProtocol,
		HealthCheckPath:     g.HealthCheckPath,
		HealthCheckPort:     g.HealthCheckPort,
		HealthCheckInterval: g.HealthCheckInterval,
		HealthCheckTimeout:  g.HealthCheckTimeout,
		HealthyThreshold:    g.HealthyThreshold,
		UnhealthyThreshold:  g.UnhealthyThreshold,
	}
}

// ListTargetGroups returns all target groups of the account in the region.
func ListTargetGroups(
	ctx context.Context,
	api elb.DescribeTargetGroupsAPIClient,
) ([]elbtypes.TargetGroup, error) {
	var out []elbtypes.TargetGroup
	pages := elb.NewDescribeTargetGroupsPaginator(api, &elb.DescribeTargetGroupsInput{})
	for pages.HasMorePages() {
		page, err := pages.NextPage(ctx)
		if err != nil {
			return nil, transport.Wrap(err, "list target groups")
		}

		out = append(out, page.TargetGroups...)
	}

	return out, nil
}

// readTargetGroups reads those of tgs that have an entry in tags, which belong to the cluster.
func readTargetGroups(
	ctx context.Context,
	api targetGroupAPI,
	tgs []elbtypes.TargetGroup,
	tags map[string]awskind.Tags,
) ([]plan.ActualResource, error) {
	return readEach(tgs, func(tg elbtypes.TargetGroup) ([]plan.ActualResource, error) {
		t, ok := tags[aws.ToString(tg.TargetGroupArn)]
		if !ok {
			return nil, nil
		}

		found, err := readTargetGroup(ctx, api, tg, t)

		return []plan.ActualResource{found}, err
	})
}

func readTargetGroup(
	ctx context.Context,
	api targetGroupAPI,
	tg elbtypes.TargetGroup,
	tags awskind.Tags,
) (plan.ActualResource, error) {
	arn := aws.ToString(tg.TargetGroupArn)
	attrs := &elb.DescribeTargetGroupAttributesOutput{}
	if !omitsDetails(ctx) {
		var err error
		attrs, err = api.DescribeTargetGroupAttributes(
			ctx,
			&elb.DescribeTargetGroupAttributesInput{TargetGroupArn: &arn},
		)
		if err != nil {
			return plan.ActualResource{}, transport.Wrap(err, "read the attributes of %s", arn)
		}
	}

	r := awskind.TargetGroup{
		Name:                aws.ToString(tg.TargetGroupName),
		VPC:                 graph.UnmanagedRef[awskind.VPC](aws.ToString(tg.VpcId)),
		Protocol:            string(tg.Protocol),
		Port:                int(aws.ToInt32(tg.Port)),
		TargetType:          string(tg.TargetType),
		HealthCheckProtocol: string(tg.HealthCheckProtocol),
		HealthCheckPath:     aws.ToString(tg.HealthCheckPath),
		HealthCheckPort:     aws.ToString(tg.HealthCheckPort),
		HealthCheckInterval: int(aws.ToInt32(tg.HealthCheckIntervalSeconds)),
		HealthCheckTimeout:  int(aws.ToInt32(tg.HealthCheckTimeoutSeconds)),
		HealthyThreshold:    int(aws.ToInt32(tg.HealthyThresholdCount)),
		UnhealthyThreshold:  int(aws.ToInt32(tg.UnhealthyThresholdCount)),
		Attributes:          map[string]string{},
		Tags:                tags,
	}

	for _, a := range attrs.Attributes {
		r.Attributes[aws.ToString(a.Key)] = aws.ToString(a.Value)
	}

	return plan.ActualResource{Addr: addressFromTags(tags), ID: arn, Resource: r}, nil
}
