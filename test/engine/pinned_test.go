// SPDX-License-Identifier: Apache-2.0

package engine_test

import (
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	sdk "github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/autoscaling"
	scalingtypes "github.com/aws/aws-sdk-go-v2/service/autoscaling/types"
	"github.com/aws/aws-sdk-go-v2/service/ec2"
	ec2types "github.com/aws/aws-sdk-go-v2/service/ec2/types"

	"github.com/slipway-k8s/slipway/internal/infra/graph"
	"github.com/slipway-k8s/slipway/internal/manifest"
	"github.com/slipway-k8s/slipway/internal/region/regiontest"
)

// pinnedCluster is a cluster whose workers are looked at.
type pinnedCluster struct {
	t      *testing.T
	region regiontest.Region
	set    manifest.Set
}

func startPinnedCluster(t *testing.T) *pinnedCluster {
	t.Helper()
	c := &pinnedCluster{t: t, region: startRegion(t, nil)}
	c.set = newPeeredHASet(t, c.region)
	c.apply()
	return c
}

// apply applies the manifests, and waits until the groups have their machines.
func (c *pinnedCluster) apply() {
	c.t.Helper()
	if err := newEngine(c.region.AWSConfig(), "demo").run(c.t.Context(), c.graph()); err != nil {
		c.t.Fatal(err)
	}
	waitForRegion()
}

func (c *pinnedCluster) graph() *graph.Graph { return mustBuildGraph(c.t, c.set) }

// plan returns the lines of the plan, and what waits for a rolling update.
func (c *pinnedCluster) plan() (lines, pending []string) {
	c.t.Helper()
	p, err := newEngine(c.region.AWSConfig(), "demo").plan(c.t.Context(), c.graph())
	if err != nil {
		c.t.Fatal(err)
	}
	for _, x := range p.Pending {
		pending = append(pending, x.String())
	}
	return planLines(p), pending
}

func (c *pinnedCluster) clients() awsClients {
	c.t.Helper()
	return newAWSClients(c.t.Context(), c.region.AWSConfig(), readResourceIDs(c.t, newEngine(c.region.AWSConfig(), "demo"), c.graph()))
}

// workers returns the workers' group.
func (c *pinnedCluster) workers() scalingtypes.AutoScalingGroup {
	c.t.Helper()
	out, err := c.clients().scaling.DescribeAutoScalingGroups(c.t.Context(), &autoscaling.DescribeAutoScalingGroupsInput{
		AutoScalingGroupNames: []string{"workers.demo"},
	})
	if err != nil || len(out.AutoScalingGroups) != 1 {
		c.t.Fatalf("%+v, %v", out, err)
	}
	return out.AutoScalingGroups[0]
}

// versions returns the launch template versions of the workers, sorted.
func (c *pinnedCluster) versions() string {
	c.t.Helper()
	var out []string
	for _, i := range c.workers().Instances {
		out = append(out, sdk.ToString(i.LaunchTemplate.Version))
	}
	slices.Sort(out)
	return strings.Join(out, " ")
}

// terminateWorker ends a worker by hand, and waits for its replacement.
func (c *pinnedCluster) terminateWorker() {
	c.t.Helper()
	g := c.workers()
	in := &ec2.TerminateInstancesInput{InstanceIds: []string{*g.Instances[0].InstanceId}}
	if _, err := c.clients().ec2.TerminateInstances(c.t.Context(), in); err != nil {
		c.t.Fatal(err)
	}
	time.Sleep(10 * time.Minute) // until Auto Scaling has noticed
	if now := c.workers(); len(now.Instances) != len(g.Instances) || *now.Instances[0].InstanceId == *g.Instances[0].InstanceId {
		c.t.Fatalf("the machine was not replaced: %+v", now.Instances)
	}
}

// setMachineType changes what new workers are launched as.
func (c *pinnedCluster) setMachineType(name string) {
	for i := range c.set.Groups {
		if c.set.Groups[i].Metadata.Name == "workers" {
			c.set.Groups[i].Spec.MachineType = name
		}
	}
}

