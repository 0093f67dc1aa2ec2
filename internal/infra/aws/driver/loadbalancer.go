// SPDX-License-Identifier: Apache-2.0

package driver

import (
	"context"
	"slices"
	"sync"

	"github.com/aws/aws-sdk-go-v2/aws"
	elb "github.com/aws/aws-sdk-go-v2/service/elasticloadbalancingv2"
	elbtypes "github.com/aws/aws-sdk-go-v2/service/elasticloadbalancingv2/types"

	"github.com/slipway-k8s/slipway/internal/infra/aws/transport"
	"github.com/slipway-k8s/slipway/internal/infra/awskind"
	"github.com/slipway-k8s/slipway/internal/infra/graph"
	"github.com/slipway-k8s/slipway/internal/infra/plan"
)

type balancerAPI interface {
	balancerReadAPI
	balancerChangeAPI
	elbTagAPI
	targetGroupAPI
	listenerAPI
}

type balancerReadAPI interface {
	elb.DescribeLoadBalancersAPIClient
	DescribeLoadBalancerAttributes(
		context.Context,
		*elb.DescribeLoadBalancerAttributesInput,
		...func(*elb.Options),
	) (*elb.DescribeLoadBalancerAttributesOutput, error)
}

type balancerChangeAPI interface {
	CreateLoadBalancer(
		context.Context,
		*elb.CreateLoadBalancerInput,
		...func(*elb.Options),
	) (*elb.CreateLoadBalancerOutput, error)
	ModifyLoadBalancerAttributes(
		context.Context,
		*elb.ModifyLoadBalancerAttributesInput,
		...func(*elb.Options),
	) (*elb.ModifyLoadBalancerAttributesOutput, error)
	SetSubnets(context.Context, *elb.SetSubnetsInput, ...func(*elb.Options)) (*elb.SetSubnetsOutput, error)
	SetSecurityGroups(
		context.Context,
		*elb.SetSecurityGroupsInput,
		...func(*elb.Options),
	) (*elb.SetSecurityGroupsOutput, error)
	DeleteLoadBalancer(
		context.Context,
		*elb.DeleteLoadBalancerInput,
		...func(*elb.Options),
	) (*elb.DeleteLoadBalancerOutput, error)
}

// registerLoadBalancers registers the drivers of load balancers, their listeners, and target
// groups.
func registerLoadBalancers(c *Cloud, api balancerAPI, scope Scope) {
	poller := &transport.StatePoller[elbtypes.LoadBalancer]{
		Describe: func(ctx context.Context, arns []string) (map[string]elbtypes.LoadBalancer, error) {
			return DescribeBalancers(ctx, api, arns)
		},
	}

	c.addReader(func(ctx context.Context) ([]plan.ActualResource, error) {
		return readBalancersAndTargets(ctx, api, scope, &c.balancers)
	}, awskind.LoadBalancer{}, awskind.TargetGroup{}, awskind.Listener{})

	deletions := &transport.StatePoller[elbtypes.LoadBalancer]{
		Describe: func(ctx context.Context, arns []string) (map[string]elbtypes.LoadBalancer, error) {
			if len(arns) > 1 {
				return describeListed(ctx, api, arns)
			}

			return DescribeBalancers(ctx, api, arns)
		},
	}

	registerDriver(c, driver[awskind.LoadBalancer]{
		create: func(ctx context.Context, t task[awskind.LoadBalancer]) (plan.StepResult, error) {
			return createBalancer(ctx, api, t)
		},
		update: func(ctx context.Context, t task[awskind.LoadBalancer]) (plan.StepResult, error) {
			return updateBalancer(ctx, api, t)
		},
		remove: func(ctx context.Context, t task[awskind.LoadBalancer]) error {
			in := &elb.DeleteLoadBalancerInput{LoadBalancerArn: &t.id}
			if _, err := api.DeleteLoadBalancer(ctx, in); err != nil {
				return transport.Wrap(err, "delete")
			}

			return deletions.WaitUntil(ctx, t.id, func(_ elbtypes.LoadBalancer, found bool) (bool, error) {
				t.reportWaiting("it is being deleted")
				return !found, nil
			})
		},
		waitReady: func(ctx context.Context, t task[awskind.LoadBalancer], result plan.StepResult) error {
			return poller.WaitUntil(ctx, result.ID, func(lb elbtypes.LoadBalancer, found bool) (bool, error) {
				if !found || lb.State == nil {
					return found, nil
				}

				t.reportWaiting("it is " + string(lb.State.Code))
				if lb.State.Code == elbtypes.LoadBalancerStateEnumFailed {
					reason := transport.ReasonError(aws.ToString(lb.State.Reason))
					return false, transport.Wrap(reason, "create %s", t.want.Name)
				}

				return lb.State.Code == elbtypes.LoadBalancerStateEnumActive, nil
			})
		},
	})

	registerTargetGroups(c, api)
	registerListeners(c, api)
}

