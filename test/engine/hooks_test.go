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

	"github.com/slipway-k8s/slipway/internal/infra/aws"
	"github.com/slipway-k8s/slipway/internal/infra/awskind"
	"github.com/slipway-k8s/slipway/internal/infra/model"
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
		r := regiontest.StartWith(t, regiontest.Options{InProcess: true})
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
