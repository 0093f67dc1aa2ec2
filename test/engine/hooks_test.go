// SPDX-License-Identifier: Apache-2.0

package engine_test

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	sdk "github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/autoscaling"
	astypes "github.com/aws/aws-sdk-go-v2/service/autoscaling/types"
	"github.com/google/go-cmp/cmp"

	"github.com/slipway-k8s/slipway/api/v1alpha1"
	"github.com/slipway-k8s/slipway/internal/infra/aws"
	"github.com/slipway-k8s/slipway/internal/infra/awskind"
	"github.com/slipway-k8s/slipway/internal/infra/model"
	"github.com/slipway-k8s/slipway/internal/manifest"
	"github.com/slipway-k8s/slipway/internal/region/regiontest"
)

// hookReader reads the lifecycle hooks of a cluster.
type hookReader struct {
	t *testing.T
	r regiontest.Region
}

// read returns the heartbeat timeouts of the hooks by id, and the number of calls that list hooks.
func (h hookReader) read(ctx context.Context) (map[string]int, int) {
	h.t.Helper()
	e := newEngine(h.r.AWSConfig(), "demo")
	found, err := e.cloud.Read(ctx)
	if err != nil {
		h.t.Fatal(err)
	}
	out := map[string]int{}
	for _, a := range found {
		if hook, ok := a.Resource.(awskind.LifecycleHook); ok {
			out[a.ID] = hook.HeartbeatTimeout
		}
	}
	return out, e.calls.Calls()["Auto Scaling:DescribeLifecycleHooks"]
}

// wantHooks compares what AWS lists and what is recorded in tags with want.
func (h hookReader) wantHooks(what string, want map[string]int) {
	h.t.Helper()
	recorded, calls := h.read(aws.WithRecordedHooks(h.t.Context()))
	listed, _ := h.read(h.t.Context())
	if diff := cmp.Diff(want, recorded); diff != "" {
		h.t.Errorf("%s: the recorded hooks differ (-want +got):\n%s", what, diff)
	}
	if diff := cmp.Diff(want, listed); diff != "" {
		h.t.Errorf("%s: the listed hooks differ (-want +got):\n%s", what, diff)
	}
	if calls != 0 {
		h.t.Errorf("%s: reading recorded hooks took %d calls that list hooks", what, calls)
	}
}

// TestRecordedHooks checks that the tags in which Slipway records the lifecycle hooks of groups follow every change that
// Slipway makes, that a group without the tag is read as before, and that only a read without them sees changes by others.
func TestRecordedHooks(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		defer time.Sleep(time.Minute)
		r := regiontest.StartWith(t, regiontest.Options{InProcess: true, VisibilityDelay: regiontest.LikeAWS})
		h := hookReader{t: t, r: r}
		g := mustBuildGraph(t, newHASet(t, "demo"))
		run := func() {
			t.Helper()
			if err := newEngine(r.AWSConfig(), "demo").run(t.Context(), g); err != nil {
				t.Fatal(err)
			}
		}
		const group, id = "workers.demo", "workers.demo:" + model.TerminationHook
		run()
		h.wantHooks("created with the group", map[string]int{id: 60})

		hook := g.Node("lifecycle-hook/workers")
		changed := hook.Resource.(awskind.LifecycleHook)
		changed.HeartbeatTimeout = 90
		hook.Resource = changed
		run()
		h.wantHooks("changed", map[string]int{id: 90})

		scaling := autoscaling.NewFromConfig(r.AWSConfig())
		_, err := scaling.DeleteLifecycleHook(t.Context(), &autoscaling.DeleteLifecycleHookInput{
			AutoScalingGroupName: sdk.String(group), LifecycleHookName: sdk.String(model.TerminationHook),
		})
		if err != nil {
			t.Fatal(err)
		}
		if recorded, _ := h.read(aws.WithRecordedHooks(t.Context())); recorded[id] != 90 {
			t.Errorf("recorded: %v", recorded)
		}
		if listed, _ := h.read(t.Context()); len(listed) != 0 {
			t.Errorf("listed: %v", listed)
		}
		run()
		h.wantHooks("restored", map[string]int{id: 90})

		_, err = scaling.DeleteTags(t.Context(), &autoscaling.DeleteTagsInput{Tags: []astypes.Tag{{
			Key: sdk.String(awskind.TagHooks), ResourceId: sdk.String(group), ResourceType: sdk.String("auto-scaling-group"),
		}}})
		if err != nil {
			t.Fatal(err)
		}
		recorded, calls := h.read(aws.WithRecordedHooks(t.Context()))
		if recorded[id] != 90 || calls != 1 {
			t.Errorf("without the tag: %v with %d calls that list hooks, want 1", recorded, calls)
		}
	})
}

