// SPDX-License-Identifier: Apache-2.0

package upgrade

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes/fake"

	"github.com/slipway-k8s/slipway/api/v1alpha1"
	"github.com/slipway-k8s/slipway/internal/lib/asset"
	"github.com/slipway-k8s/slipway/internal/manifest"
)

// fakeStepper is a cluster in memory.
type fakeStepper struct {
	observed Observation
	messages []string
	final    int              // calls that replace machines of all groups
	fail     func(Step) error // may be nil
	idle     bool             // steps have no effect
	isLate   bool             // steps have no effect until somebody waits
	waited   time.Duration
}

func (f *fakeStepper) observe(context.Context) (Observation, error) {
	o := f.observed
	o.Groups = slices.Clone(o.Groups)
	o.Machines = slices.Clone(o.Machines)

	return o, nil
}

func (f *fakeStepper) carryOutStep(_ context.Context, s Step) error {
	if f.fail != nil {
		if err := f.fail(s); err != nil {
			return err
		}
	}

	if !f.idle {
		f.observed = f.observed.after(s)
	}

	return nil
}

func (f *fakeStepper) replaceMachines(context.Context, []string) error {
	f.final++
	return nil
}

func (f *fakeStepper) wait(_ context.Context, d time.Duration) error {
	f.waited += d
	f.idle = f.idle && !f.isLate

	return nil
}

func (f *fakeStepper) notifyf(format string, args ...any) {
	f.messages = append(f.messages, fmt.Sprintf(format, args...))
}

func newFakeStepper() *fakeStepper {
	old := Version{1, 35, 4}

	return &fakeStepper{observed: Observation{
		NewCatalog: true,
		Groups: []Group{
			{Name: "control-plane", ControlPlane: true, Desired: old, Applied: old},
			{Name: "workers", Desired: old, Applied: old},
		},
		Machines: []Machine{
			{Node: "a", Group: "control-plane", ControlPlane: true, Version: old},
			{Node: "x", Group: "workers", Version: old},
		},
	}}
}

// TestLateEffects: a step whose effect is visible late is repeated only after a pause.
func TestLateEffects(t *testing.T) {
	f := newFakeStepper()
	f.idle = true
	f.isLate = true
	if err := carryOut(t.Context(), f, Version{1, 36, 3}, 0); err != nil || f.waited != repeatPause {
		t.Errorf("waited for %s, %v", f.waited, err)
	}
}

// TestCarryOutContinues: an upgrade whose step failed is continued with that step.
func TestCarryOutContinues(t *testing.T) {
	target := Version{1, 36, 3}
	for n := 1; n <= 6; n++ {
		f := newFakeStepper()
		calls := 0
		f.fail = func(Step) error {
			if calls++; calls == n {
				return errors.New("broken")
			}

			return nil
		}

		first := carryOut(t.Context(), f, target, 6)
		if first == nil || !strings.Contains(first.Error(), "broken") || f.final != 0 {
			t.Fatalf("step %d: %v", n, first)
		}

		failed := f.messages[len(f.messages)-1]
		f.messages = nil
		if err := carryOut(t.Context(), f, target, 6); err != nil || f.final != 1 {
			t.Errorf("step %d: the second run ends with %v", n, err)
		}

		_, what, _ := strings.Cut(failed, ": ")
		if !strings.HasSuffix(f.messages[0], what) {
			t.Errorf("the second run begins with %q, want %q", f.messages[0], what)
		}

		for _, m := range f.observed.Machines {
			if m.Version != target {
				t.Errorf("step %d: node %s has %s", n, m.Node, m.Version)
			}
		}
	}
}

// TestCarryOutEnds: a step that succeeds without an effect is not repeated forever.
func TestCarryOutEnds(t *testing.T) {
	f := newFakeStepper()
	f.idle = true
	err := carryOut(t.Context(), f, Version{1, 36, 3}, 6)
	if err == nil || !strings.Contains(err.Error(), "without an effect") {
		t.Error(err)
	}
}

func TestObserve(t *testing.T) {
	set, findings := manifest.NewSet("demo", []string{"us-east-1a", "us-east-1b", "us-east-1c"}, manifest.NewSetOptions{KubernetesVersion: "1.35.4"})
	if err := findings.Err(); err != nil {
		t.Fatal(err)
	}

	set = manifest.Default(set)
	groups, err := observeGroups(set, set)
	if err != nil {
		t.Fatal(err)
	}

	names := map[bool]string{}
	for _, g := range groups {
		names[g.ControlPlane] = g.Name
		if g.Desired != (Version{1, 35, 4}) || g.Applied != g.Desired {
			t.Errorf("%+v", g)
		}
	}

	node := func(name, group, version string) *corev1.Node {
		return &corev1.Node{
			ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{groupLabel: group}},
			Status:     corev1.NodeStatus{NodeInfo: corev1.NodeSystemInfo{KubeletVersion: version}},
		}
	}
	client := fake.NewClientset(node("a", names[true], "v1.36.3"), node("x", names[false], "v1.35.4"), node("other", "", "v1.20.0"))
	machines, err := observeMachines(t.Context(), client, groups)
	want := []Machine{
		{Node: "a", Group: names[true], ControlPlane: true, Version: Version{1, 36, 3}},
		{Node: "x", Group: names[false], Version: Version{1, 35, 4}},
	}
	if err != nil || !slices.Equal(machines, want) {
		t.Errorf("%+v, %v", machines, err)
	}
}

