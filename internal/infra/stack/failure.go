// SPDX-License-Identifier: Apache-2.0

package stack

import (
	"fmt"
	"strings"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/cloudformation/types"

	"github.com/slipway-k8s/slipway/internal/infra/graph"
)

// failureSignal is how CloudFormation begins to tell of a machine that said that it failed.
const failureSignal = "Received FAILURE signal with UniqueId "

// FailureCause is what an operation failed of.
type FailureCause struct {
	// Addr of the first resource that failed; empty if only the stack did.
	Addr graph.Addr
	// ID in AWS, where it had one.
	ID     string
	Reason string
	// StartedAt is when the resource began, for whoever looks for its traces.
	StartedAt time.Time
	// Machines are those that said themselves that they failed.
	Machines []string
}

// FailedError says that an operation of a stack ended badly, and why.
type FailedError struct {
	Stack  string
	Status types.StackStatus
	Cause  FailureCause
}

// Error implements error.
func (e FailedError) Error() string {
	text := fmt.Sprintf("stack %s ended in %s", e.Stack, e.Status)
	if e.Cause.Addr != "" {
		text += fmt.Sprintf("; the first that failed was %s", e.Cause.Addr)
		if e.Cause.ID != "" {
			text += " (" + e.Cause.ID + ")"
		}
	}

	if e.Cause.Reason != "" {
		text += ": " + e.Cause.Reason
	}

	return text
}

// FirstFailure finds in the events of an operation, oldest first, what failed by itself: what CloudFormation cancelled
// because of that is not told. Otherwise is the reason if no resource failed.
func FirstFailure(events []types.StackEvent, names NameIndex, otherwise string) FailureCause {
	begun := map[string]time.Time{}
	said := map[string][]string{}
	for _, e := range events {
		id := aws.ToString(e.LogicalResourceId)
		if aws.ToString(e.ResourceType) == stackType {
			continue
		}

		if begun[id].IsZero() {
			begun[id] = aws.ToTime(e.Timestamp)
		}

		reason := aws.ToString(e.ResourceStatusReason)
		if _, machine, ok := strings.Cut(reason, failureSignal); ok {
			said[id] = append(said[id], machine)
		}

		if !strings.HasSuffix(string(e.ResourceStatus), "_FAILED") || isCancelled(reason) {
			continue
		}

		return FailureCause{
			Addr:      names.AddrOf(aws.ToString(e.ResourceType), id),
			ID:        aws.ToString(e.PhysicalResourceId),
			Reason:    reason,
			StartedAt: begun[id],
			Machines:  said[id],
		}
	}

	return FailureCause{Reason: otherwise}
}

func isCancelled(reason string) bool {
	return strings.HasPrefix(reason, "Resource creation cancelled") ||
		strings.HasPrefix(reason, "Resource update cancelled")
}
