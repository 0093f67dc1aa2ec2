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

// failureSignal is the text before the instance id in an event about a machine's failure signal.
const failureSignal = "Received FAILURE signal with UniqueId "

// FailureCause is why an operation failed.
type FailureCause struct {
	// Addr is the first resource that failed; empty if only the stack did.
	Addr graph.Addr
	// ID is the resource's physical id; empty if it was not created.
	ID string
	// Reason is CloudFormation's explanation.
	Reason string
	// StartedAt is when the operation on the resource started; older logs and machines are not of this
	// operation.
	StartedAt time.Time
	// Machines lists the ids of the machines that sent a failure signal.
	Machines []string
}

// FailedError is the error of an operation that failed or was rolled back.
type FailedError struct {
	// Stack is the stack's name.
	Stack string
	// Status is the status in which the operation ended.
	Status types.StackStatus
	Cause  FailureCause
}

// Error returns the status, the first failed resource and the reason.
func (e FailedError) Error() string {
	text := fmt.Sprintf("stack %s ended in %s", e.Stack, e.Status)
	if e.Cause.Addr != "" {
		text += fmt.Sprintf("; the first failed resource was %s", e.Cause.Addr)
		if e.Cause.ID != "" {
			text += " (" + e.Cause.ID + ")"
		}
	}

	if e.Cause.Reason != "" {
		text += ": " + e.Cause.Reason
	}

	return text
}

// FirstFailure returns the first resource in the events of an operation, oldest first, that failed by itself.
// Resources that CloudFormation cancelled because of another failure do not count. otherwise is the reason if
// no resource failed.
func FirstFailure(events []types.StackEvent, names NameIndex, otherwise string) FailureCause {
	startedAt := map[string]time.Time{}
	machines := map[string][]string{}
	for _, e := range events {
		id := aws.ToString(e.LogicalResourceId)
		if aws.ToString(e.ResourceType) == stackType {
			continue
		}

		if startedAt[id].IsZero() {
			startedAt[id] = aws.ToTime(e.Timestamp)
		}

		reason := aws.ToString(e.ResourceStatusReason)
		if _, machine, ok := strings.Cut(reason, failureSignal); ok {
			machines[id] = append(machines[id], machine)
		}

		if !strings.HasSuffix(string(e.ResourceStatus), "_FAILED") || isCancelled(reason) {
			continue
		}

		return FailureCause{
			Addr:      names.AddrOf(aws.ToString(e.ResourceType), id),
			ID:        aws.ToString(e.PhysicalResourceId),
			Reason:    reason,
			StartedAt: startedAt[id],
			Machines:  machines[id],
		}
	}

	return FailureCause{Reason: otherwise}
}

func isCancelled(reason string) bool {
	return strings.HasPrefix(reason, "Resource creation cancelled") ||
		strings.HasPrefix(reason, "Resource update cancelled")
}
