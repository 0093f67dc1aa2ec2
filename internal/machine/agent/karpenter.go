// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"time"

	"github.com/slipway-k8s/slipway/internal/machine/kube"
	"github.com/slipway-k8s/slipway/internal/machine/node"
)

const (
	// karpenterCheckInterval is the time between two comparisons of Karpenter's objects with an
	// unchanged list.
	karpenterCheckInterval = time.Minute

	karpenterLeaseName = "slipway-karpenter"

	nodePoolsPath   = "/apis/karpenter.sh/v1/nodepools"
	nodeClassesPath = "/apis/karpenter.k8s.aws/v1/ec2nodeclasses"
)

// karpenterTask keeps the EC2NodeClass and the NodePool of each group whose machines Karpenter
// launches, if this machine of the control plane is elected for it. The signed list of launches has
// what they say.
type karpenterTask struct {
	agent    *Agent
	api      kube.Client
	election *election
	list     *launchList

	// applied is the serial that was applied last, and checkAfter is when it is compared with the
	// cluster again.
	applied    int64
	checkAfter time.Time
}

func newKarpenterTask(a *Agent, api kube.Client) *karpenterTask {
	return &karpenterTask{agent: a, api: api, list: newLaunchList(a), election: &election{
		api:      api,
		name:     karpenterLeaseName,
		holder:   a.instance.ID,
		duration: addonLease,
		now:      a.Now,
	}}
}

// run applies the objects of the list. Without a list it makes no requests to the API server.
func (t *karpenterTask) run(ctx context.Context) error {
	list, err := t.list.read(ctx)
	if err != nil || list.Serial == 0 {
		return err
	}

	if !t.agent.apiOpen.Load() {
		return newNotReadyError("the API server has not read its authorization rules yet")
	}

	if elected, err := t.election.lead(ctx); err != nil || !elected {
		return err
	}

	if t.applied == list.Serial && t.agent.Now().Before(t.checkAfter) {
		return nil
	}

	if err := t.reconcile(ctx, list.Pools); err != nil {
		return err
	}

	t.applied = list.Serial
	t.checkAfter = t.agent.Now().Add(karpenterCheckInterval)

	return nil
}

// reconcile makes the cluster have the objects of all pools, and deletes those of groups that are
// no longer Karpenter's. A group that is refused does not stop the others.
func (t *karpenterTask) reconcile(ctx context.Context, pools map[string]node.Pool) error {
	known, err := t.listOwn(ctx)
	if errors.Is(err, kube.ErrNotFound) {
		if len(pools) == 0 {
			return nil
		}

		return newNotReadyError("the cluster has no NodePools and EC2NodeClasses: publish the channel of Karpenter")
	}

	if err != nil {
		return err
	}

	var errs []error
	for _, group := range slices.Sorted(maps.Keys(pools)) {
		errs = append(errs, t.applyPool(ctx, group, pools[group]))
	}

	for _, path := range known {
		if !isOfPool(path, pools) {
			t.agent.Log.Info("deleting an object of a group that is no longer Karpenter's", slog.String("object", path))
			errs = append(errs, t.api.Delete(ctx, path))
		}
	}

	return errors.Join(errs...)
}

// listOwn returns the paths of the NodePools and then of the EC2NodeClasses that the control plane
// has written: machines of a pool end before its class. The error wraps [kube.ErrNotFound] if the
// API server does not know these kinds.
func (t *karpenterTask) listOwn(ctx context.Context) ([]string, error) {
	var out []string
	for _, path := range []string{nodePoolsPath, nodeClassesPath} {
		var list struct {
			Items []struct {
				Metadata struct {
					Name string `json:"name"`
				} `json:"metadata"`
			} `json:"items"`
		}
		if err := t.api.Get(ctx, path+"?labelSelector="+karpenterLabel, &list); err != nil {
			return nil, err
		}

		for _, item := range list.Items {
			out = append(out, path+"/"+item.Metadata.Name)
		}
	}

	return out, nil
}

// isOfPool reports whether an object belongs to one of the pools.
func isOfPool(path string, pools map[string]node.Pool) bool {
	for group := range pools {
		if path == nodePoolsPath+"/"+group || path == nodeClassesPath+"/"+group {
			return true
		}
	}

	return false
}

// applyPool applies the two objects of a group.
func (t *karpenterTask) applyPool(ctx context.Context, group string, p node.Pool) error {
	class, pool, err := BuildKarpenterObjects(group, p, t.agent.Boot.API)
	if err != nil {
		return err
	}

	for _, o := range []struct {
		path   string
		object map[string]any
	}{
		{nodeClassesPath, class},
		{nodePoolsPath, pool},
	} {
		body, err := json.Marshal(o.object)
		if err != nil {
			return fmt.Errorf("encode an object of group %s: %w", group, err)
		}

		if err := t.api.Apply(ctx, o.path+"/"+group, body); err != nil {
			return fmt.Errorf("group %s: %w", group, err)
		}
	}

	return nil
}
