// SPDX-License-Identifier: Apache-2.0

package e2e_test

import (
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/autoscaling"
	"github.com/aws/aws-sdk-go-v2/service/autoscaling/types"
)

// TestWarmPool gives a group a warm pool. A machine of the pool is stopped with its images, and joins when the group grows; a
// machine without a pool is measured next to it. When the group shrinks, a machine returns to the pool, and joins again later.
func TestWarmPool(t *testing.T) {
	skipUnlessLong(t)
	e := newEnvironment(t)
	for _, s := range []step{
		{"up", createCluster},
		{"a pool fills", fillWarmPool},
		{"the group grows from the pool", growFromWarmPool},
		{"a machine returns to the pool", returnToWarmPool},
		{"delete leaves nothing", func(e *environment) { e.runSlipway("delete", "cluster", clusterName, "--yes") }},
	} {
		e.runStep(t, s)
	}
}

// warmManifest is a group with a stopped machine in its pool.
const warmManifest = `apiVersion: slipway.dev/v1alpha1
kind: InstanceGroup
metadata:
  name: warm
spec:
  role: Worker
  minSize: 1
  maxSize: 3
  warmPool:
    maxGroupPreparedCapacity: 2
    reuseOnScaleIn: true
`

// warmGroup is the name of its Auto Scaling group.
const warmGroup = "warm." + clusterName

// fillWarmPool creates the group, and waits until a machine of its pool is stopped. That machine has completed the launch
// hook: it has the images.
func fillWarmPool(e *environment) {
	file := filepath.Join(e.t.TempDir(), "warm.yaml")
	writeFile(e.t, file, warmManifest)
	e.runSlipway("replace", "-f", file, "--name", clusterName, "--yes")
	start := time.Now()
	e.runSlipway("apply", clusterName, "--yes")
	e.waitForPooled()
	e.t.Logf("COUNT warm pool: a machine was prepared and stopped after %s", time.Since(start).Round(100*time.Millisecond))
	e.waitHealthy(5 * time.Minute)
}

// waitForPooled waits for a stopped machine in the pool, for less time than the launch hook waits for a machine that does not
// answer: so the agent has completed the hook.
func (e *environment) waitForPooled() {
	e.t.Helper()
	api := autoscaling.NewFromConfig(e.aws)
	hooks, err := api.DescribeLifecycleHooks(e.t.Context(), &autoscaling.DescribeLifecycleHooksInput{AutoScalingGroupName: aws.String(warmGroup)})
	if err != nil || !slices.ContainsFunc(hooks.LifecycleHooks, func(h types.LifecycleHook) bool { return *h.LifecycleHookName == "slipway-launch" }) {
		e.t.Fatalf("group %s has no launch hook: %v", warmGroup, err)
	}
	e.waitUntil("the pool has a stopped machine", 4*time.Minute, func() error {
		pool, err := api.DescribeWarmPool(e.t.Context(), &autoscaling.DescribeWarmPoolInput{AutoScalingGroupName: aws.String(warmGroup)})
		if err != nil {
			return err
		}
		for _, i := range pool.Instances {
			if i.LifecycleState == types.LifecycleStateWarmedStopped {
				return nil
			}
		}
		return fmt.Errorf("the pool has %+v", pool.Instances)
	})
}

// growFromWarmPool grows a group without a pool and the one with it, and prints how long both take. Here a download takes almost no
// time, so it is not said which one takes longer.
func growFromWarmPool(e *environment) {
	cold := e.measureGrowth("workers."+clusterName, 3)
	e.t.Logf("COUNT cold boot: a node was Ready %s after its group without a warm pool grew", cold.Round(100*time.Millisecond))
	warm := e.measureGrowth(warmGroup, 2)
	e.t.Logf("COUNT warm pool: a node was Ready %s after its group with a warm pool grew", warm.Round(100*time.Millisecond))
}

// measureGrowth grows a group by one, and returns the time until another node is Ready.
func (e *environment) measureGrowth(group string, size int) time.Duration {
	e.t.Helper()
	before, err := e.readyNodes()
	if err != nil {
		e.t.Fatal(err)
	}
	start := time.Now()
	text := strconv.Itoa(size)
	e.scaling("update-auto-scaling-group", "--auto-scaling-group-name", group, "--max-size", strconv.Itoa(size+1), "--desired-capacity", text)
	e.waitUntil("another node is Ready", 5*time.Minute, func() error {
		if now, err := e.readyNodes(); err != nil || len(now) <= len(before) {
			return fmt.Errorf("nodes %v, before %v: %w", now, before, errors.Join(err, textError("no further node")))
		}
		return nil
	})
	return time.Since(start)
}

// returnToWarmPool shrinks the group: a machine is drained and stopped, and its Node is deleted. When the group grows again, that
// machine is started, and its Node is schedulable.
func returnToWarmPool(e *environment) {
	api := autoscaling.NewFromConfig(e.aws)
	before := e.groupMachines(api)
	e.scaling("set-desired-capacity", "--auto-scaling-group-name", warmGroup, "--desired-capacity", "1")
	var slept string
	e.waitUntil("a machine of the group sleeps in the pool", 4*time.Minute, func() error {
		pool, err := api.DescribeWarmPool(e.t.Context(), &autoscaling.DescribeWarmPoolInput{AutoScalingGroupName: aws.String(warmGroup)})
		if err != nil {
			return err
		}
		for _, i := range pool.Instances {
			if slices.Contains(before, *i.InstanceId) && i.LifecycleState == types.LifecycleStateWarmedStopped {
				slept = *i.InstanceId
				return nil
			}
		}
		return fmt.Errorf("the pool has %+v, the group had %v", pool.Instances, before)
	})
	e.waitUntil("its node is gone", 4*time.Minute, func() error {
		if nodes := e.kubectl("get", "nodes", "-o", "jsonpath={.items[*].spec.providerID}"); strings.Contains(nodes, slept) {
			return textError("nodes " + nodes)
		}
		return nil
	})
	e.waitHealthy(5 * time.Minute)
	again := e.measureGrowth(warmGroup, 2)
	e.t.Logf("COUNT warm pool: a node was Ready %s after a machine that had returned was started", again.Round(100*time.Millisecond))
	if now := e.groupMachines(api); !slices.Contains(now, slept) {
		e.t.Fatalf("machine %s slept; the group has %v", slept, now)
	}
	if cordoned := e.kubectl("get", "nodes", "-o", "jsonpath={.items[?(@.spec.unschedulable)].metadata.name}"); cordoned != "" {
		e.t.Fatalf("nodes %s are cordoned", cordoned)
	}
}

// groupMachines returns the machines of the group, without those in its pool.
func (e *environment) groupMachines(api *autoscaling.Client) []string {
	e.t.Helper()
	out, err := api.DescribeAutoScalingGroups(e.t.Context(), &autoscaling.DescribeAutoScalingGroupsInput{AutoScalingGroupNames: []string{warmGroup}})
	if err != nil || len(out.AutoScalingGroups) != 1 {
		e.t.Fatalf("group %s: %+v, %v", warmGroup, out, err)
	}
	var ids []string
	for _, i := range out.AutoScalingGroups[0].Instances {
		ids = append(ids, *i.InstanceId)
	}
	return ids
}
