// SPDX-License-Identifier: Apache-2.0

package rollingupdate

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"

	"github.com/slipway-k8s/slipway/api/v1alpha1"
	"github.com/slipway-k8s/slipway/internal/manifest"
)

// fakePools are groups of Karpenter that wait for an update.
type fakePools struct {
	cluster  *fakeCluster
	waiting  []string
	promoted []string
	// machines is how many machines had the newest version when the groups were promoted.
	machines int
}

func (p *fakePools) Waiting(context.Context) ([]string, error) { return p.waiting, nil }

func (p *fakePools) Promote(_ context.Context, groups []string) ([]string, error) {
	p.promoted = append(p.promoted, groups...)
	for _, m := range p.cluster.machines {
		if m.Version == "2" {
			p.machines++
		}
	}
	return groups, nil
}

// TestKarpenterGroupsAreUpdatedLast: Karpenter replaces machines after all others were replaced, and only once the update is
// approved. Without machines of Auto Scaling groups to replace, the update is about Karpenter's alone.
func TestKarpenterGroupsAreUpdatedLast(t *testing.T) {
	do := func(ctx context.Context, work func(context.Context) error) error { return work(ctx) }
	f := newFakeCluster(t, 1, 2)
	p := &fakePools{cluster: f, waiting: []string{"burst"}}
	u := f.updater(Request{Name: "demo"})
	u.pools = p
	if r, err := u.showAndRun(t.Context(), do); err != nil || r.Replaced != 3 || !slices.Equal(p.promoted, []string{"burst"}) || p.machines != 3 {
		t.Errorf("%+v %v: promoted %v when %d machines were new", r, err, p.promoted, p.machines)
	}
	if all := strings.Join(f.messages, "\n"); !strings.Contains(all, "Karpenter will replace the machines of burst") || !strings.Contains(all, "kubectl get nodeclaims") {
		t.Errorf("the messages are\n%s", all)
	}

	p.promoted = nil
	refused := errors.New("not approved")
	u = f.updater(Request{Name: "demo", Approve: func(int) error { return refused }})
	u.pools = p
	if _, err := u.showAndRun(t.Context(), do); !errors.Is(err, refused) || len(p.promoted) > 0 {
		t.Errorf("%v: promoted %v", err, p.promoted)
	}
	u = f.updater(Request{Name: "demo"})
	u.pools = p
	if r, err := u.showAndRun(t.Context(), do); err != nil || r.UpToDate || r.Replaced != 0 || len(p.promoted) != 1 {
		t.Errorf("%+v %v: promoted %v", r, err, p.promoted)
	}
	p.waiting = nil
	if r, err := u.showAndRun(t.Context(), do); err != nil || !r.UpToDate {
		t.Errorf("%+v %v", r, err)
	}
}

// TestPoolsOfRequest: an update is about the groups that it names, and a rollback about none of Karpenter's.
func TestPoolsOfRequest(t *testing.T) {
	group := func(name, manager string) v1alpha1.InstanceGroup {
		return v1alpha1.InstanceGroup{Metadata: v1alpha1.Metadata{Name: name}, Spec: v1alpha1.InstanceGroupSpec{Manager: manager}}
	}
	set := manifest.Set{Groups: []v1alpha1.InstanceGroup{group("workers", ""), group("burst", v1alpha1.ManagerKarpenter), group("gpu", v1alpha1.ManagerKarpenter)}}
	for _, c := range []struct {
		request Request
		want    []string
	}{
		{Request{}, []string{"burst", "gpu"}},
		{Request{Groups: []string{"workers", "gpu"}}, []string{"gpu"}},
		{Request{Groups: []string{"workers"}}, nil},
		{Request{Rollback: true}, nil},
	} {
		var have []string
		if p, ok := newPools(nil, set, c.request).(sessionPools); ok {
			have = p.groups
		}
		if !slices.Equal(have, c.want) {
			t.Errorf("%+v is about %v, want %v", c.request, have, c.want)
		}
	}
}
