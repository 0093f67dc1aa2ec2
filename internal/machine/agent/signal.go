// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"time"

	"github.com/aws/aws-sdk-go-v2/service/cloudformation"
	"github.com/aws/aws-sdk-go-v2/service/cloudformation/types"
	"github.com/aws/smithy-go"

	"github.com/slipway-k8s/slipway/api/v1alpha1"
	"github.com/slipway-k8s/slipway/internal/machine/etcd"
	"github.com/slipway-k8s/slipway/internal/machine/kube"
)

const (
	// signalled is on the tmpfs: a machine says once in each boot that it is well, so that the agent of an old one that
	// restarts is never taken for the new one that a rollout waits for.
	signalMarkerFile = "/run/slipway/signalled"
	// signalRetryLimit is how long a resource that the stack does not know yet is asked for again: CloudFormation goes on
	// to the next resource some time after a machine is well.
	signalRetryLimit = 30 * time.Minute
)

// Signaller is what the agent needs of CloudFormation.
type Signaller interface {
	SignalResource(
		context.Context,
		*cloudformation.SignalResourceInput,
		...func(*cloudformation.Options),
	) (*cloudformation.SignalResourceOutput, error)
}

// permanentError is one that trying again does not mend.
type permanentError struct{ error }

// Unwrap returns the cause.
func (e permanentError) Unwrap() error { return e.error }

// isPermanent says whether a machine that meets err will never be well: what it was told to be is wrong.
func isPermanent(err error) bool {
	if _, is := errors.AsType[HashError](err); is {
		return true
	}

	_, is := errors.AsType[permanentError](err)
	return is
}

// signalSuccess tells the stack that made this machine that it is well, as soon as it is. A machine that no stack made tells
// nobody.
func (a *Agent) signalSuccess(ctx context.Context) error {
	if a.Boot.StackName == "" || a.Root.Exists(signalMarkerFile) {
		return nil
	}

	if err := a.retryUntilReady(ctx, "well", func() error { return a.checkRolloutReady(ctx) }); err != nil {
		return err
	}

	a.signalResources(ctx, types.ResourceSignalStatusSuccess, signalRetryLimit)

	return a.recordSignal()
}

func (a *Agent) recordSignal() error {
	_, err := a.Root.Write(File{Path: signalMarkerFile, Body: []byte(a.Boot.StackName), Mode: 0o600})
	return err
}

// signalFailure tells the stack that this machine will not be well, so that nobody waits for it. The cause is on the
// console: a signal holds no text.
func (a *Agent) signalFailure(ctx context.Context, err error) {
	if a.Boot.StackName != "" && a.instance.ID != "" && !a.failureSignalled && isPermanent(err) &&
		!a.Root.Exists(signalMarkerFile) {
		// Said once, also if this process ends now: a rollback that waits for the next machine must not hear it of this one.
		a.failureSignalled = true
		if err := a.recordSignal(); err != nil {
			a.Log.Warn("that the stack was told can not be noted", slog.Any("error", err))
		}

		a.signalResources(ctx, types.ResourceSignalStatusFailure, 0)
	}
}

// checkRolloutReady waits until this machine is what a rollout may go on with: as [Agent.checkReady], its node is Ready, and every slot of
// the control plane has a voting member that answers with a quorum behind it.
func (a *Agent) checkRolloutReady(ctx context.Context) error {
	if err := a.checkReady(ctx); err != nil {
		return err
	}

	api := a.newNodeClient
	if a.doc.Role == v1alpha1.RoleControlPlane {
		api = a.newAdminClient
		manager := a.newEtcdManager()
		if reason := EtcdNotReadyReason(a.slotNames(), manager.Members(ctx, ""), manager.Healthy(ctx, etcd.ClientURL)); reason != "" {
			return newNotReadyError("%s", reason)
		}
	}

	return checkNodeReady(ctx, api(), a.instance.Name)
}

func (a *Agent) slotNames() []string {
	out := make([]string, 0, len(a.doc.Slots))
	for _, s := range a.doc.Slots {
		out = append(out, s.Name)
	}

	return out
}