// DescribeBalancers returns the load balancers with arns, by ARN. It leaves out those that do not
// exist.
func DescribeBalancers(
	ctx context.Context,
	api elb.DescribeLoadBalancersAPIClient,
	arns []string,
) (map[string]elbtypes.LoadBalancer, error) {
	out := map[string]elbtypes.LoadBalancer{}
	page, err := api.DescribeLoadBalancers(ctx, &elb.DescribeLoadBalancersInput{LoadBalancerArns: arns})
	if err = transport.Wrap(err, "describe load balancers"); plan.ErrorClassOf(err) == plan.NotFound {
		if len(arns) == 1 {
			return out, nil
		}

		return describeListed(ctx, api, arns) // one that does not exist fails the call for all
	}

	if err != nil {
		return nil, err
	}

	for _, lb := range page.LoadBalancers {
		out[aws.ToString(lb.LoadBalancerArn)] = lb
	}

	return out, nil
}

// describeListed returns those of the load balancers with arns that the account has, by ARN.
func describeListed(
	ctx context.Context,
	api elb.DescribeLoadBalancersAPIClient,
	arns []string,
) (map[string]elbtypes.LoadBalancer, error) {
	all, err := ListBalancers(ctx, api)
	out := map[string]elbtypes.LoadBalancer{}
	for _, lb := range all {
		if arn := aws.ToString(lb.LoadBalancerArn); slices.Contains(arns, arn) {
			out[arn] = lb
		}
	}

	return out, err
}

func createBalancer(
	ctx context.Context,
	api balancerAPI,
	t task[awskind.LoadBalancer],
) (plan.StepResult, error) {
	w := t.want
	out, err := api.CreateLoadBalancer(ctx, &elb.CreateLoadBalancerInput{
		Name:           &w.Name,
		Type:           elbtypes.LoadBalancerTypeEnum(w.Type),
		Scheme:         elbtypes.LoadBalancerSchemeEnum(w.Scheme),
		Subnets:        refIDs(w.Subnets),
		SecurityGroups: refIDs(w.SecurityGroups),
		Tags:           toELBTags(w.Tags),
	})
	if err != nil {
		return plan.StepResult{}, transport.Wrap(err, "create load balancer %s", w.Name)
	}

	lb := out.LoadBalancers[0]
	t.id = aws.ToString(lb.LoadBalancerArn)
	t.have = w
	t.have.Attributes = nil
	result, err := updateBalancer(ctx, api, t)
	result.Attributes = balancerAttributes(lb)

	return result, err
}

// balancerAttributes returns the attributes of a load balancer that AWS chooses and other resources
// refer to.
func balancerAttributes(lb elbtypes.LoadBalancer) map[string]string {
	return map[string]string{
		"DNSName":               aws.ToString(lb.DNSName),
		"CanonicalHostedZoneID": aws.ToString(lb.CanonicalHostedZoneId),
	}
}

