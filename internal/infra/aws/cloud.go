// SPDX-License-Identifier: Apache-2.0

// Package aws reads, makes, changes and removes the resources of package awskind, one driver file a kind, each over a
// narrow interface of the calls that it makes. It does not know what a cluster is made of, nor in which order it is built.
package aws

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"slices"
	"sync"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/autoscaling"
	"github.com/aws/aws-sdk-go-v2/service/ec2"
	elb "github.com/aws/aws-sdk-go-v2/service/elasticloadbalancingv2"
	"github.com/aws/aws-sdk-go-v2/service/iam"
	"github.com/aws/aws-sdk-go-v2/service/kms"
	"github.com/aws/aws-sdk-go-v2/service/route53"

	"github.com/slipway-k8s/slipway/internal/infra/awskind"
	"github.com/slipway-k8s/slipway/internal/infra/graph"
	"github.com/slipway-k8s/slipway/internal/infra/plan"
)

// Scope says whose resources are meant.
type Scope struct {
	Cluster string
	Region  string
	// RolePath is the IAM path of the cluster's roles and profiles.
	RolePath string
	// KeyAlias is the alias of the cluster's KMS key.
	KeyAlias string
}

// Cloud is one cluster's part of an AWS account. It implements [plan.Cloud].
type Cloud struct {
	scope   Scope
	readers []reader
	seldom  seldom
	kinds   map[string]handler
	// begins are told of a plan before it is carried out.
	begins []func(plan.Plan)
	// finders are the readers that find what is made by its tags, or through what is found so, by kind.
	finders map[string][]int
	made    made
	// zones are existing hosted zones to look for records in.
	zones []string
	// lookout names what keeps AWS from deleting something.
	lookout finder
	// run tells the client tokens of this run from those of others.
	run string
}

// reader reads every resource of one or more kinds. The number of its calls does not grow with the instance groups.
type reader func(ctx context.Context) ([]plan.Actual, error)

// New returns the part of the account that cfg reaches which scope names.
func New(cfg aws.Config, scope Scope) *Cloud {
	c := &Cloud{scope: scope, kinds: map[string]handler{}, seldom: seldom{}, finders: map[string][]int{}, run: rand.Text()}
	if !paced(cfg) {
		cfg = (&Counter{}).Pace(cfg)
	}
	e := ec2.NewFromConfig(cfg)
	i := iam.NewFromConfig(cfg)
	k := kms.NewFromConfig(cfg)
	l := elb.NewFromConfig(cfg)
	a := autoscaling.NewFromConfig(cfg)
	c.lookout = finder{ec2: e, elb: l, cluster: scope.Cluster}
	leftovers(c, e)
	vpcs(c, e, scope)
	gateways(c, e, scope)
	subnets(c, e, scope)
	addresses(c, e, scope)
	natGateways(c, e, scope)
	routeTables(c, e, scope)
	endpoints(c, e, scope)
	peerings(c, e, scope)
	securityGroups(c, e, scope)
	volumes(c, e, scope)
	keyPairs(c, e, scope)
	templates(c, e, scope)
	roles(c, i, scope)
	profiles(c, i, scope)
	keys(c, k, scope)
	balancers(c, l, scope)
	zones(c, route53.NewFromConfig(cfg), scope)
	groups(c, a, e, scope)
	c.readers = append(c.readers, c.seldom.reader(e, scope))
	return c
}

// LookIn names existing hosted zones that may have records of the cluster. It is meant for before the first [Cloud.Read].
func (c *Cloud) LookIn(zones ...string) {
	for _, z := range zones {
		if !slices.Contains(c.zones, z) {
			c.zones = append(c.zones, z)
		}
	}
}

// Read returns everything in AWS that is the cluster's. It changes nothing.
func (c *Cloud) Read(ctx context.Context) ([]plan.Actual, error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	results, errs := make([][]plan.Actual, len(c.readers)), make([]error, len(c.readers))
	var wg sync.WaitGroup
	for i, read := range c.readers {
		wg.Go(func() {
			if results[i], errs[i] = read(ctx); errs[i] != nil {
				cancel()
			}
		})
	}
	wg.Wait()
	for _, err := range errs {
		if err != nil && !errors.Is(err, context.Canceled) {
			return nil, err
		}
	}
	if err := errors.Join(errs...); err != nil {
		return nil, err
	}
	return slices.DeleteFunc(slices.Concat(results...), c.foreign), nil
}

