// SPDX-License-Identifier: Apache-2.0

package cleanup

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/ec2"
	ec2types "github.com/aws/aws-sdk-go-v2/service/ec2/types"
	elb "github.com/aws/aws-sdk-go-v2/service/elasticloadbalancingv2"
	elbtypes "github.com/aws/aws-sdk-go-v2/service/elasticloadbalancingv2/types"

	"github.com/slipway-k8s/slipway/internal/infra/aws/driver"
	"github.com/slipway-k8s/slipway/internal/infra/aws/transport"
	"github.com/slipway-k8s/slipway/internal/infra/awskind"
	"github.com/slipway-k8s/slipway/internal/infra/plan"
)

// blockerEC2API is what it takes to see what lies in a network.
type blockerEC2API interface {
	ec2.DescribeInstancesAPIClient
	ec2.DescribeNetworkInterfacesAPIClient
	ec2.DescribeSnapshotsAPIClient
	ec2.DescribeVolumesAPIClient
	securityGroupReadAPI
	vpcReadAPI
}

type securityGroupReadAPI interface {
	ec2.DescribeSecurityGroupsAPIClient
	ec2.DescribeSecurityGroupRulesAPIClient
}

type vpcReadAPI interface {
	ec2.DescribeInternetGatewaysAPIClient
	ec2.DescribeNatGatewaysAPIClient
	ec2.DescribeRouteTablesAPIClient
	ec2.DescribeSubnetsAPIClient
	ec2.DescribeVpcEndpointsAPIClient
}

type blockerELBAPI interface {
	elb.DescribeLoadBalancersAPIClient
	elb.DescribeTargetGroupsAPIClient
	DescribeTags(context.Context, *elb.DescribeTagsInput, ...func(*elb.Options)) (*elb.DescribeTagsOutput, error)
}

// Finder looks for what keeps AWS from deleting something.
type Finder struct {
	ec2     blockerEC2API
	elb     blockerELBAPI
	cluster string
}

// ExplainInUse says what is in the way where AWS refuses to delete something because it is in use; other errors stay as they
// are. What is on its way out, or goes with the cluster, is waited for: load balancers and machines leave interfaces
// behind for minutes. What is somebody else's ends the wait at once, by name: it would not go by itself.
func (f Finder) ExplainInUse(ctx context.Context, err error, filter, id string) error {
	if plan.ErrorClassOf(err) != plan.InUse {
		return err
	}

	found, lookErr := f.findBlockers(ctx, filter, id)
	if lookErr != nil || len(found) == 0 {
		return transport.NotYet("%w", err)
	}

	var staying, leaving []string

	for _, b := range found {
		if b.deleting || b.owned {
			leaving = append(leaving, b.String())
		} else {
			staying = append(staying, b.String())
		}
	}

	if len(staying) == 0 {
		return transport.NotYet("%s is still used by %s", id, strings.Join(leaving, "; "))
	}

	op := fmt.Sprintf(
		"%s is in use by %s, which is not the cluster's. Remove it, then run this again",
		id,
		strings.Join(staying, "; "),
	)

	return transport.NewError(op, plan.InUse, err)
}

// NewFinder returns a finder for one cluster.
func NewFinder(ec2 *ec2.Client, elb *elb.Client, cluster string) Finder {
	return Finder{ec2: ec2, elb: elb, cluster: cluster}
}

// findBlockers lists what stands in the way of deleting what has id; how tells the kind of id.
func (f Finder) findBlockers(ctx context.Context, how, id string) ([]Blocker, error) {
	switch how {
	case "volume-id":
		return f.listVolumeUsers(ctx, id)
	case "target-group":
		return f.listTargetGroupUsers(ctx, id)
	case "group-id":
		faces, err := f.listInterfaces(ctx, how, id, false)
		if err != nil {
			return nil, err
		}

		groups, err := f.listReferringGroups(ctx, id)

		return append(faces, groups...), err

	case "public-in":
		return f.listInterfaces(ctx, "vpc-id", id, true)
	case "vpc-id":
		return f.listVPCContents(ctx, id)
	}

	return f.listInterfaces(ctx, how, id, false)
}