// withWarmPool gives the workers of a set a warm pool.
func withWarmPool(set manifest.Set) manifest.Set {
	for i, g := range set.Groups {
		if g.Spec.Role == v1alpha1.RoleWorker {
			set.Groups[i].Spec.WarmPool = v1alpha1.WarmPool{MinSize: 1, MaxGroupPreparedCapacity: 4, PoolState: "Stopped"}
		}
	}
	return set
}

// pooledMachines returns the lifecycle states of the machines in the workers' warm pool by instance.
func (h hookReader) pooledMachines() map[string]astypes.LifecycleState {
	h.t.Helper()
	pool, err := autoscaling.NewFromConfig(h.r.AWSConfig()).DescribeWarmPool(h.t.Context(), &autoscaling.DescribeWarmPoolInput{
		AutoScalingGroupName: sdk.String("workers.demo"),
	})
	if err != nil {
		h.t.Fatal(err)
	}
	out := map[string]astypes.LifecycleState{}
	for _, i := range pool.Instances {
		out[*i.InstanceId] = i.LifecycleState
	}
	if len(out) == 0 {
		h.t.Error("the pool is empty")
	}
	return out
}

// apply applies a set.
func (h hookReader) apply(set manifest.Set) {
	h.t.Helper()
	if err := newEngine(h.r.AWSConfig(), "demo").run(h.t.Context(), mustBuildGraph(h.t, set)); err != nil {
		h.t.Fatal(err)
	}
}

// TestLaunchHookComesBeforeThePool checks that the machines of a warm pool wait for their agents, also if an existing group
// gets the pool; that those whose agent never answers, such as an earlier one, are stopped as without the hook; and that the
// hook ends with the pool.
func TestLaunchHookComesBeforeThePool(t *testing.T) {
	for _, existing := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			defer time.Sleep(time.Minute)
			h := hookReader{t: t, r: regiontest.StartWith(t, regiontest.Options{InProcess: true, VisibilityDelay: regiontest.LikeAWS})}
			without, with := newHASet(t, "demo"), withWarmPool(newHASet(t, "demo"))
			if existing {
				h.apply(without)
			}
			h.apply(with)

			time.Sleep(2 * time.Minute)
			for id, state := range h.pooledMachines() {
				if state != astypes.LifecycleStateWarmedPendingWait {
					t.Errorf("existing group %t: %s is %s", existing, id, state)
				}
			}
			time.Sleep(10 * time.Minute)
			for id, state := range h.pooledMachines() {
				if state != astypes.LifecycleStateWarmedStopped {
					t.Errorf("existing group %t: %s, whose agent does not answer, is %s", existing, id, state)
				}
			}

			drain, launch := "workers.demo:"+model.TerminationHook, "workers.demo:"+model.LaunchHook
			h.wantHooks("with a pool", map[string]int{drain: 60, launch: 300})
			h.apply(with)
			h.apply(without)
			h.wantHooks("without a pool", map[string]int{drain: 60})
		})
	}
}

// TestEarlierPoolGetsItsHook checks that a pool of an earlier version, which has no launch hook, gets it and keeps its
// machines.
func TestEarlierPoolGetsItsHook(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		defer time.Sleep(time.Minute)
		h := hookReader{t: t, r: regiontest.StartWith(t, regiontest.Options{InProcess: true, VisibilityDelay: regiontest.LikeAWS})}
		set := withWarmPool(newHASet(t, "demo"))
		h.apply(set)
		if _, err := autoscaling.NewFromConfig(h.r.AWSConfig()).DeleteLifecycleHook(t.Context(), &autoscaling.DeleteLifecycleHookInput{
			AutoScalingGroupName: sdk.String("workers.demo"), LifecycleHookName: sdk.String(model.LaunchHook),
		}); err != nil {
			t.Fatal(err)
		}
		time.Sleep(10 * time.Minute)
		before := h.pooledMachines()

		h.apply(set)
		time.Sleep(10 * time.Minute)
		if diff := cmp.Diff(before, h.pooledMachines()); diff != "" {
			t.Errorf("the pool changed (-before +after):\n%s", diff)
		}
		h.wantHooks("with a pool", map[string]int{"workers.demo:" + model.TerminationHook: 60, "workers.demo:" + model.LaunchHook: 300})
	})
}
