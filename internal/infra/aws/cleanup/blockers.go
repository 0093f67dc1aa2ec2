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

// blockerEC2API lists the resources of EC2 that can prevent a deletion.
type blockerEC2API interface {
	ec2.DescribeLaunchTemplatesAPIClient
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

// Finder finds leftovers and blockers of one cluster. It only reads. Its methods may be called
// concurrently.
type Finder struct {
	ec2     blockerEC2API
	elb     blockerELBAPI
	cluster string // the name of the cluster
	// clusterID is the cluster's id; empty until it is known. The copies of a finder share it.
	clusterID *string
	// balancing are the load balancers and target groups of the account; nil: they are listed when needed.
	balancing *driver.Balancing
}

// WithBalancing returns a finder of leftovers among the load balancers and target groups that were just listed.
func (f Finder) WithBalancing(listed driver.Balancing) Finder {
	f.balancing = &listed
	return f
}

// Blocker is a resource that prevents the deletion of another one. Its JSON form is part of the
// output of commands.
type Blocker struct {
	// ID is the id or ARN of the resource.
	ID string `json:"id"`
	// Kind is what the resource is, in words, such as "network interface".
	Kind string `json:"kind"`
	// Owner is what the resource belongs to, in words, such as "service default/web"; empty if AWS
	// has no hint.
	Owner string `json:"owner,omitempty"`

	deleting bool // it is being deleted
	owned    bool // it belongs to the cluster
}

// String returns b in words, such as "eni-0: network interface of service default/web".
func (b Blocker) String() string {
	s := b.ID + ": " + b.Kind
	if b.Owner != "" {
		s += " of " + b.Owner
	}

	return s
}

// ExplainInUse adds to err the blockers of the resource with id, if err is of class [plan.InUse];
// it returns other errors unchanged. The result has class [plan.NotReady] if all blockers are being
// deleted or belong to the cluster: load balancers and instances leave network interfaces behind
// for minutes. If one does not, the result has class [plan.InUse], so that the operation is not
// retried: that blocker would not disappear by itself. It implements [driver.InUseFunc].
func (f Finder) ExplainInUse(ctx context.Context, err error, filter, id string) error {
	if plan.ErrorClassOf(err) != plan.InUse {
		return err
	}

	found, findErr := f.findBlockers(ctx, filter, id)
	if findErr != nil || len(found) == 0 {
		return transport.NotYet("%w", err)
	}

	var staying []string
	var leaving []string

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
		"%s is in use by %s, which does not belong to the cluster; delete it, then run the command again",
		id,
		strings.Join(staying, "; "),
	)

	return transport.NewError(op, plan.InUse, err)
}

// NewFinder returns a finder for the cluster of that name.
func NewFinder(ec2Client *ec2.Client, elbClient *elb.Client, cluster string) Finder {
	return Finder{ec2: ec2Client, elb: elbClient, cluster: cluster, clusterID: new(string)}
}

// SetClusterID has resources with another id belong to another cluster. Call it before the finder is used.
func (f Finder) SetClusterID(id string) { *f.clusterID = id }

// classify returns the owner of a resource.
func (f Finder) classify(tags awskind.Tags) ownership {
	id := tags[awskind.TagClusterID]
	if id != "" && f.clusterID != nil && *f.clusterID != "" && id != *f.clusterID {
		return ownedByOther
	}

	return classifyOwnership(tags, f.cluster)
}

// findBlockers returns the resources that use the resource with id. filter is the name of an EC2
// filter of network interfaces, or one of the special names below.
func (f Finder) findBlockers(ctx context.Context, filter, id string) ([]Blocker, error) {
	switch filter {
	case "volume-id":
		return f.listVolumeUsers(ctx, id)
	case "target-group":
		return f.listTargetGroupUsers(ctx, id)
	case "group-id":
		interfaces, err := f.findInterfaces(ctx, filter, id)
		if err != nil {
			return nil, err
		}

		groups, err := f.listReferringGroups(ctx, id)

		return append(interfaces, groups...), err

	case "public-in":
		return f.findPublicInterfaces(ctx, id)
	case "vpc-id":
		return f.listVPCContents(ctx, id)
	}

	return f.findInterfaces(ctx, filter, id)
}