// updateBalancer changes the parts of a load balancer that differ.
func updateBalancer(
	ctx context.Context,
	api balancerAPI,
	t task[awskind.LoadBalancer],
) (plan.StepResult, error) {
	want := t.want
	have := t.have
	if !sameRefs(want.Subnets, have.Subnets) {
		in := &elb.SetSubnetsInput{LoadBalancerArn: &t.id, Subnets: refIDs(want.Subnets)}
		if _, err := api.SetSubnets(ctx, in); err != nil {
			return plan.StepResult{}, transport.Wrap(err, "set subnets")
		}
	}

	if !sameRefs(want.SecurityGroups, have.SecurityGroups) {
		in := &elb.SetSecurityGroupsInput{LoadBalancerArn: &t.id, SecurityGroups: refIDs(want.SecurityGroups)}
		if _, err := api.SetSecurityGroups(ctx, in); err != nil {
			return plan.StepResult{}, transport.Wrap(err, "set security groups")
		}
	}

	var attrs []elbtypes.LoadBalancerAttribute

	for _, k := range changedKeys(want.Attributes, have.Attributes) {
		value := want.Attributes[k]
		attrs = append(attrs, elbtypes.LoadBalancerAttribute{Key: &k, Value: &value})
	}

	if len(attrs) > 0 {
		in := &elb.ModifyLoadBalancerAttributesInput{LoadBalancerArn: &t.id, Attributes: attrs}
		if _, err := api.ModifyLoadBalancerAttributes(ctx, in); err != nil {
			return plan.StepResult{}, transport.Wrap(err, "set attributes")
		}
	}

	return keepIdentity(t), retagELB(ctx, api, t.id, want.Tags, have.Tags)
}

// readBalancersAndTargets lists all load balancers and target groups of the account, because ELB
// has no filter by tag, and reads the tags of 20 of them per call.
func readBalancersAndTargets(
	ctx context.Context,
	api balancerAPI,
	scope Scope,
	list *balancerList,
) ([]plan.ActualResource, error) {
	all, err := ListAllBalancing(ctx, api)
	if err != nil {
		return nil, err
	}

	list.set(all)
	tags := selectClusterTags(all.Tags, scope)
	var balancers []plan.ActualResource
	var groups []plan.ActualResource
	err = runBoth(
		func() (err error) {
			balancers, err = readEach(all.Balancers, func(lb elbtypes.LoadBalancer) ([]plan.ActualResource, error) {
				if t, ok := tags[aws.ToString(lb.LoadBalancerArn)]; ok {
					return readBalancer(ctx, api, lb, t)
				}

				return nil, nil
			})

			return err
		},
		func() (err error) { groups, err = readTargetGroups(ctx, api, all.TargetGroups, tags); return err },
	)

	return append(balancers, groups...), err
}

// Balancing are the load balancers and target groups of an account in a region, with their tags.
type Balancing struct {
	// Balancers are all load balancers.
	Balancers []elbtypes.LoadBalancer
	// TargetGroups are all target groups.
	TargetGroups []elbtypes.TargetGroup
	// Tags are the tags of both, by ARN.
	Tags map[string]awskind.Tags
}

// BalancingAPI are the calls of [ListAllBalancing].
type BalancingAPI interface {
	elb.DescribeLoadBalancersAPIClient
	elb.DescribeTargetGroupsAPIClient
	elbTagReadAPI
}

// ListAllBalancing returns all load balancers and target groups of the account in the region.
func ListAllBalancing(ctx context.Context, api BalancingAPI) (Balancing, error) {
	var out Balancing
	err := runBoth(
		func() (err error) { out.Balancers, err = ListBalancers(ctx, api); return err },
		func() (err error) { out.TargetGroups, err = ListTargetGroups(ctx, api); return err },
	)
	if err != nil {
		return out, err
	}

	var arns []string
	for _, lb := range out.Balancers {
		arns = append(arns, aws.ToString(lb.LoadBalancerArn))
	}

	for _, tg := range out.TargetGroups {
		arns = append(arns, aws.ToString(tg.TargetGroupArn))
	}

	out.Tags, err = DescribeELBTags(ctx, api, arns)
	if err != nil {
		return out, err
	}

	out.removeGone()

	return out, nil
}

