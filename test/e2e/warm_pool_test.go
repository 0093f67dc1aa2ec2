// SPDX-License-Identifier: Apache-2.0

package e2e_test

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"regexp"
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
// hook: it waited for its agent, and it has the images.
func fillWarmPool(e *environment) {
	file := filepath.Join(e.t.TempDir(), "warm.yaml")
	writeFile(e.t, file, warmManifest)
	e.runSlipway("replace", "-f", file, "--name", clusterName, "--yes")
	start := time.Now()
	states := e.watchPool()
	e.runSlipway("apply", clusterName, "--yes")
	prepared := e.waitForPooled()
	seen := states()[prepared]
	waits := slices.Index(seen, types.LifecycleStateWarmedPendingWait)
	stops := slices.Index(seen, types.LifecycleStateWarmedStopped) // may be too recent
	if waits < 0 || stops >= 0 && stops < waits {
		e.t.Errorf("machine %s of the pool was %v, want Warmed:Pending:Wait before Warmed:Stopped", prepared, seen)
	}
	e.t.Logf("COUNT warm pool: a machine was prepared and stopped after %s", time.Since(start).Round(100*time.Millisecond))
	e.waitHealthy(5 * time.Minute)
	e.checkPulled(prepared)
}

// watchPool looks at the pool until the function that it returns is called, which returns the lifecycle states of each
// machine, in the order in which they were seen.
func (e *environment) watchPool() func() map[string][]types.LifecycleState {
	ctx, cancel := context.WithCancel(e.t.Context())
	api := autoscaling.NewFromConfig(e.aws)
	done := make(chan map[string][]types.LifecycleState, 1)
	go func() {
		seen := map[string][]types.LifecycleState{}
		for ctx.Err() == nil {
			pool, err := api.DescribeWarmPool(ctx, &autoscaling.DescribeWarmPoolInput{AutoScalingGroupName: aws.String(warmGroup)})
			if err == nil { // else the group does not exist yet
				for _, i := range pool.Instances {
					if id := *i.InstanceId; !slices.Contains(seen[id], i.LifecycleState) {
						seen[id] = append(seen[id], i.LifecycleState)
					}
				}
			}
			select {
			case <-ctx.Done():
			case <-time.After(200 * time.Millisecond):
			}
		}
		done <- seen
	}()
	return func() map[string][]types.LifecycleState {
		cancel()
		return <-done
	}
}

// checkPulled checks that a stopped machine of the pool has the images that a worker of another group runs. They were pulled
// before its launch hook was completed: containerd has them on its disk since.
func (e *environment) checkPulled(prepared string) {
	e.t.Helper()
	if _, err := e.runInMachine(prepared, "true"); err == nil {
		e.t.Errorf("machine %s of the pool is running", prepared)
	}
	blobs := filepath.Join(e.cache, "region", "instances", prepared, "data/containerd/io.containerd.content.v1.content/blobs/sha256")
	workers := slices.Sorted(maps.Keys(e.listMachines("worker")))
	workers = slices.DeleteFunc(workers, func(id string) bool { return id == prepared })
	if len(workers) == 0 {
		e.t.Fatal("there is no worker to compare with")
	}
	images := strings.Fields(e.mustRunInMachine(workers[0], "ctr --namespace k8s.io images list -q"))
	for _, name := range []string{"pause", "kube-proxy", "flannel", "flannel-cni-plugin"} {
		pattern := regexp.MustCompile("/" + name + "(:[^/@]*)?@sha256:")
		at := slices.IndexFunc(images, pattern.MatchString)
		if at < 0 {
			e.t.Errorf("worker %s has no image %s: %q", workers[0], name, images)
			continue
		}
		_, digest, _ := strings.Cut(images[at], "@sha256:")
		if _, err := os.Stat(filepath.Join(blobs, digest)); err != nil {
			e.t.Errorf("machine %s of the pool was stopped without the image %s: %v", prepared, images[at], err)
		}
	}
}

// waitForPooled waits for a stopped machine in the pool, for less time than the launch hook waits for a machine that does not
// answer: so the agent has completed the hook. It returns the machine.
func (e *environment) waitForPooled() (prepared string) {
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
				prepared = *i.InstanceId
				return nil
			}
		}
		return fmt.Errorf("the pool has %+v", pool.Instances)
	})
	return prepared
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