// TestReplacedWorkerKeepsItsVersion: after an apply that changes what machines are launched from, a worker that is replaced for
// another reason gets the version that its group had. Only a rolling update sets the new one on the group.
func TestReplacedWorkerKeepsItsVersion(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := startPinnedCluster(t)
		c.setMachineType("m5.xlarge")
		c.apply()
		c.terminateWorker()
		if got := c.versions(); got != "1 1" {
			t.Errorf("after an apply, and before a rolling update, the workers have the versions %s", got)
		}
		const waits = `autoscaling-group/workers: LaunchTemplate.Version: "1" → "2"`
		if lines, pending := c.plan(); len(lines) > 0 || !slices.Equal(pending, []string{waits}) {
			t.Errorf("the plan is %q, pending are %q", lines, pending)
		}
		c.set.Groups[1].Spec.MaxSize = sdk.Int(7) // another change of the group does not take the version along
		c.apply()
		if g := c.workers(); *g.LaunchTemplate.Version != "1" || *g.MaxSize != 7 {
			t.Errorf("version %s, at most %d machines", *g.LaunchTemplate.Version, *g.MaxSize)
		}
		h := c.clients() // what a rolling update does before it replaces the first machine
		err := h.updateWorkersGroup(&autoscaling.UpdateAutoScalingGroupInput{LaunchTemplate: &scalingtypes.LaunchTemplateSpecification{
			LaunchTemplateId: h.resourceID("launch-template/workers"), Version: sdk.String("2"),
		}})
		if err != nil {
			t.Fatal(err)
		}
		c.terminateWorker()
		if got := c.versions(); got != "1 2" {
			t.Errorf("after the rolling update has begun, the workers have the versions %s", got)
		}
		if lines, pending := c.plan(); len(lines) > 0 || len(pending) > 0 {
			t.Errorf("after the rolling update: the plan is %q, pending are %q", lines, pending)
		}
	})
}

// TestVersionWithoutItsResourcesIsLeft: a version that names a key pair that the same apply deletes could launch nothing any
// more, so that the group gets the new one at once.
func TestVersionWithoutItsResourcesIsLeft(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := startPinnedCluster(t)
		c.set.Cluster.Spec.SSHKey = ""
		c.apply()
		if got := *c.workers().LaunchTemplate.Version; got != "2" {
			t.Errorf("the group launches machines from version %s, which has a key pair that does not exist", got)
		}
		c.terminateWorker()
		if got := c.versions(); got != "1 2" {
			t.Errorf("the workers have the versions %s", got)
		}
	})
}

// TestPinnedVersionIsNotDeleted: an update of a launch template deletes its oldest versions, but not the one that its group
// launches machines from.
func TestPinnedVersionIsNotDeleted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := startPinnedCluster(t)
		h := c.clients()
		const more = 105
		for range more {
			in := &ec2.CreateLaunchTemplateVersionInput{
				LaunchTemplateId: h.resourceID("launch-template/workers"), SourceVersion: sdk.String("1"), LaunchTemplateData: &ec2types.RequestLaunchTemplateData{InstanceType: ec2types.InstanceTypeT3Large},
			}
			if _, err := h.ec2.CreateLaunchTemplateVersion(t.Context(), in); err != nil {
				t.Fatal(err)
			}
		}
		c.setMachineType("m5.xlarge")
		c.apply()
		left := map[string]bool{}
		for _, version := range []string{"1", "2", "3"} {
			out, err := h.ec2.DescribeLaunchTemplateVersions(t.Context(), &ec2.DescribeLaunchTemplateVersionsInput{
				LaunchTemplateId: h.resourceID("launch-template/workers"), Versions: []string{version},
			})
			left[version] = err == nil && len(out.LaunchTemplateVersions) == 1
		}
		if !left["1"] || left["2"] || left["3"] {
			t.Errorf("of the versions 1 to 3, these are left: %v", left)
		}
	})
}