// EtcdNotReadyReason says why etcd is not as it has to be before another member may go; empty if it is. Own says whether this
// machine's member answers with a quorum.
func EtcdNotReadyReason(
	slots []string,
	members []etcd.Member,
	own bool,
) string {
	if !own {
		return "this machine's etcd member has no quorum"
	}

	bySlot := map[string]etcd.Member{}
	for _, m := range members {
		bySlot[m.Slot] = m
	}

	for _, slot := range slots {
		m, there := bySlot[slot]
		switch {
		case !there:
			return "etcd has no member of slot " + slot
		case m.Learner:
			return "the etcd member of slot " + slot + " still catches up"
		case !m.Healthy:
			return "the etcd member of slot " + slot + " does not answer"
		}
	}

	return ""
}

func checkNodeReady(ctx context.Context, api kube.Client, name string) error {
	var n struct {
		Status struct {
			Conditions []struct{ Type, Status, Message string }
		}
	}
	if err := api.Get(ctx, "/api/v1/nodes/"+name, &n); err != nil {
		return newNotReadyError("%v", err)
	}

	for _, c := range n.Status.Conditions {
		if c.Type != "Ready" {
			continue
		}

		if c.Status == "True" {
			return nil
		}

		return newNotReadyError("node %s is not Ready: %s", name, c.Message)
	}

	return newNotReadyError("node %s does not say whether it is Ready", name)
}

// signalResources tells each resource that waits for this machine, and tries again until it is told, refuses, or patience ends.
func (a *Agent) signalResources(
	ctx context.Context,
	status types.ResourceSignalStatus,
	patience time.Duration,
) {
	a.Report.Running("signal", "")
	for id := range strings.SplitSeq(a.Boot.SignalResources, ",") {
		if err := a.signalUntilDeadline(ctx, id, status, a.Now().Add(patience)); err != nil {
			a.Report.Failed("signal", err) // the stack finds it out by its own timeout
			return
		}
	}

	a.Report.Done("signal")
}

func (a *Agent) signalUntilDeadline(
	ctx context.Context,
	id string,
	status types.ResourceSignalStatus,
	end time.Time,
) error {
	for pause := time.Second; ; pause = min(2*pause, 30*time.Second) {
		err := a.signalResource(ctx, id, status)
		if err == nil || !a.Now().Before(end) {
			return err
		}

		a.Report.Running("signal", err.Error())
		if err := a.Wait(ctx, pause); err != nil {
			return err
		}
	}
}

// signalResource returns why the signal has to be sent again; nil if it has arrived or nobody waits for it.
func (a *Agent) signalResource(ctx context.Context, id string, status types.ResourceSignalStatus) error {
	_, err := a.Signals.SignalResource(ctx, &cloudformation.SignalResourceInput{
		StackName:         &a.Boot.StackName,
		LogicalResourceId: &id,
		UniqueId:          &a.instance.ID,
		Status:            status,
	})

	switch {
	case err == nil:
		a.Log.Info("the stack is told", slog.String("resource", id), slog.String("status", string(status)))
	case IsSignalUnwanted(err):
		a.Log.Info(
			"the stack does not wait for this machine",
			slog.String("resource", id),
			slog.Any("error", err),
		)

	default:
		return fmt.Errorf("tell %s of stack %s: %w", id, a.Boot.StackName, err)
	}

	return nil
}

// IsSignalUnwanted says whether CloudFormation refuses a signal because nobody waits for it, as when an auto scaling group
// replaces a machine by itself, or because it has it already. A resource that does not exist may be about to.
func IsSignalUnwanted(err error) bool {
	var api smithy.APIError
	if !errors.As(err, &api) || api.ErrorCode() != "ValidationError" {
		return false
	}

	m := strings.ToLower(api.ErrorMessage())

	return strings.Contains(m, "be signaled") && !strings.Contains(m, "does not exist") ||
		strings.Contains(m, "already exists")
}
