// SPDX-License-Identifier: Apache-2.0

package discovery

import (
	"context"
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

// MeasureClockSkew is how far AWS's clock is ahead of ours, by an answer of STS. More than five minutes either way, and AWS
// refuses signatures.
func MeasureClockSkew(ctx context.Context, cfg aws.Config) (time.Duration, error) {
	out, err := sts.NewFromConfig(cfg).GetCallerIdentity(ctx, &sts.GetCallerIdentityInput{})
	if err != nil {
		return 0, transport.Wrap(err, "ask STS who is calling")
	}

	skew, _ := awsmiddleware.GetAttemptSkew(out.ResultMetadata)

	return skew, nil
}

// ListInstanceTypeZones returns the zones of the region in which each of types can be launched.
func ListInstanceTypeZones(ctx context.Context, cfg aws.Config, types []string) (map[string][]string, error) {
	pages := ec2.NewDescribeInstanceTypeOfferingsPaginator(
		ec2.NewFromConfig(cfg),
		&ec2.DescribeInstanceTypeOfferingsInput{
			LocationType: ec2types.LocationTypeAvailabilityZone, Filters: driver.NewFilters("instance-type", types...),
		},
	)

	out := map[string][]string{}
	for pages.HasMorePages() {
		page, err := pages.NextPage(ctx)
		if err != nil {
			return nil, transport.Wrap(err, "list where instance types are offered")
		}

		for _, o := range page.InstanceTypeOfferings {
			out[string(o.InstanceType)] = append(out[string(o.InstanceType)], aws.ToString(o.Location))
		}
	}

	return out, nil
}

// PermissionCheck is what a caller may want to be allowed: actions on resources, under conditions.
type PermissionCheck struct {
	Actions, Resources []string
	Context            map[string][]string
}

// FindDeniedActions asks IAM which actions the user or role of arn is denied. An assumed role's ARN stands for its role.
func FindDeniedActions(
	ctx context.Context,
	cfg aws.Config,
	arn string,
	questions []PermissionCheck,
) ([]string, error) {
	api := iam.NewFromConfig(cfg)
	var out []string
	for _, q := range questions {
		in := &iam.SimulatePrincipalPolicyInput{
			PolicySourceArn: aws.String(arn),
			ActionNames:     q.Actions,
			ResourceArns:    q.Resources,
		}

		for k, v := range q.Context {
			in.ContextEntries = append(in.ContextEntries, iamtypes.ContextEntry{
				ContextKeyName: aws.String(
					k,
				), ContextKeyType: iamtypes.ContextKeyTypeEnumStringList, ContextKeyValues: v,
			})
		}

		pages := iam.NewSimulatePrincipalPolicyPaginator(api, in)

		for pages.HasMorePages() {
			page, err := pages.NextPage(ctx)
			if err != nil {
				return nil, transport.Wrap(err, "ask IAM what %s may do", arn)
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

// ResolvePrincipal is the user or role behind a caller's ARN, as IAM names it; empty for the account's root, who may do
// everything. A role's path is not in an assumed role's ARN, so it is looked up.
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
		return "", transport.Wrap(err, "look at role %s", name)
	}

	return aws.ToString(out.Role.Arn), nil
}