// foreign says whether a is somebody else's after all. What a filter lets through is not taken on trust: the next thing
// to happen to it may be its deletion.
func (c *Cloud) foreign(a plan.Actual) bool {
	for _, f := range graph.Fields(a.Resource) {
		if tags, ok := f.Value.(map[string]any); ok && f.Tags {
			return tags[awskind.TagCluster] != c.scope.Cluster && tags[formerCluster] != c.scope.Cluster
		}
	}
	return len(a.Resource.Kind().Key) == 0 // without a key it must have tags
}

// Create implements [plan.Cloud].
func (c *Cloud) Create(ctx context.Context, t plan.Task) (plan.Made, error) {
	m, err := c.kinds[t.Step.Kind].create(ctx, t)
	if err == nil {
		c.made.add(t.Step.Kind, m.ID)
	}
	return m, err
}

// Update implements [plan.Cloud].
func (c *Cloud) Update(ctx context.Context, t plan.Task) (plan.Made, error) {
	return c.kinds[t.Step.Kind].update(ctx, t)
}

// Delete implements [plan.Cloud].
func (c *Cloud) Delete(ctx context.Context, t plan.Task) error {
	return c.kinds[t.Step.Kind].remove(ctx, t)
}

// Settle implements [plan.Cloud].
func (c *Cloud) Settle(ctx context.Context, t plan.Task, m plan.Made) error {
	return c.kinds[t.Step.Kind].settle(ctx, t, m)
}

// task is a [plan.Task] with the types of one kind.
type task[T graph.Resource] struct {
	step    plan.Step
	addr    string
	token   string // for calls that take a client token
	id      string // of what exists
	want    T
	have    T
	waiting func(string)
}

// driver is what a kind can do. update is nil where nothing can be changed in place, settle where there is no wait.
type driver[T graph.Resource] struct {
	create func(context.Context, task[T]) (plan.Made, error)
	update func(context.Context, task[T]) (plan.Made, error)
	remove func(context.Context, task[T]) error
	settle func(context.Context, task[T], plan.Made) error
}

// handler is a driver without its type.
type handler struct {
	create, update func(context.Context, plan.Task) (plan.Made, error)
	remove         func(context.Context, plan.Task) error
	settle         func(context.Context, plan.Task, plan.Made) error
}

// register adds the driver of a kind to c.
func register[T graph.Resource](c *Cloud, d driver[T]) {
	var zero T
	name := zero.Kind().Name
	c.kinds[name] = handler{
		create: func(ctx context.Context, t plan.Task) (plan.Made, error) { return d.create(fresh(ctx), typed[T](c, t)) },
		update: func(ctx context.Context, t plan.Task) (plan.Made, error) {
			if d.update == nil {
				return plan.Made{}, fmt.Errorf("a %s cannot be changed in place", name)
			}
			return d.update(fresh(ctx), typed[T](c, t))
		},
		remove: func(ctx context.Context, t plan.Task) error {
			if err := d.remove(ctx, typed[T](c, t)); plan.ClassOf(err) != plan.NotFound {
				return err
			}
			return nil
		},
		settle: func(ctx context.Context, t plan.Task, m plan.Made) error {
			if d.settle == nil {
				return nil
			}
			return d.settle(ctx, typed[T](c, t), m)
		},
	}
}

func typed[T graph.Resource](c *Cloud, t plan.Task) task[T] {
	out := task[T]{step: t.Step, addr: string(t.Step.Addr), token: c.token(string(t.Step.Addr)), id: t.Have.ID, waiting: t.Waiting}
	if w, ok := t.Want.(T); ok {
		out.want = w
	}
	if h, ok := t.Have.Resource.(T); ok {
		out.have = h
	}
	return out
}

// kept is what an update that changes no identity returns.
func kept[T graph.Resource](t task[T]) plan.Made { return plan.Made{ID: t.id} }
