// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"strings"
	"time"

	"github.com/aws/aws-sdk-go-v2/feature/ec2/imds"
	smithyhttp "github.com/aws/smithy-go/transport/http"

	"github.com/slipway-k8s/slipway/api/v1alpha1"
	"github.com/slipway-k8s/slipway/internal/machine/etcd"
	"github.com/slipway-k8s/slipway/internal/machine/node"
)

const (
	// terminationInterval is the time between two looks at the instance metadata. It costs one request to the
	// hypervisor. AWS recommends 5 s for spot notices.
	terminationInterval = 2 * time.Second
	// terminationTask is the name of this task in reports.
	terminationTask = "termination"
	// drainInterval is the time between two tries to evict the pods that are left.
	drainInterval = time.Second
	// drainLimit is how long a terminating machine waits for its pods. Then it ends with the pods that are left.
	drainLimit = 15 * time.Minute
	// unreachableLimit is how long a terminating machine waits for an API that does not answer: nothing can be
	// evicted then.
	unreachableLimit = 2 * time.Minute
	// drainCallInterval is the time between two tries to complete the hook.
	drainCallInterval = 5 * time.Second
	// drainCalls limits the tries in which Auto Scaling did not wait for the machine. They take longer than the hook's
	// timeout.
	drainCalls = 15
	// beatInterval is the time between two heartbeats: a third of the hook's timeout.
	beatInterval = 20 * time.Second
	// beatTimeout is how long a heartbeat may take, so that a control plane that does not answer leaves time for the rest
	// of a look. The next heartbeat comes before the hook's timeout.
	beatTimeout = 4 * time.Second
	// lookTimeout is how long a look may take.
	lookTimeout = 20 * time.Second
	// spotReserve is left of a spot notice for the kubelet to stop the pods that stay.
	spotReserve = 15 * time.Second
	// balancerDelay is how long controllers have to take a node out of the load balancers of Services, if there are
	// any. AWS deregisters a target from a load balancer within some seconds.
	balancerDelay = 30 * time.Second
)

// drainPatience is how often the agent tries to complete the termination hook.
func drainPatience() hookPatience {
	return hookPatience{interval: drainCallInterval, calls: drainCalls}
}

// terminationMetadata is what instance metadata says about the end of the instance. The fields are empty without a
// notice.
type terminationMetadata struct {
	// target is the target lifecycle state in the Auto Scaling group.
	target string
	// spotAction is what happens to the spot instance: terminate, stop or hibernate.
	spotAction string
	// spotTime is when that happens.
	spotTime time.Time
	// rebalance is set after a rebalance recommendation.
	rebalance bool
}

// terminationNotice says that the machine will end.
type terminationNotice struct {
	// reason for people.
	reason string
	// deadline is when AWS ends the machine in any case; zero if Auto Scaling waits for it.
	deadline time.Time
	// hook is the target lifecycle state if Auto Scaling waits for the machine; empty: it does not.
	hook string
	// pool is set if the machine returns to its warm pool.
	pool bool
}

// noticeOf returns the notice in the metadata, or false if the machine continues. A rebalance recommendation is none: a
// group with capacityRebalance launches a replacement and terminates the machine through the hook, and a machine of
// other groups usually keeps running.
func noticeOf(m terminationMetadata) (terminationNotice, bool) {
	var n terminationNotice
	if m.spotAction != "" {
		n.reason = "AWS interrupts the spot instance at " + m.spotTime.UTC().Format(time.RFC3339)
		n.deadline = m.spotTime.Add(-spotReserve)
	}

	reason := ""
	switch {
	case m.target == "Terminated", m.target == warmedPrefix+"Terminated":
		reason = "Auto Scaling terminates the machine"
	case strings.HasPrefix(m.target, warmedPrefix):
		reason = "Auto Scaling returns the machine to its warm pool"
		n.pool = true
	}

	if reason != "" {
		n.hook = m.target
	}

	n.reason = cmp.Or(n.reason, reason)

	return n, n.reason != ""
}

// terminationWatch drains the machine before AWS ends it.
type terminationWatch struct {
	agent *Agent
	hook  lifecycleHook
	drain nodeDrain
	// yield moves the etcd leadership away; nil on workers.
	yield func(context.Context) error

	started     time.Time // of the drain; zero: none
	answeredAt  time.Time // when the API answered last during the drain
	beatAt      time.Time // last heartbeat
	leaveAt     time.Time // earliest end, because of load balancers
	cordoned    bool
	drained     bool
	progress    hookProgress
	ending      bool       // as the metadata said last
	failures    failureLog // of looks at a machine that does not end
	told        string
	recommended bool
	resumed     bool // the node is known to be schedulable, as far as a drain of the agent goes
}

