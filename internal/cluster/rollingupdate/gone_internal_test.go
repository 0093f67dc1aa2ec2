// SPDX-License-Identifier: Apache-2.0

package rollingupdate

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	clienttesting "k8s.io/client-go/testing"

	"github.com/slipway-k8s/slipway/internal/cluster/rollout"
)

// TestGoneMachines: a machine that somebody else ends right before the update does is no error.
func TestGoneMachines(t *testing.T) {
	for _, change := range []string{"terminate i-2", "detach i-2"} {
		f := newFakeCluster(t, 1, 3)
		ended := false
		f.failAt = func(what string) error {
			if what != change || ended {
				return nil
			}

			ended = true
			at := slices.IndexFunc(f.machines, func(m rollout.Machine) bool { return m.ID == "i-2" })
			was := f.machines[at]
			f.machines = slices.Delete(f.machines, at, at+1)
			f.replace(was)

			return fmt.Errorf("%s: %w", what, errGone)
		}
		req := Request{Name: "demo"}
		if strings.HasPrefix(change, "detach") {
			req.MaxSurge = "1"
		}

		result, err := run(t.Context(), f.updater(req))
		if err != nil || !ended || result.Replaced != 3 || slices.Contains(f.terminated, "i-2") {
			t.Errorf("%s: %+v, %v, terminated %v", change, result, err, f.terminated)
		}
	}
}

// TestGoneNode: neither a node that was deleted before its drain nor an API that does not answer for a moment ends an update.
func TestGoneNode(t *testing.T) {
	refused := []error{
		apierrors.NewNotFound(schema.GroupResource{Resource: "nodes"}, "node-i-2"),
		errors.New("connection refused"),
		apierrors.NewServiceUnavailable("the API server starts"),
	}
	f := newFakeCluster(t, 1, 1)
	f.client.PrependReactor("patch", "nodes", func(a clienttesting.Action) (bool, runtime.Object, error) {
		isCordon := strings.Contains(string(a.(clienttesting.PatchAction).GetPatch()), "unschedulable")
		if len(refused) == 0 || !isCordon {
			return false, nil, nil
		}

		err := refused[0]
		refused = refused[1:]

		return true, nil, err
	})
	if _, err := run(t.Context(), f.updater(Request{Name: "demo"})); err != nil || len(f.terminated) != 2 {
		t.Errorf("%v, terminated %v", err, f.terminated)
	}

	f = newFakeCluster(t, 1, 1)
	f.client.PrependReactor("patch", "nodes", func(clienttesting.Action) (bool, runtime.Object, error) {
		return true, nil, apierrors.NewForbidden(corev1.Resource("nodes"), "node", errors.New("no"))
	})
	if _, err := run(t.Context(), f.updater(Request{Name: "demo"})); !apierrors.IsForbidden(err) {
		t.Errorf("a lack of rights: %v", err)
	}

	f = newFakeCluster(t, 1, 1)
	f.client.PrependReactor("patch", "nodes", func(clienttesting.Action) (bool, runtime.Object, error) {
		return true, nil, errors.New("connection refused")
	})
	if _, err := run(t.Context(), f.updater(Request{Name: "demo", JoinTimeout: 50 * time.Millisecond})); err == nil ||
		!strings.Contains(err.Error(), "connection refused") {
		t.Errorf("for long: %v", err)
	}
}
