// SPDX-License-Identifier: Apache-2.0

package driver

import (
	"context"
	"errors"
	"testing"

	"github.com/aws/aws-sdk-go-v2/service/autoscaling"

	"github.com/slipway-k8s/slipway/internal/infra/awskind"
	"github.com/slipway-k8s/slipway/internal/infra/graph"
)

// failingHooks fails the first call.
type failingHooks struct {
	hookAPI // other calls are not made
	calls   int
}

func (f *failingHooks) PutLifecycleHook(context.Context, *autoscaling.PutLifecycleHookInput, ...func(*autoscaling.Options)) (*autoscaling.PutLifecycleHookOutput, error) {
	if f.calls++; f.calls == 1 {
		return nil, errors.New("throttled")
	}
	return &autoscaling.PutLifecycleHookOutput{}, nil
}

func (f *failingHooks) CreateOrUpdateTags(context.Context, *autoscaling.CreateOrUpdateTagsInput, ...func(*autoscaling.Options)) (*autoscaling.CreateOrUpdateTagsOutput, error) {
	return &autoscaling.CreateOrUpdateTagsOutput{}, nil
}

// TestHookIsPutAgain checks that a second try puts the hook that the first one could not.
func TestHookIsPutAgain(t *testing.T) {
	api := &failingHooks{}
	h := &hookDriver{api: api, known: map[string][]awskind.LifecycleHook{}}
	hook := task[awskind.LifecycleHook]{want: awskind.LifecycleHook{Group: graph.UnmanagedRef[awskind.AutoScalingGroup]("workers.demo"), Name: "slipway-launch"}}
	if _, err := h.put(t.Context(), hook); err == nil {
		t.Fatal("the first try succeeded")
	}
	for range 2 {
		if _, err := h.put(t.Context(), hook); err != nil {
			t.Fatal(err)
		}
	}
	if api.calls != 2 {
		t.Errorf("%d calls, want 2: the second one puts the hook, the third finds it", api.calls)
	}
}