// removeGone removes what was deleted between the list and the read of its tags.
func (b *Balancing) removeGone() {
	isGone := func(arn *string) bool {
		_, exists := b.Tags[aws.ToString(arn)]
		return !exists
	}

	b.Balancers = slices.DeleteFunc(b.Balancers, func(lb elbtypes.LoadBalancer) bool { return isGone(lb.LoadBalancerArn) })
	b.TargetGroups = slices.DeleteFunc(b.TargetGroups, func(tg elbtypes.TargetGroup) bool { return isGone(tg.TargetGroupArn) })
}

// balancerList is what was last listed.
type balancerList struct {
	mu     sync.Mutex
	listed bool
	last   Balancing
}

func (l *balancerList) set(b Balancing) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.listed = true
	l.last = b
}

// Balancing returns the load balancers and target groups that the last [Cloud.Read] listed, and whether there was
// one.
func (c *Cloud) Balancing() (Balancing, bool) {
	c.balancers.mu.Lock()
	defer c.balancers.mu.Unlock()

	return c.balancers.last, c.balancers.listed
}

// ListBalancers returns all load balancers of the account in the region.
func ListBalancers(
	ctx context.Context,
	api elb.DescribeLoadBalancersAPIClient,
) ([]elbtypes.LoadBalancer, error) {
	var out []elbtypes.LoadBalancer
	pages := elb.NewDescribeLoadBalancersPaginator(api, &elb.DescribeLoadBalancersInput{})
	for pages.HasMorePages() {
		page, err := pages.NextPage(ctx)
		if err != nil {
			return nil, transport.Wrap(err, "list load balancers")
		}

		out = append(out, page.LoadBalancers...)
	}

	return out, nil
}

// readBalancer returns a load balancer and its listeners.
func readBalancer(
	ctx context.Context,
	api balancerAPI,
	lb elbtypes.LoadBalancer,
	tags awskind.Tags,
) ([]plan.ActualResource, error) {
	arn := aws.ToString(lb.LoadBalancerArn)
	var attrs *elb.DescribeLoadBalancerAttributesOutput
	var listeners []plan.ActualResource
	err := runBoth(
		func() (err error) {
			attrs, err = api.DescribeLoadBalancerAttributes(
				ctx,
				&elb.DescribeLoadBalancerAttributesInput{LoadBalancerArn: &arn},
			)

			return transport.Wrap(err, "read the attributes of %s", arn)
		},
		func() (err error) { listeners, err = readListeners(ctx, api, arn); return err },
	)
	if err != nil {
		return nil, err
	}

	r := awskind.LoadBalancer{
		Name:       aws.ToString(lb.LoadBalancerName),
		Type:       string(lb.Type),
		Scheme:     string(lb.Scheme),
		Attributes: map[string]string{},
		Tags:       tags,
	}

	for _, z := range lb.AvailabilityZones {
		r.Subnets = append(r.Subnets, graph.UnmanagedRef[awskind.Subnet](aws.ToString(z.SubnetId)))
	}

	for _, g := range lb.SecurityGroups {
		r.SecurityGroups = append(r.SecurityGroups, graph.UnmanagedRef[awskind.SecurityGroup](g))
	}

	for _, a := range attrs.Attributes {
		r.Attributes[aws.ToString(a.Key)] = aws.ToString(a.Value)
	}

	out := []plan.ActualResource{{
		Addr:       addressFromTags(tags),
		ID:         arn,
		Resource:   r,
		Attributes: balancerAttributes(lb),
	}}

	return append(out, listeners...), nil
}