func newTerminationWatch(a *Agent) *terminationWatch {
	w := &terminationWatch{
		agent:    a,
		hook:     newLifecycleHook(a, node.TerminationHook),
		drain:    nodeDrain{api: a.newNodeClient(), node: a.instance.Name, now: a.Now},
		failures: failureLog{agent: a, task: terminationTask},
	}
	if a.doc.Role == v1alpha1.RoleControlPlane {
		w.yield = func(ctx context.Context) error {
			_, err := a.newEtcdManager().YieldLeadership(ctx, a.Boot.Slot, etcd.ClientURL)
			return err
		}
	}

	return w
}

// run watches the metadata until ctx ends.
func (w *terminationWatch) run(ctx context.Context) error {
	for {
		pause := terminationInterval
		ends, err := w.look(ctx)
		if ctx.Err() != nil {
			return ctx.Err()
		}

		if w.note(ends, err); err == nil && ends && !w.progress.isOver(w.progress.target, drainPatience()) {
			pause = drainInterval
		}

		if err := w.agent.Wait(ctx, pause); err != nil {
			return err
		}
	}
}

// note reports how a look went. What fails on a machine that does not end is a failure of this task, and not the end of the
// machine.
func (w *terminationWatch) note(ends bool, err error) {
	switch {
	case err == nil:
		w.failures.note(nil)
	case ends:
		w.tell("termination: " + err.Error())
	default:
		w.failures.note(err)
	}
}

// look reads the metadata, and does one step of the drain if the machine ends.
func (w *terminationWatch) look(ctx context.Context) (bool, error) {
	ctx, cancel := context.WithTimeout(ctx, lookTimeout)
	defer cancel()
	m, err := w.readMetadata(ctx)
	if err != nil {
		return w.ending, err
	}

	if m.rebalance && !w.recommended {
		w.recommended = true
		w.agent.Log.Info("AWS recommends to replace this spot instance, which is likely to be interrupted")
		w.drain.record(ctx, "RebalanceRecommendation", "AWS recommends to replace this spot instance")
	}

	n, ends := noticeOf(m)
	w.ending = ends
	if n.hook == "" { // the machine went into service before Auto Scaling waited for it
		if err := warmPoolOf(w.agent).continueLaunch(ctx, m.target); err != nil {
			w.agent.Log.Warn("cannot complete the launch of this machine", slog.Any("error", err))
		}
	}

	switch {
	case !ends:
		return false, w.resume(ctx)
	case w.progress.isOver(n.hook, drainPatience()):
		return true, nil
	}

	w.resumed = false

	return true, w.step(ctx, n)
}

// resume makes the node of a machine that has left its warm pool schedulable again. The pool keeps the machine stopped, so
// usually another process has drained the node, and the control plane has deleted it meanwhile.
func (w *terminationWatch) resume(ctx context.Context) error {
	if w.resumed || !w.agent.doc.HasWarmPool() {
		return nil
	}

	_, keepsLabel := w.agent.doc.NodeLabels[excludeLabel]
	if err := w.drain.uncordon(ctx, keepsLabel); err != nil {
		return fmt.Errorf("make this node schedulable again: %w", err)
	}

	*w = terminationWatch{
		agent:       w.agent,
		hook:        w.hook,
		drain:       w.drain,
		yield:       w.yield,
		recommended: w.recommended,
		resumed:     true,
		failures:    failureLog{agent: w.agent, task: terminationTask},
	}

	return nil
}

// step continues the end of the machine: it can be repeated, and continued by another process of the agent.
func (w *terminationWatch) step(ctx context.Context, n terminationNotice) error {
	now := w.agent.Now()
	if w.started.IsZero() {
		w.started = now
		w.answeredAt = now
		w.agent.Report.Running("terminate", n.reason)
		w.agent.Log.Info("draining this node", slog.String("reason", n.reason))
		w.yieldLeadership(ctx)
	}

	w.beat(ctx, n)
	if !w.drained {
		waiting, err := w.drainOnce(ctx, n)
		if err == nil {
			w.answeredAt = now
		} else {
			waiting = err.Error()
		}

		if waiting != "" && !w.isOver(n) {
			w.tell(waiting)
			return nil
		}

		w.finishDrain(ctx, waiting)
	}

	if n.hook == "" {
		return nil
	}

	return w.completeHook(ctx, n)
}

// completeHook lets Auto Scaling continue with the machine. It tries again while Auto Scaling does not wait yet.
func (w *terminationWatch) completeHook(ctx context.Context, n terminationNotice) error {
	first, err := w.progress.complete(ctx, w.hook, hookTry{
		target:   n.hook,
		now:      w.agent.Now(),
		patience: drainPatience(),
	})
	if err != nil || !first {
		return err
	}

	w.agent.Report.Done("terminate")
	if n.pool {
		w.agent.Report.Running("warm", "in the warm pool, to be "+n.hook)
	}

	return nil
}

