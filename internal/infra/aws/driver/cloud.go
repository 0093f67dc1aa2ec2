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
	"github.com/aws/aws-sdk-go-v2/service/cloudwatchlogs"
	"github.com/aws/aws-sdk-go-v2/service/ec2"
	elb "github.com/aws/aws-sdk-go-v2/service/elasticloadbalancingv2"
	"github.com/aws/aws-sdk-go-v2/service/eventbridge"
	"github.com/aws/aws-sdk-go-v2/service/iam"
	"github.com/aws/aws-sdk-go-v2/service/kms"
	"github.com/aws/aws-sdk-go-v2/service/lambda"
	"github.com/aws/aws-sdk-go-v2/service/route53"
	"github.com/aws/aws-sdk-go-v2/service/sns"
	"github.com/aws/aws-sdk-go-v2/service/sts"

	"github.com/slipway-k8s/slipway/internal/infra/awskind"
	"github.com/slipway-k8s/slipway/internal/infra/graph"
	"github.com/slipway-k8s/slipway/internal/infra/plan"
)

// Scope selects the resources of one cluster.
type Scope struct {
	// Cluster is the name of the cluster, the value of the tag slipway.dev/cluster.
	Cluster string
	// Region is the AWS region, such as eu-central-1.
	Region string
	// RolePath is the IAM path of the cluster's roles and instance profiles.
	RolePath string
	// KeyAlias is the alias of the cluster's KMS key.
	KeyAlias string
}

// Cloud is one cluster's part of an AWS account. It implements [plan.Cloud] and
// [plan.BatchSession]. Read, Create, Update, Delete and WaitReady may be called concurrently.
type Cloud struct {
	scope Scope
	// kinds are the drivers by the name of their resource kind.
	kinds map[string]untypedDriver
	// readers read all kinds. readersByType are further readers, which one more reader calls if
	// they have something to read.
	readers       []resourceReader
	readersByType conditionalReaders
	// readersByKind are the indexes in readers of those with which EndPlan waits until AWS lists the created resources of
	// a kind.
	readersByKind map[string][]int
	// listTagged returns those of ids that are EC2 resources with the tag of the cluster.
	listTagged func(ctx context.Context, ids []string) (map[string]bool, error)
	created    createdIDs
	// balancers are the load balancers and target groups of the last read.
	balancers balancerList
	// planHooks are called with a plan before it is applied.
	planHooks []func(plan.Plan)
	// recordZones are the ids of unmanaged hosted zones that may have records of the cluster.
	recordZones []string
	// skipsZones is true if the cluster has no hosted zone and no DNS records.
	skipsZones bool
	// providers is whether the cluster may have an OpenID Connect provider.
	providers providerSearch
	// function is the Lambda function that the cluster may have.
	function functionSearch
	// topic is the SNS topic that the cluster may have.
	topic functionSearch
	// inUse explains why AWS refuses to delete a resource; nil: it is retried without an
	// explanation.
	inUse InUseFunc
	// marks reads and sets the tags that are no part of the desired state. createTags are those that
	// a volume is created with, by its address.
	marks      markAPI
	createTags map[graph.Addr]awskind.Tags
	// runID makes the client tokens of this run different from those of other runs.
	runID string
}

// resourceReader reads all resources of one or more kinds. The number of its calls does not grow
// with the number of instance groups.
type resourceReader func(ctx context.Context) ([]plan.ActualResource, error)

// InUseFunc explains err, with which AWS refused to delete the resource with id because it is in
// use. filter is how the resources that use it are found, such as "subnet-id". The function returns
// an error of class [plan.NotReady] if they will disappear without the operator. It returns errors
// of other classes than [plan.InUse] unchanged.
type InUseFunc func(ctx context.Context, err error, filter, id string) error