// TestManifestsOfSteps: the versions of a step are written into the manifests, and nothing else counts as a change.
func TestManifestsOfSteps(t *testing.T) {
	set, findings := manifest.NewSet("demo", []string{"us-east-1a", "us-east-1b", "us-east-1c"}, manifest.NewSetOptions{KubernetesVersion: "1.35.4"})
	if err := findings.Err(); err != nil {
		t.Fatal(err)
	}

	applied := manifest.Default(set)
	versions := map[string]Version{}
	for _, g := range applied.Groups {
		versions[g.Metadata.Name] = Version{1, 35, 4}
		if g.Spec.Role == v1alpha1.RoleControlPlane {
			versions[g.Metadata.Name] = Version{1, 36, 3}
		}
	}

	halfway := withVersions(applied, versions)
	lines := strings.Join(manifest.Diff(applied, halfway), "\n")
	if halfway.Cluster.Spec.KubernetesVersion != "1.36.3" || !strings.Contains(lines, "instancegroup/workers: spec.kubernetesVersion") {
		t.Errorf("the manifests of the first step differ by\n%s", lines)
	}

	if findings := manifest.Check(halfway, nil); findings.Err() != nil {
		t.Error(findings.Err())
	}

	if others := otherChanges(halfway, applied); len(others) > 0 {
		t.Errorf("versions count as other changes: %v", others)
	}

	for name := range versions {
		versions[name] = Version{1, 36, 3}
	}

	done := withVersions(halfway, versions)
	for _, g := range done.Groups {
		if g.Spec.KubernetesVersion != "" {
			t.Errorf("group %s keeps version %s", g.Metadata.Name, g.Spec.KubernetesVersion)
		}
	}

	done.Cluster.Spec.DeletionProtection = !applied.Cluster.Spec.DeletionProtection
	if others := otherChanges(done, applied); len(others) != 1 {
		t.Errorf("other changes: %v", others)
	}
}

func TestDefaultTarget(t *testing.T) {
	available := []Version{{1, 36, 3}, {1, 36, 4}, {1, 35, 4}, {1, 35, 8}, {1, 37, 0}}
	f := newFakeStepper()
	f.observed.NewCatalog = false
	if got := defaultTarget(f.observed, available); got != (Version{1, 36, 4}) {
		t.Errorf("the newest reachable version is %s", got)
	}

	f.observed.Groups[0].Desired = Version{1, 36, 3}
	if got := defaultTarget(f.observed, available); got != (Version{1, 36, 3}) {
		t.Errorf("an unfinished upgrade has target %s", got)
	}

	if got := latestReachable(Version{1, 38, 0}, available); got != (Version{1, 38, 0}) {
		t.Errorf("without a later version the target is %s", got)
	}
}

func TestCatalogKeepsVersionsInUse(t *testing.T) {
	file := func(version string) asset.File { return asset.File{Name: "kubelet", Version: version, Arch: "amd64"} }
	after := asset.Catalog{Files: []asset.File{file("1.36.3")}}.WithMissing(asset.Catalog{
		Files: []asset.File{file("1.36.3"), file("1.35.4")}, Images: []asset.Image{{Name: "pause", Version: "3"}},
	})
	if got := after.Versions("kubelet"); !slices.Equal(got, []string{"1.36.3", "1.35.4"}) || len(after.Images) != 1 {
		t.Errorf("%v %v", got, after.Images)
	}
}

func TestPermit(t *testing.T) {
	now := time.Date(2026, 11, 22, 2, 30, 0, 0, time.UTC) // a Sunday
	window := v1alpha1.MaintenanceWindow{Days: []string{"Sunday"}, Start: "02:00", Duration: "1h"}
	for _, tc := range []struct {
		settings v1alpha1.Upgrade
		at       time.Time
		until    string
		reason   string
	}{
		{v1alpha1.Upgrade{}, now, "", "spec.upgrade.automaticPatches is false"},
		{v1alpha1.Upgrade{MaintenanceWindow: window}, now, "", "spec.upgrade.automaticPatches is false"},
		{v1alpha1.Upgrade{AutomaticPatches: true, MaintenanceWindow: window}, now, "2026-11-22T03:00:00Z", ""},
		{
			v1alpha1.Upgrade{AutomaticPatches: true, MaintenanceWindow: window},
			now.Add(time.Hour), "",
			"the next maintenance window begins at 2026-11-29T02:00:00Z",
		},
	} {
		got := Permit(tc.settings, tc.at)
		if got.Reason != tc.reason || got.Until.IsZero() != (tc.until == "") || tc.until != "" && got.Until.Format(time.RFC3339) != tc.until {
			t.Errorf("%+v at %s: %+v, want %+v", tc.settings, tc.at, got, tc)
		}
	}
}