// drainOnce cordons the node and tries to evict its pods. It returns what the drain waits for; empty: nothing.
func (w *terminationWatch) drainOnce(ctx context.Context, n terminationNotice) (string, error) {
	if !w.cordoned {
		if err := w.drain.cordon(ctx, n.reason); err != nil {
			return "", err
		}

		w.cordoned = true
		w.leaveAt = w.started
		if balanced, err := w.drain.hasLoadBalancers(ctx); err != nil || balanced {
			w.leaveAt = w.started.Add(balancerDelay)
		}
	}

	waiting, err := w.drain.evictOnce(ctx)
	if err == nil && waiting == "" && w.agent.Now().Before(w.leaveAt) {
		waiting = "load balancers of Services take the node out"
	}

	return waiting, err
}

// finishDrain records the end of a drain. The pods in waiting are left.
func (w *terminationWatch) finishDrain(ctx context.Context, waiting string) {
	w.drained = true
	took := w.agent.Now().Sub(w.started).Round(time.Second)
	message := fmt.Sprintf("drained in %s", took)
	if waiting != "" {
		message = fmt.Sprintf("not drained after %s: %s", took, waiting)
	}

	w.drain.record(ctx, "Terminating", message)
	w.agent.Log.Info("the machine can end", slog.String("drain", message))
	w.yieldLeadership(ctx) // the member may have been elected again
}

// yieldLeadership moves the etcd leadership away. It comes first: AWS does not wait for a control-plane machine.
func (w *terminationWatch) yieldLeadership(ctx context.Context) {
	if w.yield == nil {
		return
	}

	if err := w.yield(ctx); err != nil {
		w.agent.Log.Warn("cannot move the etcd leadership away", slog.Any("error", err))
	}
}

// isOver reports whether the drain must end although pods are left.
func (w *terminationWatch) isOver(n terminationNotice) bool {
	now := w.agent.Now()

	return now.Sub(w.started) >= drainLimit ||
		now.Sub(w.answeredAt) >= unreachableLimit ||
		!n.deadline.IsZero() && !now.Before(n.deadline)
}

// beat prolongs the hook if a heartbeat is due.
func (w *terminationWatch) beat(ctx context.Context, n terminationNotice) {
	now := w.agent.Now()
	if n.hook == "" || now.Sub(w.started) < beatInterval || now.Sub(w.beatAt) < beatInterval {
		return
	}

	w.beatAt = now
	ctx, cancel := context.WithTimeout(ctx, beatTimeout)
	defer cancel()
	if err := w.hook.beat(ctx); err != nil {
		w.agent.Log.Warn("cannot send a heartbeat to Auto Scaling", slog.Any("error", err))
	}
}

// tell reports what the machine waits for, once.
func (w *terminationWatch) tell(what string) {
	if what != w.told {
		w.told = what
		w.agent.Report.Running("terminate", what)
		w.agent.Log.Info("this machine ends", slog.String("waits", what))
	}
}

// readMetadata reads what instance metadata says about the end of the instance.
func (w *terminationWatch) readMetadata(ctx context.Context) (terminationMetadata, error) {
	var m terminationMetadata
	var err error
	if m.target, err = readMetadataValue(ctx, w.agent.Metadata, targetStatePath); err != nil {
		return m, err
	}

	if w.agent.instance.Lifecycle != "spot" {
		return m, nil
	}

	text, err := readMetadataValue(ctx, w.agent.Metadata, "spot/instance-action")
	if err != nil {
		return m, err
	}

	if text != "" {
		var action struct {
			Action string    `json:"action"`
			Time   time.Time `json:"time"`
		}
		if err := json.Unmarshal([]byte(text), &action); err != nil {
			return m, fmt.Errorf("parse instance metadata spot/instance-action: %w", err)
		}

		m.spotAction = action.Action
		m.spotTime = action.Time
	}

	text, err = readMetadataValue(ctx, w.agent.Metadata, "events/recommendations/rebalance")
	m.rebalance = text != ""

	return m, err
}

// readMetadataValue returns a value of instance metadata; empty if there is none.
func readMetadataValue(ctx context.Context, metadata Metadata, path string) (string, error) {
	out, err := metadata.GetMetadata(ctx, &imds.GetMetadataInput{Path: path})
	if e, ok := errors.AsType[*smithyhttp.ResponseError](err); ok && e.HTTPStatusCode() == http.StatusNotFound {
		return "", nil
	}

	if err != nil {
		return "", fmt.Errorf("read instance metadata %s: %w", path, err)
	}

	defer func() { _ = out.Content.Close() }()
	text, err := io.ReadAll(out.Content)
	if err != nil {
		return "", fmt.Errorf("read instance metadata %s: %w", path, err)
	}

	return strings.TrimSpace(string(text)), nil
}
