// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/autoscaling"
	"github.com/aws/aws-sdk-go-v2/service/ec2"
	ec2types "github.com/aws/aws-sdk-go-v2/service/ec2/types"
	"github.com/aws/aws-sdk-go-v2/service/elasticloadbalancingv2"
	"github.com/aws/aws-sdk-go-v2/service/iam"
	"github.com/aws/aws-sdk-go-v2/service/kms"
	"github.com/aws/aws-sdk-go-v2/service/s3"

	"github.com/slipway-k8s/slipway/internal/lib/plainerror"
)

// resource is something of a run that exists in AWS.
type resource struct {
	kind string
	id   string
	// ofStore is set for what belongs to the state store. 'slipway delete cluster' keeps it.
	ofStore bool
}

// String returns the kind and the id, such as vpc vpc-0a4a568c43d44f70b.
func (r resource) String() string { return r.kind + " " + r.id }

// resourceKind is how the resources of one kind are found and removed. Both ask the service of the kind, which knows a
// deletion at once. The Resource Groups Tagging API and ec2:DescribeTags still list deleted resources for a while.
type resourceKind struct {
	name string
	// arn is the service and the type in ARNs of the kind, such as ec2:vpc; empty if the Resource Groups Tagging API does
	// not have the kind.
	arn    string
	list   func(context.Context) ([]resource, error)
	remove func(context.Context, string) error
}

// inventory finds and removes what exists of a run, without Slipway's code.
type inventory struct {
	id      runID
	account account

	ec2         *ec2.Client
	autoscaling *autoscaling.Client
	balancing   *elasticloadbalancingv2.Client
	iam         *iam.Client
	kms         *kms.Client
	s3          *s3.Client
}

func newInventory(a account, id runID) inventory {
	return inventory{
		id:          id,
		account:     a,
		ec2:         ec2.NewFromConfig(a.cfg),
		autoscaling: autoscaling.NewFromConfig(a.cfg),
		balancing:   elasticloadbalancingv2.NewFromConfig(a.cfg),
		iam:         iam.NewFromConfig(a.cfg),
		kms:         kms.NewFromConfig(a.cfg),
		s3:          s3.NewFromConfig(a.cfg),
	}
}

// allKinds returns all kinds that a run creates, in the order in which they can be removed.
func (v inventory) allKinds() []resourceKind {
	kinds := append(v.balancingKinds(), v.computeKinds()...)
	kinds = append(kinds, v.networkKinds()...)

	return append(kinds, v.accountKinds()...)
}

// listResources returns what exists of the run. With an error the list is not complete.
func (v inventory) listResources(ctx context.Context) ([]resource, error) {
	var found []resource
	var errs []error
	for _, kind := range v.allKinds() {
		list, err := kind.list(ctx)
		if err != nil {
			errs = append(errs, fmt.Errorf("list each %s of run %s: %w", kind.name, v.id, plainerror.Wrap(err)))
		}

		found = append(found, list...)
	}

	return found, errors.Join(errs...)
}

// removePause is the first pause between two attempts to remove everything. Each pause is twice as long, up to
// maxRemovePause.
const (
	removePause    = time.Second
	maxRemovePause = 15 * time.Second
)

// removeResources removes what exists of the run until nothing is left or ctx ends. It returns what is left, each with
// the reason, and lists that AWS refused.
func (v inventory) removeResources(ctx context.Context) []string {
	reasons := map[resource]error{}
	for wait := removePause; ; wait = min(2*wait, maxRemovePause) {
		found, listErr := v.listResources(ctx)
		if len(found) > 0 && ctx.Err() == nil {
			v.removeOnce(ctx, found, reasons)
			if pauseFor(ctx, wait) == nil {
				continue
			}
		}

		return describeLeft(found, reasons, listErr)
	}
}

// removeOnce removes each of the resources that AWS allows to remove now. It stores the errors of the others in reasons.
// The state store is removed last: until then 'slipway delete cluster' can be run again.
func (v inventory) removeOnce(ctx context.Context, found []resource, reasons map[resource]error) {
	if ofCluster := clusterResources(found); len(ofCluster) > 0 {
		found = ofCluster
	}

	for _, kind := range v.allKinds() {
		for _, r := range found {
			if r.kind == kind.name {
				reasons[r] = kind.remove(ctx, r.id)
			}
		}
	}
}

// describeLeft returns the lines of what is left.
func describeLeft(found []resource, reasons map[resource]error, listErr error) []string {
	var left []string
	for _, r := range found {
		line := r.String()
		if err := reasons[r]; err != nil {
			line += ": " + plainerror.Text(err.Error())
		}

		left = append(left, line)
	}

	if listErr != nil {
		left = append(left, strings.Split(listErr.Error(), "\n")...)
	}

	return left
}

// clusterResources returns those of the resources that belong to the cluster, not to its state store.
func clusterResources(found []resource) []resource {
	var out []resource
	for _, r := range found {
		if !r.ofStore {
			out = append(out, r)
		}
	}

	return out
}

// tagFilters returns the filters of EC2 and Auto Scaling for the tag of the run, and other filters.
func (v inventory) tagFilters(others ...ec2types.Filter) []ec2types.Filter {
	return append(others, ec2types.Filter{Name: aws.String("tag:" + runTag), Values: []string{string(v.id)}})
}

// filterValues returns a filter of EC2.
func filterValues(name string, values ...string) ec2types.Filter {
	return ec2types.Filter{Name: &name, Values: values}
}

// toResources returns a resource for each item.
func toResources[T any](kind string, items []T, id func(T) *string) []resource {
	var out []resource
	for _, item := range items {
		out = append(out, resource{kind: kind, id: aws.ToString(id(item))})
	}

	return out
}
