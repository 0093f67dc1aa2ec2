// SPDX-License-Identifier: Apache-2.0

package cli_test

import (
	"context"

	sdk "github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/ec2"
	ec2types "github.com/aws/aws-sdk-go-v2/service/ec2/types"
	elb "github.com/aws/aws-sdk-go-v2/service/elasticloadbalancingv2"
	elbtypes "github.com/aws/aws-sdk-go-v2/service/elasticloadbalancingv2/types"
	"github.com/rogpeppe/go-internal/testscript"

	"github.com/slipway-k8s/slipway/internal/region/regiontest"
)

// leave does what somebody else does to a cluster's network: 'leave balancer CLUSTER' as its load balancer controller,
// 'leave claim CLUSTER' as its EBS driver, 'leave interface CLUSTER' as nobody knows who. 'leave nothing CLUSTER'
// removes those interfaces.
func leave(ts *testscript.TestScript, _ bool, args []string) {
	r, ok := ts.Value("region").(regiontest.Region)
	if !ok || len(args) != 2 {
		ts.Fatalf("usage: leave balancer|claim|interface|nothing CLUSTER")
	}
	ctx, cluster := context.Background(), args[1]
	e := ec2.NewFromConfig(r.AWSConfig())
	nets, err := e.DescribeSubnets(ctx, &ec2.DescribeSubnetsInput{Filters: []ec2types.Filter{
		{Name: sdk.String("tag:slipway.dev/cluster"), Values: []string{cluster}}, {Name: sdk.String("tag:Name"), Values: []string{"private-*"}},
	}})
	ts.Check(err)
	subnet := nets.Subnets[0]
	switch args[0] {
	case "balancer":
		_, err = elb.NewFromConfig(r.AWSConfig()).CreateLoadBalancer(ctx, &elb.CreateLoadBalancerInput{
			Name: sdk.String("k8s-default-web"), Type: elbtypes.LoadBalancerTypeEnumNetwork, Scheme: elbtypes.LoadBalancerSchemeEnumInternal,
			Subnets: []string{*subnet.SubnetId}, Tags: []elbtypes.Tag{
				{Key: sdk.String("elbv2.k8s.aws/cluster"), Value: &cluster}, {Key: sdk.String("service.k8s.aws/stack"), Value: sdk.String("default/web")},
			},
		})
	case "claim":
		_, err = e.CreateVolume(ctx, &ec2.CreateVolumeInput{
			AvailabilityZone: subnet.AvailabilityZone, Size: sdk.Int32(20),
			TagSpecifications: []ec2types.TagSpecification{{ResourceType: ec2types.ResourceTypeVolume, Tags: []ec2types.Tag{
				{Key: sdk.String("kubernetes.io/cluster/" + cluster), Value: sdk.String("owned")},
				{Key: sdk.String("kubernetes.io/created-for/pvc/namespace"), Value: sdk.String("db")},
				{Key: sdk.String("kubernetes.io/created-for/pvc/name"), Value: sdk.String("data-0")},
			}}},
		})
	case "interface":
		_, err = e.CreateNetworkInterface(ctx, &ec2.CreateNetworkInterfaceInput{SubnetId: subnet.SubnetId, Description: sdk.String("made by hand")})
	case "nothing":
		err = clean(ctx, e, *subnet.VpcId)
	}
	ts.Check(err)
}

func clean(ctx context.Context, e *ec2.Client, vpc string) error {
	faces, err := e.DescribeNetworkInterfaces(ctx, &ec2.DescribeNetworkInterfacesInput{Filters: []ec2types.Filter{
		{Name: sdk.String("vpc-id"), Values: []string{vpc}}, {Name: sdk.String("status"), Values: []string{"available"}},
	}})
	if err != nil {
		return err
	}
	for _, n := range faces.NetworkInterfaces {
		if _, err := e.DeleteNetworkInterface(ctx, &ec2.DeleteNetworkInterfaceInput{NetworkInterfaceId: n.NetworkInterfaceId}); err != nil {
			return err
		}
	}
	return nil
}
