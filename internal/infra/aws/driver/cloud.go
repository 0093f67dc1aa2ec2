// SPDX-License-Identifier: Apache-2.0

package driver

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

	"github.com/slipway-k8s/slipway/internal/infra/aws/transport"
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
	scope         Scope
	readers       []resourceReader
	readersByType conditionalReaders
	kinds         map[string]untypedDriver
	// planHooks are told of a plan before it is carried out.
	planHooks []func(plan.Plan)
	// readersByKind are the readers that find what is made by its tags, or through what is found so, by kind.
	readersByKind map[string][]int
	created       createdIDs
	// recordZones are existing hosted zones to look for records in.
	recordZones []string
	// inUse explains why AWS refuses to delete something; nil where nothing is known.
	inUse InUseFunc
	// runID tells the client tokens of this run from those of others.
	runID string
}

// resourceReader reads every resource of one or more kinds. The number of its calls does not grow with the instance groups.
type resourceReader func(ctx context.Context) ([]plan.ActualResource, error)

// InUseFunc explains err, the refusal of AWS to delete id because it is in use; filter is the name of the filter that finds
// what uses it. It returns an error of class [plan.NotReady] if waiting helps, and errors of other classes as they are.
type InUseFunc func(ctx context.Context, err error, filter, id string) error

// New returns the part of the account that cfg reaches which scope names. inUse may be nil.
func New(cfg aws.Config, scope Scope, inUse InUseFunc) *Cloud {
	c := &Cloud{
		scope:         scope,
		inUse:         inUse,
		kinds:         map[string]untypedDriver{},
		readersByType: conditionalReaders{},
		readersByKind: map[string][]int{},
		runID:         rand.Text(),
	}
	e := ec2.NewFromConfig(cfg)
	i := iam.NewFromConfig(cfg)
	k := kms.NewFromConfig(cfg)
	l := elb.NewFromConfig(cfg)
	a := autoscaling.NewFromConfig(cfg)
	registerInstances(c, e)
	registerNetworkInterfaces(c, e)
	registerSnapshots(c, e)
	registerVPCs(c, e, scope)
	registerInternetGateways(c, e, scope)
	registerGatewayAttachments(c, e)
	registerSubnets(c, e, scope)
	registerAddresses(c, e, scope)
	registerNATGateways(c, e, scope)
	registerRouteTables(c, e, scope)
	registerRouteTableAssociations(c, e)
	registerRoutes(c, e)
	registerEndpoints(c, e, scope)
	registerPeerings(c, e, scope)
	registerSecurityGroups(c, e, scope)
	registerVolumes(c, e, scope)
	registerKeyPairs(c, e, scope)
	registerLaunchTemplates(c, e, scope)
	registerRoles(c, i, scope)
	registerRolePolicies(c, i)
	registerInstanceProfiles(c, i, scope)
	registerKeys(c, k, scope)
	registerLoadBalancers(c, l, scope)
	registerHostedZones(c, route53.NewFromConfig(cfg), scope)
	registerAutoScalingGroups(c, a, e, scope)
	c.readers = append(c.readers, c.readersByType.combineReaders(e, scope))

	return c
}

// AddRecordZones names existing hosted zones that may have records of the cluster. It is meant for before the first [Cloud.Read].
func (c *Cloud) AddRecordZones(zones ...string) {
	for _, z := range zones {
		if !slices.Contains(c.recordZones, z) {
			c.recordZones = append(c.recordZones, z)
		}
	}
}

// Read returns everything in AWS that is the cluster's. It changes nothing.
func (c *Cloud) Read(ctx context.Context) ([]plan.ActualResource, error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	results := make([][]plan.ActualResource, len(c.readers))
	errs := make([]error, len(c.readers))
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

	return slices.DeleteFunc(slices.Concat(results...), c.isForeign), nil
}

// isForeign says whether a is somebody else's after all. What a filter lets through is not taken on trust: the next thing
// to happen to it may be its deletion.
func (c *Cloud) isForeign(a plan.ActualResource) bool {
	for _, f := range graph.Fields(a.Resource) {
		if tags, ok := f.Value.(map[string]any); ok && f.IsTags {
			return tags[awskind.TagCluster] != c.scope.Cluster && tags[formerClusterTag] != c.scope.Cluster
		}
	}

	return len(a.Resource.Kind().KeyProperties) == 0 // without a key it must have tags
}

// driverOf returns the driver of the kind of t's step.
func (c *Cloud) driverOf(t plan.Task) (untypedDriver, error) {
	d, ok := c.kinds[t.Step.Kind]
	if !ok {
		return untypedDriver{}, fmt.Errorf("no driver for resource kind %q", t.Step.Kind)
	}

	return d, nil
}

// Create implements [plan.Cloud].
func (c *Cloud) Create(ctx context.Context, t plan.Task) (plan.StepResult, error) {
	d, err := c.driverOf(t)
	if err != nil {
		return plan.StepResult{}, err
	}

	m, err := d.create(ctx, t)
	if err == nil {
		c.created.add(t.Step.Kind, m.ID)
	}

	return m, err
}

// Update implements [plan.Cloud].
func (c *Cloud) Update(ctx context.Context, t plan.Task) (plan.StepResult, error) {
	d, err := c.driverOf(t)
	if err != nil {
		return plan.StepResult{}, err
	}

	return d.update(ctx, t)
}

// Delete implements [plan.Cloud].
func (c *Cloud) Delete(ctx context.Context, t plan.Task) error {
	d, err := c.driverOf(t)
	if err != nil {
		return err
	}

	return d.remove(ctx, t)
}

// WaitReady implements [plan.Cloud].
func (c *Cloud) WaitReady(ctx context.Context, t plan.Task, m plan.StepResult) error {
	d, err := c.driverOf(t)
	if err != nil {
		return err
	}

	return d.waitReady(ctx, t, m)
}

// explainInUse adds to err what uses id, if err means that id is in use. Other errors stay as they are.
func (c *Cloud) explainInUse(ctx context.Context, err error, filter, id string) error {
	if plan.ErrorClassOf(err) != plan.InUse {
		return err
	}

	if c.inUse == nil {
		return transport.NotYet("%w", err)
	}

	return c.inUse(ctx, err, filter, id)
}