// findInterfaces returns the network interfaces that a filter selects.
func (f Finder) findInterfaces(ctx context.Context, filter, value string) ([]Blocker, error) {
	list, err := f.listInterfaces(ctx, filter, value)
	if err != nil {
		return nil, err
	}

	return f.describeInterfaces(ctx, list)
}

// findPublicInterfaces returns the network interfaces of a VPC that have a public address, or all
// of them if none has one.
func (f Finder) findPublicInterfaces(ctx context.Context, vpc string) ([]Blocker, error) {
	list, err := f.listInterfaces(ctx, "vpc-id", vpc)
	if err != nil {
		return nil, err
	}

	public := slices.DeleteFunc(slices.Clone(list), func(n ec2types.NetworkInterface) bool {
		return n.Association == nil
	})
	if len(public) > 0 {
		list = public
	}

	return f.describeInterfaces(ctx, list)
}

func (f Finder) listInterfaces(
	ctx context.Context,
	filter, value string,
) ([]ec2types.NetworkInterface, error) {
	var list []ec2types.NetworkInterface
	pages := ec2.NewDescribeNetworkInterfacesPaginator(
		f.ec2,
		&ec2.DescribeNetworkInterfacesInput{Filters: driver.NewFilters(filter, value)},
	)

	for pages.HasMorePages() {
		page, err := pages.NextPage(ctx)
		if err != nil {
			return nil, transport.Wrap(err, "list the network interfaces that use %s", value)
		}

		list = append(list, page.NetworkInterfaces...)
	}

	return list, nil
}

