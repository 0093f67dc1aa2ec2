// SPDX-License-Identifier: Apache-2.0

// Package aws is the AWS side of a plan: it reads, creates, updates and deletes the resources of
// package awskind. Its parts are
//
//   - transport: every call to AWS goes through it. It counts calls, keeps them below AWS's rate
//     limits, retries those that are safe to retry, classifies errors, and polls for states.
//   - driver: one file for each resource kind, and [driver.Cloud], which implements [plan.Cloud]
//     with them.
//   - cleanup: finds leftovers and blockers, which the deletion of a cluster has to deal with
//     besides the cluster's own resources.
//   - discovery: reads facts that a manifest refers to, such as images, unmanaged VPCs and
//     service quotas.
//
// This package connects cleanup to the drivers. It does not know what a cluster consists of, nor in
// which order its resources are created.
package aws

import (
	"context"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/ec2"
	elb "github.com/aws/aws-sdk-go-v2/service/elasticloadbalancingv2"

	"github.com/slipway-k8s/slipway/internal/infra/aws/cleanup"
	"github.com/slipway-k8s/slipway/internal/infra/aws/driver"
	"github.com/slipway-k8s/slipway/internal/infra/aws/transport"
	"github.com/slipway-k8s/slipway/internal/infra/plan"
)

// Scope selects the resources of one cluster.
type Scope = driver.Scope

// WithoutDetails returns a context with which [driver.Cloud.Read] reads only what a deletion needs.
func WithoutDetails(ctx context.Context) context.Context { return driver.WithoutDetails(ctx) }

// WithRecordedHooks returns a context with which [driver.Cloud.Read] needs no call for each Auto Scaling group.
func WithRecordedHooks(ctx context.Context) context.Context { return driver.WithRecordedHooks(ctx) }

// Cloud is one cluster's part of an AWS account. It implements [plan.Cloud] and
// [plan.BatchSession]. Its methods may be called concurrently.
type Cloud struct {
	*driver.Cloud
	finder cleanup.Finder
}

// New returns the resources of scope in the account and region that cfg reaches. Calls are paced by
// a [transport.CallLimiter] of their own unless cfg comes from one.
func New(cfg aws.Config, scope Scope) *Cloud {
	if !transport.IsPaced(cfg) {
		cfg = (&transport.CallLimiter{}).PaceCalls(cfg)
	}

	finder := cleanup.NewFinder(ec2.NewFromConfig(cfg), elb.NewFromConfig(cfg), scope.Cluster)

	return &Cloud{Cloud: driver.New(cfg, scope, finder.ExplainInUse), finder: finder}
}

// SetClusterID has leftovers and blockers with another cluster's id belong to that cluster. Call it before
// [Cloud.FindLeftovers].
func (c *Cloud) SetClusterID(id string) { c.finder.SetClusterID(id) }

// FindLeftovers returns what programs in the cluster created and left behind, and what prevents the
// deletion of its VPC. own is what [driver.Cloud.Read] returned. It changes nothing.
func (c *Cloud) FindLeftovers(ctx context.Context, own []plan.ActualResource) (cleanup.Leftovers, error) {
	finder := c.finder
	if listed, ok := c.Balancing(); ok {
		finder = finder.WithBalancing(listed)
	}

	return finder.FindLeftovers(ctx, own)
}
