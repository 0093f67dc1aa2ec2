// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"context"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/slipway-k8s/slipway/internal/machine/kube"
	"github.com/slipway-k8s/slipway/internal/machine/node"
)

const (
	// targetStatePath is the instance metadata with the target lifecycle state.
	targetStatePath = "autoscaling/target-lifecycle-state"
	// warmedPrefix is the beginning of the target lifecycle states of machines in a warm pool.
	warmedPrefix = "Warmed:"
	// launchBeatInterval is the time between two heartbeats while a machine prepares itself: a
	// third of the launch hook's timeout.
	launchBeatInterval = 100 * time.Second
	// launchCallInterval is the time between two tries to complete the launch hook.
	launchCallInterval = 20 * time.Second
	// launchCalls limits the tries in which Auto Scaling did not wait for the machine: it is in
	// service already then, or its group has no hook.
	launchCalls = 10
)

// launchPatience is how often the agent tries to complete the launch hook.
func launchPatience() hookPatience {
	return hookPatience{interval: launchCallInterval, calls: launchCalls}
}

// warmPool prepares a worker that may be in a warm pool, and tells Auto Scaling when it is
// prepared.
type warmPool struct{ agent *Agent }

func warmPoolOf(a *Agent) warmPool { return warmPool{a} }

// hasJoined reports whether the machine has joined the cluster since it booted: its certificates are on a tmpfs. Its kubelet
// may run pods. If it is in a warm pool, it returns there, and the agent must drain it: see terminationWatch.
func (w warmPool) hasJoined() bool {
	return w.agent.Root.Exists(kube.PKIDir + "/kubelet-client.crt")
}

// prepare prepares everything that needs no cluster. A machine in a warm pool also starts
// containerd and pulls the images of every node, so that it has them when it is taken from the
// pool. Auto Scaling gets heartbeats meanwhile. A machine that has joined already needs neither.
func (w warmPool) prepare(ctx context.Context) error {
	a := w.agent
	joined := w.hasJoined()
	if a.doc.HasWarmPool() && !joined {
		beating, stop := context.WithCancel(ctx)
		ended := make(chan struct{})
		go func() {
			defer close(ended)
			w.beatUntilPrepared(beating)
		}()

		defer func() {
			stop()
			<-ended
		}()
	}

	if err := a.downloadFiles(ctx); err != nil {
		return err
	}

	if err := a.prepareHost(ctx); err != nil || joined {
		return err
	}

	target, err := readMetadataValue(ctx, a.Metadata, targetStatePath)
	if err != nil || !strings.HasPrefix(target, warmedPrefix) {
		return err
	}

	return a.runCancellableStage(ctx, "images", func() error { return w.pullImages(ctx) })
}

// beatUntilPrepared sends heartbeats for the launch hook until ctx ends. The first one starts the
// hook's timeout anew: the machine has used a part of it to boot.
func (w warmPool) beatUntilPrepared(ctx context.Context) {
	hook := newLifecycleHook(w.agent, node.LaunchHook)
	for {
		if err := hook.beat(ctx); err != nil && ctx.Err() == nil {
			w.agent.Log.Warn("cannot send a heartbeat to Auto Scaling", slog.Any("error", err))
		}

		if w.agent.Wait(ctx, launchBeatInterval) != nil {
			return
		}
	}
}

// pullImages starts containerd and pulls the images of the document.
func (w warmPool) pullImages(ctx context.Context) error {
	a := w.agent
	files, err := hostFiles(a.kubeConfig(), requiredModules(a.doc.Network), a.sysctls())
	if err != nil {
		return err
	}

	changed, err := a.writeFiles(files)
	if err != nil {
		return err
	}

	if err := a.reloadSystemd(ctx, changed); err != nil {
		return err
	}

	if err := a.ensureUnitStarted(ctx, node.ComponentContainerd, false); err != nil {
		return err
	}

	if err := waitForContainerd(ctx, a); err != nil {
		return err
	}

	for _, name := range slices.Sorted(maps.Keys(a.doc.Images)) {
		ref := a.doc.Images[name]
		if err := a.pullImageRepeatedly(ctx, ref); err != nil {
			return fmt.Errorf("pull image %s: %w", ref, err)
		}
	}

	return nil
}

// waitForContainerd waits up to 30 s until containerd listens.
func waitForContainerd(ctx context.Context, a *Agent) error {
	for range 60 {
		if a.Root.Exists(containerdSocket) {
			return nil
		}

		if err := a.Wait(ctx, 500*time.Millisecond); err != nil {
			return err
		}
	}

	return nil // the pull fails with the reason
}

// check returns a notReadyError while the instance is in a warm pool. It is prepared, but must not
// join the cluster before its Auto Scaling group puts it in service. Auto Scaling may stop it from
// now on, or put it in service. A machine that has joined continues, so that a restart of its agent does not keep its
// pods from being evicted before it returns to the pool.
func (w warmPool) check(ctx context.Context) error {
	if w.hasJoined() {
		return nil
	}

	target, err := readMetadataValue(ctx, w.agent.Metadata, targetStatePath)
	if err != nil || target == "" { // empty: the instance is not in an Auto Scaling group
		return err
	}

	launchErr := w.continueLaunch(ctx, target)
	if launchErr != nil {
		w.agent.Log.Warn("cannot complete the launch of this machine", slog.Any("error", launchErr))
	}

	switch {
	case !strings.HasPrefix(target, warmedPrefix):
		return nil
	case launchErr != nil:
		return newNotReadyError("in the warm pool, to be %s: %s", target, launchErr)
	}

	return newNotReadyError("in the warm pool, to be %s", target)
}

// continueLaunch completes the launch hook of a machine that is prepared. It can be called at any
// time: it makes few calls to Auto Scaling, and none for a group without a warm pool.
func (w warmPool) continueLaunch(ctx context.Context, target string) error {
	a := w.agent
	warm := strings.HasPrefix(target, warmedPrefix)
	if !warm && (target != "InService" || !a.doc.HasWarmPool()) {
		return nil
	}

	_, err := a.launch.complete(ctx, newLifecycleHook(a, node.LaunchHook), hookTry{
		target:   target,
		now:      a.Now(),
		patience: launchPatience(),
	})

	return err
}
