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
	"github.com/slipway-k8s/slipway/internal/machine/join"
	"github.com/slipway-k8s/slipway/internal/machine/kube"
	"github.com/slipway-k8s/slipway/internal/machine/node"
)

const (
	// signalMarkerFile is on the tmpfs: a machine signals once per boot. A restarted agent of an
	// old machine must not be mistaken for the new machine that a rollout waits for.
	signalMarkerFile = "/run/slipway/signalled"
	// signalRetryLimit is how long the agent retries for a resource that the stack does not have
	// yet: CloudFormation creates the next resource some time after a machine is healthy.
	signalRetryLimit = 30 * time.Minute
	// failureRetryLimit is how long a worker looks for a control-plane machine that passes its failure on.
	failureRetryLimit = time.Minute
)

// Signaller is the CloudFormation API of the agent.
type Signaller interface {
	SignalResource(
		context.Context,
		*cloudformation.SignalResourceInput,
		...func(*cloudformation.Options),
	) (*cloudformation.SignalResourceOutput, error)
}

// permanentError marks an error that retrying cannot fix.
type permanentError struct{ error }

// Unwrap returns the cause.
func (e permanentError) Unwrap() error { return e.error }

// isPermanent reports whether a machine with this error can never become healthy because its
// configuration is wrong.
func isPermanent(err error) bool {
	if isWrongFile(err) {
		return true
	}

	_, is := errors.AsType[permanentError](err)
	return is
}

// signalSuccess waits until this machine is healthy and then signals success to the CloudFormation
// stack that created it. It does nothing if no stack created the machine, or if it has signalled
// since boot.
func (a *Agent) signalSuccess(ctx context.Context) error {
	if a.Boot.StackName == "" || a.Root.Exists(signalMarkerFile) {
		return nil
	}

	check := func() error { return a.checkRolloutReady(ctx) }
	if err := a.retryUntilReady(ctx, "healthy", check); err != nil {
		return err
	}

	a.signalResources(ctx, types.ResourceSignalStatusSuccess, signalRetryLimit)

	return recordSignal(a)
}

func recordSignal(a *Agent) error {
	_, err := a.Root.Write(File{Path: signalMarkerFile, Body: []byte(a.Boot.StackName), Mode: 0o600})
	return err
}

// signalFailure signals failure to the stack if err is permanent, so that the stack does not wait
// for its timeout. A signal has no text; the cause is on the console.
func (a *Agent) signalFailure(ctx context.Context, err error) {
	if a.Boot.StackName != "" && a.instance.ID != "" && !a.failureSignalled && isPermanent(err) &&
		!a.Root.Exists(signalMarkerFile) {
		// Record it before sending, so that it is sent at most once: during a rollback, a second
		// failure signal would be counted for the next machine.
		a.failureSignalled = true
		if err := recordSignal(a); err != nil {
			a.Log.Warn("cannot record that the stack was signalled", slog.Any("error", err))
		}

		patience := time.Duration(0)
		if (stackSignals{a}).isWorker() {
			patience = failureRetryLimit
		}

		a.signalResources(ctx, types.ResourceSignalStatusFailure, patience)
	}
}

func (a stackSignals) isWorker() bool { return a.Boot.Role == node.RoleTagWorker }

// stackSignal is a signal of one machine to one resource of its stack.
type stackSignal struct {
	resource string // logical id
	machine  string // instance id
	status   types.ResourceSignalStatus
}

// sendSignal sends a signal of this machine. The role of a worker has no right to the stack, so the control plane passes
// the worker's signals on.
func (a stackSignals) sendSignal(ctx context.Context, id string, status types.ResourceSignalStatus) error {
	if a.isWorker() {
		return a.newJoinClient().SendSignal(ctx, join.Signal(status))
	}

	return a.signalResource(ctx, stackSignal{resource: id, machine: a.instance.ID, status: status})
}

// checkRolloutReady returns a notReadyError until a rollout may continue after this machine:
// checkReady succeeds, the Node is Ready, and every control-plane slot has a healthy voting etcd
// member.
func (a *Agent) checkRolloutReady(ctx context.Context) error {
	if err := a.checkReady(ctx); err != nil {
		return err
	}

	api := a.newNodeClient
	if a.doc.Role == v1alpha1.RoleControlPlane {
		api = a.newAdminClient
		manager := a.newEtcdManager()
		members := manager.Members(ctx, "")
		own := manager.Healthy(ctx, etcd.ClientURL) // asked last, so that it is not older than the list
		if reason := EtcdNotReadyReason(slotNames(a), members, own); reason != "" {
			return newNotReadyError("%s", reason)
		}
	}

	return checkNodeReady(ctx, api(), a.instance.Name)
}

func slotNames(a *Agent) []string {
	out := make([]string, 0, len(a.doc.Slots))
	for _, s := range a.doc.Slots {
		out = append(out, s.Name)
	}

	return out
}

// EtcdNotReadyReason returns why no etcd member may be replaced now, or "" if one may be. The
// argument own is whether this machine's member answers with a quorum.
func EtcdNotReadyReason(slots []string, members []etcd.Member, own bool) string {
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
			return "the etcd member of slot " + slot + " has not caught up yet"
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

	return newNotReadyError("node %s has no Ready condition", name)
}

// signalResources signals every resource in the boot configuration and retries each for at most
// patience.
func (a *Agent) signalResources(
	ctx context.Context,
	status types.ResourceSignalStatus,
	patience time.Duration,
) {
	a.Report.Running("signal", "")
	for id := range strings.SplitSeq(a.Boot.SignalResources, ",") {
		if err := a.signalUntilDeadline(ctx, id, status, a.Now().Add(patience)); err != nil {
			a.Report.Failed("signal", err) // the stack runs into its own timeout
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
		err := stackSignals{a}.sendSignal(ctx, id, status)
		if err == nil || !a.Now().Before(end) {
			return err
		}

		a.Report.Running("signal", err.Error())
		if err := a.Wait(ctx, pause); err != nil {
			return err
		}
	}
}

// signalResource sends one signal. It returns an error if the signal must be retried, and nil if it
// was delivered or is unwanted.
func (a *Agent) signalResource(ctx context.Context, s stackSignal) error {
	_, err := a.Signals.SignalResource(ctx, &cloudformation.SignalResourceInput{
		StackName:         &a.Boot.StackName,
		LogicalResourceId: &s.resource,
		UniqueId:          &s.machine,
		Status:            s.status,
	})

	switch {
	case err == nil:
		a.Log.Info("signalled the stack",
			slog.String("resource", s.resource), slog.String("machine", s.machine), slog.String("status", string(s.status)))
	case IsSignalUnwanted(err):
		a.Log.Info("the stack does not wait for a signal of this machine",
			slog.String("resource", s.resource), slog.String("machine", s.machine), slog.Any("error", err))

	default:
		return fmt.Errorf("signal resource %s of stack %s: %w", s.resource, a.Boot.StackName, err)
	}

	return nil
}

// IsSignalUnwanted reports whether CloudFormation rejected a signal because the resource does not
// wait for one, as when an Auto Scaling group replaces an instance by itself, or because the signal
// was already delivered. CloudFormation has one code (ValidationError) for all rejections, so the
// message decides. A missing resource is not unwanted: it may be created soon.
func IsSignalUnwanted(err error) bool {
	var api smithy.APIError
	if !errors.As(err, &api) || api.ErrorCode() != "ValidationError" {
		return false
	}

	m := strings.ToLower(api.ErrorMessage())

	return strings.Contains(m, "be signaled") && !strings.Contains(m, "does not exist") ||
		strings.Contains(m, "already exists")
}
