// SPDX-License-Identifier: Apache-2.0

package destroy

import (
	"context"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/slipway-k8s/slipway/internal/cluster"
	"github.com/slipway-k8s/slipway/internal/infra/aws/cleanup"
	"github.com/slipway-k8s/slipway/internal/infra/aws/driver"
	"github.com/slipway-k8s/slipway/internal/infra/awskind"
	"github.com/slipway-k8s/slipway/internal/infra/graph"
	"github.com/slipway-k8s/slipway/internal/infra/plan"
)

// deletions is a cloud that notes in which order resources are deleted.
type deletions struct {
	plan.Cloud

	mu    sync.Mutex
	order []graph.Addr
}

func (d *deletions) Delete(_ context.Context, t plan.Task) error {
	if t.Step.Kind == (awskind.IAMRolePolicy{}).Kind().Name {
		time.Sleep(20 * time.Millisecond) // whoever does not wait for it is earlier
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	d.order = append(d.order, t.Step.Addr)
	return nil
}

// TestKarpenterIsDisarmedFirst: the policy with which Karpenter launches machines is deleted before the groups of machines,
// the policies of machines after them, and machines and launch templates of Karpenter when it does not run any more.
func TestKarpenterIsDisarmedFirst(t *testing.T) {
	policy := func(document graph.JSON) awskind.IAMRolePolicy {
		return awskind.IAMRolePolicy{Name: "pods", Document: document}
	}
	own := []plan.ActualResource{
		{Addr: "autoscaling-group/nodes", ID: "nodes.demo", Resource: awskind.AutoScalingGroup{Name: "nodes.demo"}},
		{Addr: "iam-role-policy/worker", ID: "worker:machine", Resource: policy(`{"Statement":[{"Action":["s3:GetObject"]}]}`)},
		{Addr: "iam-role-policy/sa-karpenter", ID: "karpenter:pods", Resource: policy(`{"Statement":[{"Action":["ec2:CreateFleet","ec2:RunInstances"]}]}`)},
	}
	leftovers := cleanup.Leftovers{Resources: []plan.ActualResource{
		{Addr: "instance/leftover:i-1", ID: "i-1", Resource: driver.Instance{}, UsedBy: []string{"nodes.demo"}},
		{Addr: "launch-template/leftover:karpenter.k8s.aws/1", ID: "lt-1", Resource: awskind.LaunchTemplate{}, UsedBy: []string{"nodes.demo"}},
	}}
	var shown cluster.Deletion
	p, fs := plan.Compute(&graph.Graph{}, selectDeletable(&shown, own, leftovers, true), plan.Options{DestroyData: true})
	if err := fs.Err(); err != nil {
		t.Fatal(err)
	}
	c := &deletions{}
	if err := (plan.Applier{Cloud: c, Now: time.Now}).Apply(t.Context(), p); err != nil {
		t.Fatal(err)
	}
	at := func(a graph.Addr) int { return slices.Index(c.order, a) }
	group := at(own[0].Addr)
	if len(c.order) != 5 || at(own[2].Addr) > group || at(own[1].Addr) < group {
		t.Errorf("deleted in the order %v", c.order)
	}
	for _, l := range leftovers.Resources {
		if at(l.Addr) < group {
			t.Errorf("%s was deleted while Karpenter may run: %v", l.Addr, c.order)
		}
	}
	if len(own[0].UsedBy) > 0 {
		t.Errorf("what was read has changed: %v", own[0].UsedBy)
	}
}
