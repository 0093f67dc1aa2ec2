// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"github.com/slipway-k8s/slipway/internal/infra/aws/cleanup"
	"github.com/slipway-k8s/slipway/internal/infra/plan"
	"github.com/slipway-k8s/slipway/internal/infra/stack"
	"github.com/slipway-k8s/slipway/internal/lib/store"
	"github.com/slipway-k8s/slipway/internal/manifest"
)

// ReviewKind is the question that a [Review] asks.
type ReviewKind int

// The kinds of reviews.
const (
	// ReviewApply is an apply without CloudFormation.
	ReviewApply ReviewKind = iota
	// ReviewApplyStack is an apply by a CloudFormation stack.
	ReviewApplyStack
	// ReviewContinueRollback continues the failed rollback of a stack, before its change set can be proposed.
	ReviewContinueRollback
	// ReviewDestroy is the deletion of a cluster.
	ReviewDestroy
	// ReviewDestroyStack is the deletion of a cluster and of its CloudFormation stack.
	ReviewDestroyStack
	// ReviewDeleteGroup is the deletion of one instance group.
	ReviewDeleteGroup
)

// Review is what a request is about to do: it is shown to a person, who approves it or not.
type Review struct {
	// Kind is the question.
	Kind ReviewKind
	// Cluster is the name of the cluster.
	Cluster string
	// Group is the name of the instance group that is deleted; empty for other reviews.
	Group string
	// Plan is what changes in AWS.
	Plan plan.Plan
	// Manifests are what an apply applies, with defaults. The set is zero for other operations.
	Manifests manifest.Set
	// Unpublished are the keys of the objects that will be written to the machine store, and the URLs of other objects
	// that will be written.
	Unpublished []string
	// Unsigned are the documents that nobody has signed and that an apply signs, by key.
	Unsigned []plan.UnsignedDocument
	// Destroy is set if the plan deletes the cluster.
	Destroy bool
	// Stack is the stack as it was found. It is zero without CloudFormation.
	Stack StackReview
	// Deletion is what a deletion removes besides the plan's resources.
	Deletion Deletion
	// Cost is what the cluster costs in a month, before and after. It is zero where it is not computed.
	Cost plan.MonthlyCost
}

// StackReview is the state of a CloudFormation stack before a change.
type StackReview struct {
	// Name of the stack.
	Name string
	// Info is the stack as it was found, after a running operation of it had ended.
	Info stack.Info
	// Recreate is set if the stack must be deleted, with its resources, and created again.
	Recreate bool
}

// IsStuck reports whether a rollback of the stack failed and must be continued before anything else.
func (s StackReview) IsStuck() bool { return stack.PhaseOf(s.Info.Status) == stack.PhaseRollbackFailed }

// Deletion is what a deletion removes from the stores and what it retains in AWS.
type Deletion struct {
	// Objects are the objects that are deleted, by store, in the order of their deletion.
	Objects []ObjectSet
	// Retained is data that stays, and the keys that it is encrypted with.
	Retained []plan.ActualResource
	// RetainedSteps are the steps that delete such data of a stack; they are not carried out.
	RetainedSteps []plan.Step
	// Blockers are resources of others that prevent the deletion of what they use.
	Blockers []cleanup.Blocker
}

// ObjectSet is a store and the keys in it that belong to the cluster.
type ObjectSet struct {
	// Store that has the objects.
	Store store.Store
	// Keys of the objects, in the order of their deletion.
	Keys []string
}

// IsEmpty reports whether there is nothing to do.
func (r Review) IsEmpty() bool {
	n := len(r.Unpublished)
	for _, set := range r.Deletion.Objects {
		n += len(set.Keys)
	}

	return r.Plan.IsEmpty() && n == 0
}

// HasChanges reports whether there is something to do, in AWS, in a store or to a stack.
func (r Review) HasChanges() bool { return !r.IsEmpty() || r.Stack.Recreate || r.Stack.IsStuck() }

// Document returns the plan in its JSON form: the changes in AWS and the objects that are published.
func (r Review) Document() plan.Document {
	doc := r.Plan.Document(r.Cluster)
	doc.Destroy = r.Destroy
	doc.MachineStore = append(doc.MachineStore, r.Unpublished...)
	doc.Unsigned = r.Unsigned
	doc.MonthlyCost = r.Cost
	doc.Summary.Publish = len(r.Unpublished)

	return doc
}