// listInterfaces lists the interfaces that a filter finds, each by what it belongs to.
func (f Finder) listInterfaces(
	ctx context.Context,
	name, value string,
	public bool,
) ([]Blocker, error) { //revive:disable-line:flag-parameter
	var list []ec2types.NetworkInterface
	pages := ec2.NewDescribeNetworkInterfacesPaginator(
		f.ec2,
		&ec2.DescribeNetworkInterfacesInput{Filters: driver.NewFilters(name, value)},
	)

	for pages.HasMorePages() {
		page, err := pages.NextPage(ctx)
		if err != nil {
			return nil, transport.Wrap(err, "look for what is in the way")
		}

		list = append(list, page.NetworkInterfaces...)
	}

	if addressed := slices.DeleteFunc(slices.Clone(list), func(n ec2types.NetworkInterface) bool { return n.Association == nil }); public &&
		len(addressed) > 0 {
		list = addressed
	}

	var out []Blocker

	for _, n := range list {
		b, err := f.describeInterface(ctx, n)
		if err != nil {
			return nil, err
		}

		out = append(out, b)
	}

	return out, nil
}

// describeInterface says what an interface belongs to.
func (f Finder) describeInterface(ctx context.Context, n ec2types.NetworkInterface) (Blocker, error) {
	b := newInterfaceBlocker(n)
	tags := driver.FromEC2Tags(n.TagSet)
	text := aws.ToString(n.Description)
	b.owned = classifyOwnership(tags, f.cluster) == ownedByCluster

	switch machine := attachedInstance(n); {
	case machine != "":
		return f.setInstanceOwner(ctx, b, machine)
	case strings.HasPrefix(text, "ELB ") && strings.Count(text, "/") == 2:
		b.Kind = "network interface"
		return f.findBalancerOwner(ctx, b, strings.Split(text, "/")[1])
	case n.InterfaceType == ec2types.NetworkInterfaceTypeNatGateway:
		b.Kind = "network interface"
		return f.setNATOwner(ctx, b, text[strings.LastIndex(text, " ")+1:])
	}

	return b, nil
}

func (f Finder) setInstanceOwner(ctx context.Context, b Blocker, id string) (Blocker, error) {
	pages, err := f.ec2.DescribeInstances(
		ctx,
		&ec2.DescribeInstancesInput{Filters: driver.NewFilters("instance-id", id)},
	)
	if err != nil {
		return b, transport.Wrap(err, "look at %s", id)
	}

	b.Owner = "instance " + id
	b.deleting = true // one that is not listed any more is gone

	for _, r := range pages.Reservations {
		for _, i := range r.Instances {
			m := newInstanceBlocker(i)
			b.Owner = strings.TrimSpace("instance " + id + strings.TrimPrefix(m.Kind, "instance"))
			if m.Owner != "" {
				b.Owner += " of " + m.Owner
			}

			b.deleting = i.State.Name == ec2types.InstanceStateNameShuttingDown ||
				i.State.Name == ec2types.InstanceStateNameTerminated
			tags := driver.FromEC2Tags(i.Tags)
			// A machine that some other group keeps alive would come back.
			b.owned = classifyOwnership(tags, f.cluster) == ownedByCluster &&
				(tags[driver.ScalingGroupTag] == "" || tags[awskind.TagCluster] == f.cluster)
		}
	}

	return b, nil
}

func (f Finder) findBalancerOwner(ctx context.Context, b Blocker, name string) (Blocker, error) {
	out, err := f.elb.DescribeLoadBalancers(ctx, &elb.DescribeLoadBalancersInput{Names: []string{name}})
	if err = transport.Wrap(err, "look at load balancer %s", name); plan.ErrorClassOf(err) == plan.NotFound {
		b.Owner = "load balancer " + name
		b.deleting = true
		return b, nil
	}

	if err != nil || len(out.LoadBalancers) == 0 {
		return b, err
	}

	return f.setBalancerOwner(ctx, b, out.LoadBalancers[0])
}