// New returns the resources of scope in the account and region that cfg reaches. inUse may be nil.
func New(cfg aws.Config, scope Scope, inUse InUseFunc) *Cloud {
	c := &Cloud{
		marks:         ec2.NewFromConfig(cfg),
		scope:         scope,
		inUse:         inUse,
		kinds:         map[string]untypedDriver{},
		readersByType: conditionalReaders{},
		readersByKind: map[string][]int{},
		runID:         rand.Text(),
	}

	ec2Client := ec2.NewFromConfig(cfg)
	iamClient := iam.NewFromConfig(cfg)
	kmsClient := kms.NewFromConfig(cfg)
	elbClient := elb.NewFromConfig(cfg)
	scalingClient := autoscaling.NewFromConfig(cfg)

	c.listTagged = func(ctx context.Context, ids []string) (map[string]bool, error) {
		return listTaggedIDs(ctx, ec2Client, scope, ids)
	}

	registerInstances(c, ec2Client)
	registerNetworkInterfaces(c, ec2Client)
	registerSnapshots(c, ec2Client)
	registerVPCs(c, ec2Client, scope)
	registerInternetGateways(c, ec2Client, scope)
	registerGatewayAttachments(c, ec2Client)
	registerSubnets(c, ec2Client, scope)
	registerAddresses(c, ec2Client, scope)
	registerNATGateways(c, ec2Client, scope)
	registerRouteTables(c, ec2Client, scope)
	registerRouteTableAssociations(c, ec2Client)
	registerRoutes(c, ec2Client)
	registerEndpoints(c, ec2Client, scope)
	registerPeerings(c, ec2Client, scope)
	registerSecurityGroups(c, ec2Client, scope)
	registerVolumes(c, ec2Client, scope)
	registerKeyPairs(c, ec2Client, scope)
	registerLaunchTemplates(c, templatePruner{templates: ec2Client, groups: scalingClient, cluster: scope.Cluster}, ec2Client, scope)
	registerRoles(c, iamClient, iamClient, scope)
	registerRolePolicies(c, iamClient)
	registerInstanceProfiles(c, iamClient)
	registerOIDCProviders(c, iamClient, scope)
	registerKeys(c, kmsClient, scope)
	registerLoadBalancers(c, elbClient, scope)
	registerHostedZones(c, route53.NewFromConfig(cfg), scope)
	registerLogGroups(c, cloudwatchlogs.NewFromConfig(cfg))
	registerFunctions(c, lambda.NewFromConfig(cfg), scope)
	registerEventRules(c, eventbridge.NewFromConfig(cfg))
	registerTopics(c, sns.NewFromConfig(cfg), sts.NewFromConfig(cfg), scope)
	registerAutoScalingGroups(c, scalingClient, ec2Client, scope)
	c.addReader(c.readersByType.combineReaders(ec2Client, scope), awskind.Route{}) // those of unmanaged tables

	return c
}

// AddRecordZones adds ids of unmanaged hosted zones that may have records of the cluster. Call it
// before [Cloud.Read].
func (c *Cloud) AddRecordZones(zones ...string) {
	for _, z := range zones {
		if !slices.Contains(c.recordZones, z) {
			c.recordZones = append(c.recordZones, z)
		}
	}
}

// SkipZones makes [Cloud.Read] read no hosted zones and no DNS records: the caller knows that the cluster never
// had any. Call it before Read.
func (c *Cloud) SkipZones() { c.skipsZones = true }

// WithoutDetails returns a context with which [Cloud.Read] leaves out the properties that AWS returns in calls of
// their own and that a deletion does not need. It is for plans that delete all resources.
func WithoutDetails(ctx context.Context) context.Context {
	return context.WithValue(ctx, omitDetailsKey{}, true)
}

// omitDetailsKey is the key of a context whose readers leave out details; see [WithoutDetails].
type omitDetailsKey struct{}

func omitsDetails(ctx context.Context) bool { return ctx.Value(omitDetailsKey{}) != nil }

// Read returns all resources of the cluster that exist in AWS. It changes nothing.
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

// isForeign reports whether a belongs to another cluster or to none. Filters of AWS are not trusted
// with that decision, because the next operation on a may be its deletion.
func (c *Cloud) isForeign(a plan.ActualResource) bool {
	for _, f := range graph.Fields(a.Resource) {
		if tags, ok := f.Value.(map[string]any); ok && f.IsTags {
			return tags[awskind.TagCluster] != c.scope.Cluster && tags[formerClusterTag] != c.scope.Cluster
		}
	}

	return len(a.Resource.Kind().KeyProperties) == 0 // a kind without key properties must have tags
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

	t.Desired = c.withCreateTags(t.Step.Addr, t.Desired)
	result, err := d.create(ctx, t)
	if err == nil && mustBeListed(t.Desired) {
		c.created.add(t.Step.Kind, result.ID)
	}

	return result, err
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
func (c *Cloud) WaitReady(ctx context.Context, t plan.Task, result plan.StepResult) error {
	d, err := c.driverOf(t)
	if err != nil {
		return err
	}

	return d.waitReady(ctx, t, result)
}

// explainInUse adds the resources that use id to err, if err means that id is in use. It returns
// other errors unchanged.
func (c *Cloud) explainInUse(ctx context.Context, err error, filter, id string) error {
	if plan.ErrorClassOf(err) != plan.InUse || c.inUse == nil {
		return waitWhileInUse(err)
	}

	return c.inUse(ctx, err, filter, id)
}
