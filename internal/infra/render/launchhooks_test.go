// SPDX-License-Identifier: Apache-2.0

package render_test

import (
	"encoding/json"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/slipway-k8s/slipway/internal/infra/render/rendertest"
)

// TestPoolWaitsForItsLaunchHook checks that a warm pool is created after the launch hook of its group: CloudFormation has a
// resource for each, Terraform's group has both.
func TestPoolWaitsForItsLaunchHook(t *testing.T) {
	all := rendertest.Topologies()
	i := slices.IndexFunc(all, func(x rendertest.Topology) bool { return x.Name == "warm-pool" })
	files := rendered(t, all[i])
	pool := parse(t, files["template.json"]).Resources["AutoscalingGroupWorkersWarmPool"]
	if diff := cmp.Diff([]string{"LifecycleHookWorkersLaunch"}, pool.DependsOn); diff != "" {
		t.Errorf("CloudFormation (-want +got)\n%s", diff)
	}

	var doc struct {
		Resource struct {
			Groups map[string]map[string]any `json:"aws_autoscaling_group"`
			Hooks  map[string]map[string]any `json:"aws_autoscaling_lifecycle_hook"`
		}
	}
	if err := json.Unmarshal([]byte(files["main.tf.json"]), &doc); err != nil {
		t.Fatal(err)
	}

	hook := doc.Resource.Hooks["workers_launch"]
	delete(hook, "autoscaling_group_name")
	want := []any{map[string]any{
		"name": "slipway-launch", "lifecycle_transition": "autoscaling:EC2_INSTANCE_LAUNCHING", "default_result": "CONTINUE",
		"heartbeat_timeout": float64(300),
	}}
	if diff := cmp.Diff(want, doc.Resource.Groups["workers"]["initial_lifecycle_hook"]); diff != "" {
		t.Errorf("Terraform's group (-want +got)\n%s", diff)
	}

	if diff := cmp.Diff(want, []any{hook}); diff != "" {
		t.Errorf("Terraform's hook (-want +got)\n%s", diff)
	}
}