func (f Finder) setBalancerOwner(
	ctx context.Context,
	b Blocker,
	lb elbtypes.LoadBalancer,
) (Blocker, error) {
	arn := aws.ToString(lb.LoadBalancerArn)
	tags, err := driver.DescribeELBTags(ctx, f.elb, []string{arn})
	b.Owner = formatBalancer(lb)
	if who := creatorFromTags(tags[arn]); who != "" {
		b.Owner += " made by " + who
	}

	b.owned = classifyOwnership(tags[arn], f.cluster) == ownedByCluster

	return b, err
}

func (f Finder) setNATOwner(ctx context.Context, b Blocker, id string) (Blocker, error) {
	out, err := f.ec2.DescribeNatGateways(ctx, &ec2.DescribeNatGatewaysInput{NatGatewayIds: []string{id}})
	if err = transport.Wrap(err, "look at %s", id); plan.ErrorClassOf(err) == plan.NotFound {
		b.deleting = true
		return b, nil
	}

	if err != nil {
		return b, err
	}

	for _, n := range out.NatGateways {
		tags := driver.FromEC2Tags(n.Tags)
		b.Owner = "NAT gateway " + id + formatNameTag(tags)
		b.deleting = n.State == ec2types.NatGatewayStateDeleting || n.State == ec2types.NatGatewayStateDeleted
		b.owned = classifyOwnership(tags, f.cluster) == ownedByCluster
	}

	return b, nil
}

// listVolumeUsers names the machines that a volume is attached to.
func (f Finder) listVolumeUsers(ctx context.Context, id string) ([]Blocker, error) {
	out, err := f.ec2.DescribeVolumes(ctx, &ec2.DescribeVolumesInput{VolumeIds: []string{id}})
	if err != nil {
		return nil, transport.Wrap(err, "look at %s", id)
	}

	var found []Blocker

	for _, v := range out.Volumes {
		for _, machine := range volumeInstances(v) {
			b, err := f.setInstanceOwner(ctx, Blocker{}, machine)
			if err != nil {
				return nil, err
			}

			b.ID, b.Kind, b.Owner = machine, b.Owner, ""
			found = append(found, b)
		}
	}

	return found, nil
}

// listTargetGroupUsers names the load balancers that send to a target group.
func (f Finder) listTargetGroupUsers(ctx context.Context, arn string) ([]Blocker, error) {
	out, err := f.elb.DescribeTargetGroups(
		ctx,
		&elb.DescribeTargetGroupsInput{TargetGroupArns: []string{arn}},
	)
	if err != nil {
		return nil, transport.Wrap(err, "look at %s", arn)
	}

	var found []Blocker

	for _, g := range out.TargetGroups {
		known, err := driver.DescribeBalancers(ctx, f.elb, g.LoadBalancerArns)
		if err != nil {
			return nil, err
		}

		for _, lb := range known {
			b, err := f.setBalancerOwner(
				ctx,
				Blocker{ID: aws.ToString(lb.LoadBalancerArn), Kind: "listener"},
				lb,
			)
			if err != nil {
				return nil, err
			}

			found = append(found, b)
		}
	}

	return found, nil
}

// Blocker is a thing that keeps AWS from deleting another one.
type Blocker struct {
	ID string `json:"id"`
	// Kind in words, such as "network interface".
	Kind string `json:"kind"`
	// Owner in words, as far as AWS can tell; it may be empty.
	Owner string `json:"owner,omitempty"`

	deleting bool // it is on its way out
	owned    bool // it is the cluster's
}

// String renders b as "eni-0: network interface of service default/web".
func (b Blocker) String() string {
	s := b.ID + ": " + b.Kind
	if b.Owner != "" {
		s += " of " + b.Owner
	}

	return s
}