func (f Finder) describeInterfaces(ctx context.Context, list []ec2types.NetworkInterface) ([]Blocker, error) {
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

// describeInterface returns a network interface with its owner.
func (f Finder) describeInterface(ctx context.Context, n ec2types.NetworkInterface) (Blocker, error) {
	b := newInterfaceBlocker(n)
	tags := driver.FromEC2Tags(n.TagSet)
	description := aws.ToString(n.Description)
	b.owned = f.classify(tags) == ownedByCluster

	switch instance := attachedInstance(n); {
	case instance != "":
		return f.setInstanceOwner(ctx, b, instance)
	case strings.HasPrefix(description, "ELB ") && strings.Count(description, "/") == 2: // "ELB net/NAME/ID"
		b.Kind = "network interface"
		return f.findBalancerOwner(ctx, b, strings.Split(description, "/")[1])
	case n.InterfaceType == ec2types.NetworkInterfaceTypeNatGateway:
		b.Kind = "network interface"
		return f.setNATOwner(ctx, b, description[strings.LastIndex(description, " ")+1:])
	}

	return b, nil
}

// setInstanceOwner returns b with the instance with id as its owner.
func (f Finder) setInstanceOwner(ctx context.Context, b Blocker, id string) (Blocker, error) {
	pages, err := f.ec2.DescribeInstances(
		ctx,
		&ec2.DescribeInstancesInput{Filters: driver.NewFilters("instance-id", id)},
	)
	if err != nil {
		return b, transport.Wrap(err, "describe %s", id)
	}

	b.Owner = "instance " + id
	b.deleting = true // AWS does not list an instance that is terminated for long

	for _, r := range pages.Reservations {
		for _, i := range r.Instances {
			instance := newInstanceBlocker(i)
			b.Owner = strings.TrimSpace("instance " + id + strings.TrimPrefix(instance.Kind, "instance"))
			if instance.Owner != "" {
				b.Owner += " of " + instance.Owner
			}

			b.deleting = i.State.Name == ec2types.InstanceStateNameShuttingDown ||
				i.State.Name == ec2types.InstanceStateNameTerminated
			tags := driver.FromEC2Tags(i.Tags)
			// The auto scaling group of another cluster would replace its instance.
			b.owned = f.classify(tags) == ownedByCluster &&
				(tags[driver.ScalingGroupTag] == "" || tags[awskind.TagCluster] == f.cluster)
		}
	}

	return b, nil
}

// findBalancerOwner returns b with the load balancer called name as its owner.
func (f Finder) findBalancerOwner(ctx context.Context, b Blocker, name string) (Blocker, error) {
	out, err := f.elb.DescribeLoadBalancers(ctx, &elb.DescribeLoadBalancersInput{Names: []string{name}})
	if err = transport.Wrap(err, "describe load balancer %s", name); plan.ErrorClassOf(err) == plan.NotFound {
		b.Owner = "load balancer " + name
		b.deleting = true

		return b, nil
	}

	if err != nil || len(out.LoadBalancers) == 0 {
		return b, err
	}

	return f.setBalancerOwner(ctx, b, out.LoadBalancers[0])
}

// setBalancerOwner returns b with lb as its owner.
func (f Finder) setBalancerOwner(
	ctx context.Context,
	b Blocker,
	lb elbtypes.LoadBalancer,
) (Blocker, error) {
	arn := aws.ToString(lb.LoadBalancerArn)
	tags, err := driver.DescribeELBTags(ctx, f.elb, []string{arn})
	b.Owner = formatBalancer(lb)
	if _, exists := tags[arn]; !exists && err == nil {
		b.deleting = true
		return b, nil
	}

	if creator := creatorFromTags(tags[arn]); creator != "" {
		b.Owner += " created by " + creator
	}

	b.owned = f.classify(tags[arn]) == ownedByCluster

	return b, err
}

// setNATOwner returns b with the NAT gateway with id as its owner.
func (f Finder) setNATOwner(ctx context.Context, b Blocker, id string) (Blocker, error) {
	out, err := f.ec2.DescribeNatGateways(ctx, &ec2.DescribeNatGatewaysInput{NatGatewayIds: []string{id}})
	if err = transport.Wrap(err, "describe %s", id); plan.ErrorClassOf(err) == plan.NotFound {
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
		b.owned = f.classify(tags) == ownedByCluster
	}

	return b, nil
}

// listVolumeUsers returns the instances that a volume is attached to.
func (f Finder) listVolumeUsers(ctx context.Context, id string) ([]Blocker, error) {
	out, err := f.ec2.DescribeVolumes(ctx, &ec2.DescribeVolumesInput{VolumeIds: []string{id}})
	if err != nil {
		return nil, transport.Wrap(err, "describe %s", id)
	}

	var found []Blocker

	for _, v := range out.Volumes {
		for _, instance := range volumeInstances(v) {
			b, err := f.setInstanceOwner(ctx, Blocker{}, instance)
			if err != nil {
				return nil, err
			}

			b.ID = instance
			b.Kind = b.Owner
			b.Owner = ""
			found = append(found, b)
		}
	}

	return found, nil
}

// listTargetGroupUsers returns the load balancers that forward to a target group.
func (f Finder) listTargetGroupUsers(ctx context.Context, arn string) ([]Blocker, error) {
	out, err := f.elb.DescribeTargetGroups(
		ctx,
		&elb.DescribeTargetGroupsInput{TargetGroupArns: []string{arn}},
	)
	if err != nil {
		return nil, transport.Wrap(err, "describe %s", arn)
	}

	var found []Blocker

	for _, g := range out.TargetGroups {
		known, err := driver.DescribeBalancers(ctx, f.elb, g.LoadBalancerArns)
		if err != nil {
			return nil, err
		}

		for _, lb := range known {
			b := Blocker{ID: aws.ToString(lb.LoadBalancerArn), Kind: "listener"}
			b, err := f.setBalancerOwner(ctx, b, lb)
			if err != nil {
				return nil, err
			}

			found = append(found, b)
		}
	}

	return found, nil
}
