// SPDX-License-Identifier: Apache-2.0

package judge_test

import (
	"regexp"
	"testing"

	"github.com/slipway-k8s/slipway/internal/infra/model"
	"github.com/slipway-k8s/slipway/internal/infra/render/rendertest"
	"github.com/slipway-k8s/slipway/internal/region/regiontest"
	"github.com/slipway-k8s/slipway/test/dnsfunction"
	"github.com/slipway-k8s/slipway/test/prerequisite"
)

// prepareTopology creates the resources that a topology expects to exist, and returns the topology
// with their IDs.
func (d directJudge) prepareTopology(t *testing.T, x rendertest.Topology) rendertest.Topology {
	t.Helper()
	in := x.Input(t, regiontest.RegionName)
	if model.UsesEtcdDNS(in.Cluster.Spec) {
		x = x.WithFunction(dnsfunction.Publish(t, d.cfg, in.MachineStore.Bucket, in.FunctionCode.Key))
	}

	return x.WithReplaced(d.createExisting(t, in))
}

// createExisting creates the resources that an example names, and returns the new IDs by the IDs in
// the example.
func (d directJudge) createExisting(t *testing.T, in model.Input) map[string]string {
	t.Helper()
	d.createBoundary(t)

	return prerequisite.Create(t, d.cfg, in.Cluster.Spec)
}

// TestTwoClustersInOneVPC creates two clusters in one VPC. Neither the creation nor the deletion of
// the second changes the first.
func TestTwoClustersInOneVPC(t *testing.T) {
	d := directJudge{cfg: regiontest.Start(t).AWSConfig(), fixDefects: keepResource}
	var pair []rendertest.Topology
	for _, x := range rendertest.Topologies() {
		if regexp.MustCompile(`^shared-vpc-[ab]$`).MatchString(x.Name) {
			pair = append(pair, x)
		}
	}
	if len(pair) != 2 {
		t.Fatalf("%d examples, want 2", len(pair))
	}
	ids := d.createExisting(t, pair[0].Input(t, regiontest.RegionName))
	before := d.listInventory(t)
	a, b := d.buildCluster(t, pair[0].WithReplaced(ids).Input(t, regiontest.RegionName)), d.buildCluster(t, pair[1].WithReplaced(ids).Input(t, regiontest.RegionName))
	a.apply(t)
	b.apply(t)
	a.checkNoChanges(t)
	b.checkNoChanges(t)
	a.remove(t)
	b.checkNoChanges(t)
	b.remove(t)
	d.checkInventory(t, before)
}
