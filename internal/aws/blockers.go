// SPDX-License-Identifier: Apache-2.0

package aws

import (
	"context"
	"strings"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/ec2"
	ec2types "github.com/aws/aws-sdk-go-v2/service/ec2/types"

	"github.com/slipway-k8s/slipway/internal/plan"
)

type interfaceAPI interface {
	DescribeNetworkInterfaces(context.Context, *ec2.DescribeNetworkInterfacesInput, ...func(*ec2.Options)) (*ec2.DescribeNetworkInterfacesOutput, error)
}

// blocked turns "in use" into "not yet", naming what uses it: what a cluster leaves behind, such as the interfaces of a
// load balancer or of a machine that is going, takes minutes to disappear. Other errors stay as they are.
func blocked(ctx context.Context, api interfaceAPI, err error, filter, id string) error {
	if plan.ClassOf(err) != plan.InUse {
		return err
	}
	out, lookErr := api.DescribeNetworkInterfaces(ctx, &ec2.DescribeNetworkInterfacesInput{
		Filters: []ec2types.Filter{{Name: aws.String(filter), Values: []string{id}}},
	})
	if lookErr != nil || len(out.NetworkInterfaces) == 0 {
		return notYet("%w", err)
	}
	var who []string
	for _, n := range out.NetworkInterfaces {
		s := aws.ToString(n.NetworkInterfaceId) + " (" + string(n.Status)
		if n.Attachment != nil && n.Attachment.InstanceId != nil {
			s += ", of " + *n.Attachment.InstanceId
		} else if d := aws.ToString(n.Description); d != "" {
			s += ", " + d
		}
		who = append(who, s+")")
	}
	return notYet("%s is still used by %s", id, strings.Join(who, ", "))
}
