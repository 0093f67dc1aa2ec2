// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/slipway-k8s/slipway/api/v1alpha1"
	"github.com/slipway-k8s/slipway/internal/machine/follow"
	"github.com/slipway-k8s/slipway/internal/machine/kube"
)

// Objects with the locks. The one of the control plane is a Lease. Nodes may change no Lease but their own, so the
// workers use a ConfigMap, to which a rule of the add-ons gives them access.
const (
	controlPlaneLock = leasesPath + "/" + follow.ControlPlaneLease
	workersLock      = "/api/v1/namespaces/kube-system/configmaps/slipway-workers-update"
)

// updateLock reads and changes the lock by which machines take turns.
type updateLock struct {
	// apis are the clients to try in order.
	apis []kube.Client
	// path of the object.
	path string
	now  func() time.Time
}

// newUpdateLock returns the lock of this machine's role.
func newUpdateLock(a *Agent) updateLock {
	if a.doc.Role != v1alpha1.RoleControlPlane {
		return updateLock{apis: []kube.Client{a.newNodeClient()}, path: workersLock, now: a.Now}
	}

	own := a.newAdminClient()
	balanced := own
	balanced.Server = "https://" + a.Boot.API.Internal + ":" + kube.APIPort

	return updateLock{apis: []kube.Client{own, balanced}, path: controlPlaneLock, now: a.Now}
}

// lockObject is the object that holds a lock.
type lockObject struct {
	Metadata struct {
		ResourceVersion string            `json:"resourceVersion"`
		Annotations     map[string]string `json:"annotations"`
	} `json:"metadata"`
}

// read returns the lock and the version of its object; no version if it does not exist.
func (u updateLock) read(ctx context.Context) (follow.Lock, string, error) {
	var lock follow.Lock
	var object lockObject
	err := u.try(func(api kube.Client) error {
		object = lockObject{}
		return api.Get(ctx, u.path, &object)
	})
	if errors.Is(err, kube.ErrNotFound) {
		return lock, "", nil
	}

	if err != nil {
		return lock, "", err
	}

	if text := object.Metadata.Annotations[follow.LockAnnotation]; text != "" && json.Unmarshal([]byte(text), &lock) != nil {
		lock = follow.Lock{} // damaged: nobody holds it
	}

	return lock, object.Metadata.ResourceVersion, nil
}

// write stores the lock if its object still has the version. The error wraps kube.ErrConflict if it has not.
func (u updateLock) write(ctx context.Context, lock follow.Lock, version string) error {
	text, err := json.Marshal(lock)
	if err != nil {
		return fmt.Errorf("encode the update lock: %w", err)
	}

	if version == "" {
		if err := u.create(ctx); err != nil {
			return err
		}

		// Another machine may have created it and taken it already.
		return fmt.Errorf("the update lock was just created: %w", kube.ErrConflict)
	}

	patch := map[string]any{"metadata": map[string]any{
		"resourceVersion": version,
		"annotations":     map[string]string{follow.LockAnnotation: string(text)},
	}}
	if u.path == controlPlaneLock {
		patch["spec"] = map[string]any{
			"holderIdentity":       lock.Holder,
			"leaseDurationSeconds": int(follow.HoldTime.Seconds()),
			"renewTime":            u.now().UTC().Format(microTime),
		}
	}

	return u.try(func(api kube.Client) error { return api.MergePatch(ctx, u.path, patch) })
}

// create creates the Lease. The ConfigMap of the workers is an add-on.
func (u updateLock) create(ctx context.Context) error {
	if u.path != controlPlaneLock {
		return newNotReadyError("the control plane has not created the workers' update lock yet")
	}

	return u.try(func(api kube.Client) error {
		body := []byte(`{"apiVersion":"coordination.k8s.io/v1","kind":"Lease",` +
			`"metadata":{"name":"` + follow.ControlPlaneLease + `","namespace":"kube-system"}}`)

		return api.Apply(ctx, u.path, body)
	})
}

// change applies a change to the lock, and again if another machine changed it at the same time.
func (u updateLock) change(ctx context.Context, how func(follow.Lock) follow.Lock) error {
	var err error
	for range 5 {
		var lock follow.Lock
		var version string
		if lock, version, err = u.read(ctx); err != nil {
			return err
		}

		changed := how(lock)
		if isSameLock(lock, changed) {
			return nil
		}

		if err = u.write(ctx, changed, version); !errors.Is(err, kube.ErrConflict) {
			return err
		}
	}

	return err
}

func isSameLock(a, b follow.Lock) bool {
	x, errX := json.Marshal(a)
	y, errY := json.Marshal(b)

	return errX == nil && errY == nil && bytes.Equal(x, y)
}

// claim takes the lock for a machine if it is its turn. The text says why it is not.
func (u updateLock) claim(ctx context.Context, c follow.Claim) (follow.Turn, string, error) {
	lock, version, err := u.read(ctx)
	if err != nil {
		return follow.TurnWait, "", err
	}

	turn, reason := lock.Decide(c, u.now())
	switch turn {
	case follow.TurnTake:
		lock = lock.Take(c, u.now())
	case follow.TurnFree:
		lock = lock.Join(c, u.now())
	default:
		return turn, reason, nil
	}

	err = u.write(ctx, lock, version)
	if errors.Is(err, kube.ErrConflict) {
		return follow.TurnWait, "another machine took the lock at the same time", nil
	}

	return turn, "", err
}

// try calls do with each client until one succeeds or the API has answered.
func (u updateLock) try(do func(kube.Client) error) error {
	var errs []error
	for _, api := range u.apis {
		err := do(api)
		if err == nil || errors.Is(err, kube.ErrNotFound) || errors.Is(err, kube.ErrConflict) {
			return err
		}

		errs = append(errs, err)
	}

	return errors.Join(errs...)
}

// readyAPIServers returns how many API servers serve: those in the endpoints of the Service kubernetes.
func readyAPIServers(ctx context.Context, api kube.Client) (int, error) {
	var object struct {
		Endpoints []struct {
			Addresses []string `json:"addresses"`
		} `json:"endpoints"`
	}
	path := "/apis/discovery.k8s.io/v1/namespaces/default/endpointslices/kubernetes"
	if err := api.Get(ctx, path, &object); err != nil {
		return 0, err
	}

	n := 0
	for _, e := range object.Endpoints {
		n += len(e.Addresses)
	}

	return n, nil
}
