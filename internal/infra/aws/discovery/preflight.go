// SPDX-License-Identifier: Apache-2.0

package discovery

import (
	"context"
	"slices"
	"strings"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	awsmiddleware "github.com/aws/aws-sdk-go-v2/aws/middleware"
	"github.com/aws/aws-sdk-go-v2/service/ec2"
	ec2types "github.com/aws/aws-sdk-go-v2/service/ec2/types"
	"github.com/aws/aws-sdk-go-v2/service/iam"
	iamtypes "github.com/aws/aws-sdk-go-v2/service/iam/types"
	"github.com/aws/aws-sdk-go-v2/service/sts"

	"github.com/slipway-k8s/slipway/internal/infra/aws/driver"
	"github.com/slipway-k8s/slipway/internal/infra/aws/transport"
)

// MeasureClockSkew returns how far AWS's clock is ahead of the local one, measured with a call to
// STS. It is negative if AWS's clock is behind. AWS refuses signatures at more than five minutes.
func MeasureClockSkew(ctx context.Context, cfg aws.Config) (time.Duration, error) {
	out, err := sts.NewFromConfig(cfg).GetCallerIdentity(ctx, &sts.GetCallerIdentityInput{})
	if err != nil {
		return 0, transport.Wrap(err, "get the caller identity to measure the clock skew")
	}

	skew, _ := awsmiddleware.GetAttemptSkew(out.ResultMetadata)

	return skew, nil
}

// ListInstanceTypeZones returns the zones of the region in which each of types can be launched, by
// type.
func ListInstanceTypeZones(ctx context.Context, cfg aws.Config, types []string) (map[string][]string, error) {
	pages := ec2.NewDescribeInstanceTypeOfferingsPaginator(
		ec2.NewFromConfig(cfg),
		&ec2.DescribeInstanceTypeOfferingsInput{
			LocationType: ec2types.LocationTypeAvailabilityZone,
			Filters:      driver.NewFilters("instance-type", types...),
		},
	)

	out := map[string][]string{}
	for pages.HasMorePages() {
		page, err := pages.NextPage(ctx)
		if err != nil {
			return nil, transport.Wrap(err, "list the zones of instance types")
		}

		for _, o := range page.InstanceTypeOfferings {
			out[string(o.InstanceType)] = append(out[string(o.InstanceType)], aws.ToString(o.Location))
		}
	}

	return out, nil
}

// availabilityZoneAPI is the part of EC2 that lists availability zones.
type availabilityZoneAPI interface {
	DescribeAvailabilityZones(
		context.Context,
		*ec2.DescribeAvailabilityZonesInput,
		...func(*ec2.Options),
	) (*ec2.DescribeAvailabilityZonesOutput, error)
}

// ListZones returns the names of the availability zones of the region that the account can use, sorted.
func ListZones(ctx context.Context, cfg aws.Config) ([]string, error) {
	var api availabilityZoneAPI = ec2.NewFromConfig(cfg)
	out, err := api.DescribeAvailabilityZones(
		ctx,
		&ec2.DescribeAvailabilityZonesInput{Filters: driver.NewFilters("zone-type", "availability-zone")},
	)
	if err != nil {
		return nil, transport.Wrap(err, "list the availability zones")
	}

	var zones []string
	for _, z := range out.AvailabilityZones {
		zones = append(zones, aws.ToString(z.ZoneName))
	}

	slices.Sort(zones)

	return zones, nil
}

// PermissionCheck is a set of actions to check.
type PermissionCheck struct {
	// Actions are IAM actions, such as ec2:RunInstances.
	Actions []string
	// Resources are the ARNs that the actions are applied to; empty means all resources.
	Resources []string
	// Context has the values of IAM condition keys.
	Context map[string][]string
}

// FindDeniedActions returns the actions that the policies of the user or role with arn do not
// allow, each as "ACTION on RESOURCE". IAM simulates them; nothing is changed. arn is a result of
// [ResolvePrincipal].
func FindDeniedActions(
	ctx context.Context,
	cfg aws.Config,
	arn string,
	checks []PermissionCheck,
) ([]string, error) {
	api := iam.NewFromConfig(cfg)
	var out []string
	for _, c := range checks {
		in := &iam.SimulatePrincipalPolicyInput{
			PolicySourceArn: aws.String(arn),
			ActionNames:     c.Actions,
			ResourceArns:    c.Resources,
		}

		for k, v := range c.Context {
			in.ContextEntries = append(in.ContextEntries, iamtypes.ContextEntry{
				ContextKeyName:   aws.String(k),
				ContextKeyType:   iamtypes.ContextKeyTypeEnumStringList,
				ContextKeyValues: v,
			})
		}

		pages := iam.NewSimulatePrincipalPolicyPaginator(api, in)

		for pages.HasMorePages() {
			page, err := pages.NextPage(ctx)
			if err != nil {
				return nil, transport.Wrap(err, "simulate the policies of %s", arn)
			}

			for _, r := range page.EvaluationResults {
				if r.EvalDecision != iamtypes.PolicyEvaluationDecisionTypeAllowed {
					out = append(out, aws.ToString(r.EvalActionName)+" on "+aws.ToString(r.EvalResourceName))
				}
			}
		}
	}

	return out, nil
}

// ResolvePrincipal returns the ARN of the IAM user or role of a caller. It is empty for the root of
// the account, which has all permissions. The ARN of an assumed role lacks the path of the role, so
// the role is looked up in IAM.
func ResolvePrincipal(ctx context.Context, cfg aws.Config, arn string) (string, error) {
	switch {
	case strings.HasSuffix(arn, ":root"):
		return "", nil
	case !strings.Contains(arn, ":assumed-role/"):
		return arn, nil
	}

	name := strings.Split(arn, "/")[1]
	out, err := iam.NewFromConfig(cfg).GetRole(ctx, &iam.GetRoleInput{RoleName: &name})
	if err != nil {
		return "", transport.Wrap(err, "read role %s", name)
	}

	return aws.ToString(out.Role.Arn), nil
}