// An automatic upgrade goes to the newest patch, and neither begins nor continues one to another minor version.
func TestAutomaticTarget(t *testing.T) {
	available := []Version{{1, 35, 4}, {1, 35, 9}, {1, 36, 3}, {1, 35, 7}}
	for _, tc := range []struct {
		name      string
		change    func(*Observation)
		available []Version
		want      Version
		reason    string
	}{
		{"complete", func(*Observation) {}, available, Version{1, 35, 9}, ""},
		{"without a newer patch", func(*Observation) {}, available[:1], Version{1, 35, 4}, ""},
		{
			"killed after the manifests of a patch were written",
			func(o *Observation) { o.Groups[0].Desired = Version{1, 35, 7} }, available,
			Version{1, 35, 7},
			"",
		},
		{
			"killed after those of a minor version were written",
			func(o *Observation) { o.Groups[0].Desired = Version{1, 36, 3} }, available,
			Version{1, 36, 3},
			"the upgrade to 1.36.3 is not complete: group control-plane has 1.35.4",
		},
		{
			"a group was rolled back",
			func(o *Observation) { o.Groups[1].RolledBack = true }, available,
			Version{1, 35, 4},
			"group workers was rolled back to an earlier launch template",
		},
		{
			"workers have the former minor version", func(o *Observation) {
				o.Groups[0] = Group{Name: "control-plane", ControlPlane: true, Desired: Version{1, 36, 3}, Applied: Version{1, 36, 3}}
				o.Machines[0].Version = Version{1, 36, 3}
			}, available, Version{1, 36, 3}, "the upgrade to 1.36.3 is not complete: group workers has 1.35.4",
		},
		{
			"one node has the former minor version", func(o *Observation) {
				for i := range o.Groups {
					o.Groups[i].Desired = Version{1, 36, 3}
					o.Groups[i].Applied = Version{1, 36, 3}
				}
				o.Machines[0].Version = Version{1, 36, 3}
			}, available, Version{1, 36, 3}, "the upgrade to 1.36.3 is not complete: node x has 1.35.4",
		},
	} {
		t.Run(tc.name, func(t *testing.T) {
			f := newFakeStepper()
			f.observed.NewCatalog = false
			tc.change(&f.observed)
			if got, reason := automaticTarget(f.observed, tc.available); got != tc.want || reason != tc.reason {
				t.Errorf("%s, %q, want %s, %q", got, reason, tc.want, tc.reason)
			}
		})
	}
}

// TestWindowEnds: when the maintenance window of an automatic upgrade ends, the step that runs is interrupted and no other
// begins; the next window's run continues with it.
func TestWindowEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		permission := Permission{Until: time.Now().Add(time.Hour)}
		ctx, cancel := context.WithTimeoutCause(t.Context(), time.Hour, errWindowEnded)
		defer cancel()
		f := newFakeStepper()
		begun := 0
		f.fail = func(Step) error {
			if begun++; begun < 3 {
				return nil
			}

			<-ctx.Done() // as the rolling update does after its present machine

			return ctx.Err()
		}

		target := Version{1, 36, 3}
		err := explainWindowEnd(ctx, permission, carryOut(ctx, f, target, 6))
		want := errWindowEnded.Error() + " at " + permission.Until.Format(time.RFC3339)
		if !errors.Is(err, errWindowEnded) || !strings.HasPrefix(err.Error(), want) || begun != 3 || f.final != 0 {
			t.Fatalf("%d steps, then %v; want 3 and %q", begun, err, want)
		}

		f.fail = nil
		if err := explainWindowEnd(t.Context(), permission, carryOut(t.Context(), f, target, 6)); err != nil || f.final != 1 {
			t.Errorf("the next run: %v", err)
		}

		if err := errors.New("broken"); !errors.Is(explainWindowEnd(t.Context(), permission, err), err) {
			t.Error("a failure within the window is explained by its end")
		}
	})
}

// TestRollingRequest: what an upgrade replaces machines with comes from its request, and the rest from the manifests.
func TestRollingRequest(t *testing.T) {
	ran := false
	u := &upgrader{request: Request{Name: "demo", JoinTimeout: time.Minute, RunCommand: func(context.Context, []string) (string, error) {
		ran = true
		return "", nil
	}}}
	req := u.rollingRequest([]string{"workers"})
	if _, err := req.RunCommand(t.Context(), nil); err != nil || !ran || req.DrainTimeout != 0 || req.JoinTimeout != time.Minute {
		t.Errorf("%+v, %v", req, err)
	}
}
