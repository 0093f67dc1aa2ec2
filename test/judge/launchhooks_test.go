// SPDX-License-Identifier: Apache-2.0

package judge_test

import (
	"bytes"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/slipway-k8s/slipway/internal/infra/render/rendertest"
	"github.com/slipway-k8s/slipway/internal/infra/render/terraform"
)

// TestTerraformChangesLaunchHooks: a group that gets or loses a warm pool, and a changed timeout of its hook, replace no group
// and so no machine, although Terraform cannot change the hooks that a group was created with.
func TestTerraformChangesLaunchHooks(t *testing.T) {
	tf := newTerraform(t, t.TempDir())
	all := rendertest.Topologies()
	pooled := all[slices.IndexFunc(all, func(x rendertest.Topology) bool { return x.Name == "warm-pool" })]
	plain := pooled.WithReplaced(map[string]string{"  warmPool:\n    minSize: 1\n    maxGroupPreparedCapacity: 4\n": ""})
	with := renderConfiguration(t, pooled.Graph(t), terraform.Options{Region: "us-east-1"})
	without := renderConfiguration(t, plain.Graph(t), terraform.Options{Region: "us-east-1"})
	longer := bytes.ReplaceAll(with, []byte(`"heartbeat_timeout": 300`), []byte(`"heartbeat_timeout": 450`))
	if n := bytes.Count(longer, []byte("450")); n != 2 {
		t.Fatalf("the configuration has the timeout %d times, want 2: in the group and in the hook", n)
	}

	for name, steps := range map[string][]struct {
		body []byte
		want []string
	}{
		"created with a pool": {
			{with, nil},
			{longer, []string{"aws_autoscaling_lifecycle_hook.workers_launch update"}},
			{without, []string{"aws_autoscaling_group.workers update", "aws_autoscaling_lifecycle_hook.workers_launch delete"}},
		},
		"created without": {
			{without, nil},
			{with, []string{"aws_autoscaling_group.workers update", "aws_autoscaling_lifecycle_hook.workers_launch create"}},
			{longer, []string{"aws_autoscaling_lifecycle_hook.workers_launch update"}},
		},
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			for i, step := range steps {
				writeFile(t, dir, "main.tf.json", step.body)
				tf.mustRunTerraform(t, dir, "plan", "-no-color", "-input=false", "-out=plan")
				changes := tf.readChanges(t, dir, "plan")
				changes = slices.DeleteFunc(changes, func(c string) bool {
					return strings.HasPrefix(c, "aws_launch_template.") || strings.HasPrefix(c, "aws_s3_object.")
				})
				if diff := cmp.Diff(step.want, changes); i > 0 && diff != "" {
					t.Errorf("step %d (-want +got):\n%s", i, diff)
				}
				tf.mustRunTerraform(t, dir, "apply", "-no-color", "-input=false", "plan")
				if out, ok := tf.runTerraform(t, dir, "plan", "-no-color", "-detailed-exitcode", "-input=false"); !ok {
					t.Errorf("step %d: the second plan has changes: %s", i, out)
				}
			}
		})
	}
}
