// SPDX-License-Identifier: Apache-2.0

package upgrade_test

import (
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/slipway-k8s/slipway/internal/cluster/upgrade"
)

func version(text string) upgrade.Version {
	v, err := upgrade.ParseVersion(text)
	if err != nil {
		panic(err)
	}

	return v
}

// observed is a cluster of three control-plane machines and two workers at one version.
func observed(text string) upgrade.Observation {
	v := version(text)
	o := upgrade.Observation{Groups: []upgrade.Group{
		{Name: "control-plane", ControlPlane: true, Desired: v, Applied: v},
		{Name: "workers", Desired: v, Applied: v},
	}}
	for _, name := range []string{"a", "b", "c"} {
		o.Machines = append(o.Machines, upgrade.Machine{Node: name, Group: "control-plane", ControlPlane: true, Version: v})
	}
	for _, name := range []string{"x", "y"} {
		o.Machines = append(o.Machines, upgrade.Machine{Node: name, Group: "workers", Version: v})
	}

	return o
}

func describe(steps []upgrade.Step) []string {
	var out []string
	for _, s := range steps {
		out = append(out, s.Describe()+s.Failure)
	}

	return out
}

func TestPlan(t *testing.T) {
	direct := []string{
		"set the versions of groups: control-plane 1.36.3, workers 1.35.4",
		"apply the manifests: the launch templates get these versions",
		"replace the machines of control-plane one after the other",
		"set the versions of groups: workers 1.36.3",
		"apply the manifests: the launch templates get these versions",
		"replace the machines of workers one after the other",
	}
	stack := observed("1.35.4")
	stack.Stack = true
	halfway := observed("1.35.4")
	halfway.Groups[0].Desired, halfway.Groups[0].Applied = version("1.36.3"), version("1.36.3")
	halfway.Machines[1].Version = version("1.36.3")
	catalog := observed("1.36.3")
	catalog.NewCatalog = true
	pinned := observed("1.36.3")
	pinned.CatalogPending = true
	returned := observed("1.36.3")
	returned.Groups[1].RolledBack = true
	returned.Machines[4].Version = version("1.35.4")
	for name, tt := range map[string]struct {
		observed upgrade.Observation
		want     []string
	}{
		"next minor": {observed("1.35.4"), direct},
		"stack": {stack, []string{
			"set the versions of groups: control-plane 1.36.3, workers 1.36.3",
			"apply the manifests: the launch templates get these versions",
		}},
		"killed while the control plane was replaced": {halfway, direct[2:]},
		"nothing to do": {observed("1.36.3"), nil},
		"only a new catalogue": {catalog, []string{
			"pin the asset catalogue", "apply the manifests: the launch templates get these versions",
		}},
		"killed between pinning a catalogue and applying it": {pinned, []string{
			"apply the manifests: the launch templates get these versions",
		}},
		"after a rollback of the workers": {returned, []string{
			"replace the machines of workers one after the other",
		}},
		"patch":                 {observed("1.36.1"), nil},
		"two minors":            {observed("1.34.9"), nil},
		"a downgrade is a stop": {observed("1.37.0"), nil},
	} {
		t.Run(name, func(t *testing.T) {
			got := describe(upgrade.Plan(tt.observed, version("1.36.3")))
			switch name {
			case "patch":
				if len(got) != 6 || got[0] != "set the versions of groups: control-plane 1.36.3, workers 1.36.1" {
					t.Errorf("%q", got)
				}
			case "two minors":
				if len(got) != 1 || !strings.Contains(got[0], "one minor version at a time, to 1.35 first") {
					t.Errorf("%q", got)
				}
			case "a downgrade is a stop":
				if len(got) != 1 || !strings.Contains(got[0], "a downgrade is not supported") {
					t.Errorf("%q", got)
				}
			default:
				if diff := cmp.Diff(tt.want, got); diff != "" {
					t.Error(diff)
				}
			}
		})
	}
}

func TestSkewIsRefused(t *testing.T) {
	for want, change := range map[string]func(*upgrade.Observation){
		"supports kubelets of at most 3 minor versions before": func(o *upgrade.Observation) { o.Machines[4].Version = version("1.32.9") },
		"newer than the API server's 1.35.4":                   func(o *upgrade.Observation) { o.Machines[3].Version = version("1.36.0") },
		"which is newer than 1.36.3":                           func(o *upgrade.Observation) { o.Machines[0].Version = version("1.36.4") },
	} {
		o := observed("1.35.4")
		change(&o)
		if s := upgrade.Decide(o, version("1.36.3")); !strings.Contains(s.Failure, want) {
			t.Errorf("got %q, want %q", s.Failure, want)
		}
	}

	allowed := observed("1.35.4")
	allowed.Machines[4].Version = version("1.33.1")
	if s := upgrade.Decide(allowed, version("1.36.3")); s.Failure != "" {
		t.Error(s.Failure)
	}
}

// simulation is a cluster that an upgrade changes. The newest launch templates are those of applies: one that is killed
// changes some of them and records nothing. Templates are what new machines are launched from, which the replacement of a
// group's machines changes first.
type simulation struct {
	observed          upgrade.Observation
	newest, templates map[string]upgrade.Version
	// former are what they were before, to which a rollback returns them.
	former map[string]upgrade.Version
}

// rollBack returns the launch template of a group to the former one. A control plane returns to no earlier minor version,
// and only before its workers are newer.
func (s *simulation) rollBack(i int) {
	g := &s.observed.Groups[i]
	former, known := s.former[g.Name]
	if !known || former == s.templates[g.Name] {
		return
	}

	isNewer := slices.ContainsFunc(s.observed.Groups, func(w upgrade.Group) bool {
		return !w.ControlPlane && w.Desired.Compare(former) > 0
	})
	if g.ControlPlane && (former.Minor < s.templates[g.Name].Minor || isNewer) {
		return
	}

	s.templates[g.Name] = former
	g.RolledBack = true
}

// carryOut does a step; if it is killed, only parts of it, in an order that rapid draws.
func (s *simulation) carryOut(t *rapid.T, step upgrade.Step, killed bool) {
	part := func(label string) bool { return !killed || rapid.Bool().Draw(t, label) }
	switch step.Type {
	case upgrade.StepWrite:
		s.write(step, part)
	case upgrade.StepApply:
		if !killed {
			s.observed.CatalogPending = false
		}
		for i := range s.observed.Groups {
			g := &s.observed.Groups[i]
			if part("template of " + g.Name) {
				s.newest[g.Name] = g.Desired
			}
			if !killed {
				g.Applied = g.Desired
			}
		}
	case upgrade.StepReplace:
		s.moveGroups(step.Groups, part)
		for i := range s.observed.Machines {
			m := &s.observed.Machines[i]
			if slices.Contains(step.Groups, m.Group) && part("machine "+m.Node) {
				m.Version = s.templates[m.Group]
			}
		}
	case upgrade.StepDone:
	}
}

// moveGroups makes groups launch machines from their newest template.
func (s *simulation) moveGroups(names []string, part func(string) bool) {
	for i := range s.observed.Groups {
		g := &s.observed.Groups[i]
		if !slices.Contains(names, g.Name) || !part("group "+g.Name) {
			continue
		}
		if s.templates[g.Name] != s.newest[g.Name] {
			s.former[g.Name] = s.templates[g.Name]
		}
		s.templates[g.Name] = s.newest[g.Name]
		g.RolledBack = false
	}
}

// write writes workers first and the control plane last, as the manifests are written.
func (s *simulation) write(step upgrade.Step, part func(string) bool) {
	if s.observed.NewCatalog {
		s.observed.NewCatalog, s.observed.CatalogPending = false, true
	}
	for _, controlPlane := range []bool{false, true} {
		for i := range s.observed.Groups {
			g := &s.observed.Groups[i]
			v, written := step.Versions[g.Name]
			if !written || g.ControlPlane != controlPlane {
				continue
			}
			if !part("manifest of " + g.Name) {
				return
			}
			g.Desired = v
		}
	}
}

// check fails if a worker's kubelet is newer than the oldest API server, or if API servers are two minors apart.
func (s *simulation) check(t *rapid.T) {
	var servers []upgrade.Version
	for _, m := range s.observed.Machines {
		if m.ControlPlane {
			servers = append(servers, m.Version)
		}
	}
	slices.SortFunc(servers, upgrade.Version.Compare)
	if newest, oldest := servers[len(servers)-1], servers[0]; newest.Minor > oldest.Minor+1 {
		t.Fatalf("API servers of %s and %s", oldest, newest)
	}
	for _, m := range s.observed.Machines {
		if !m.ControlPlane && m.Version.Compare(servers[0]) > 0 {
			t.Fatalf("the kubelet of %s is %s, and an API server is %s", m.Node, m.Version, servers[0])
		}
	}
}

// TestUpgradeIsSafe: whatever is killed, and whichever machines fail or are added meanwhile, no worker is newer than
// the oldest API server, and the upgrade ends with every machine at the target.
func TestUpgradeIsSafe(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		s := simulation{observed: observed(rapid.SampledFrom([]string{"1.35.0", "1.35.4", "1.36.0"}).Draw(t, "from")), newest: map[string]upgrade.Version{}, templates: map[string]upgrade.Version{}, former: map[string]upgrade.Version{}}
		target := version("1.36.3")
		for range rapid.IntRange(0, 2).Draw(t, "more groups") {
			name := "group-" + string(rune('a'+len(s.observed.Groups)))
			older := version(rapid.SampledFrom([]string{"1.33.2", "1.35.0"}).Draw(t, name))
			s.observed.Groups = append(s.observed.Groups, upgrade.Group{Name: name, Desired: older, Applied: older})
			s.observed.Machines = append(s.observed.Machines, upgrade.Machine{Node: name, Group: name, Version: older})
		}
		for _, g := range s.observed.Groups {
			s.newest[g.Name] = g.Applied
			s.templates[g.Name] = g.Applied
		}
		s.observed.NewCatalog = rapid.Bool().Draw(t, "new catalogue")
		for n := 0; ; n++ {
			step := upgrade.Decide(s.observed, target)
			if step.Failure != "" {
				t.Fatalf("step %d: %s", n, step.Failure)
			}
			if step.Type == upgrade.StepDone {
				break
			}
			if n > 60 {
				t.Fatalf("the upgrade does not end: %+v", step)
			}
			s.carryOut(t, step, n < 30 && rapid.Bool().Draw(t, "killed"))
			s.check(t)
			if i := rapid.IntRange(0, 3*len(s.observed.Groups)).Draw(t, "a group rolls back"); n < 30 && i < len(s.observed.Groups) {
				s.rollBack(i)
			}
			if i := rapid.IntRange(0, 2*len(s.observed.Machines)).Draw(t, "a machine fails"); n < 30 && i < len(s.observed.Machines) {
				s.observed.Machines[i].Version = s.templates[s.observed.Machines[i].Group]
				s.check(t)
			}
		}
		var all []string
		for _, g := range s.observed.Groups {
			all = append(all, g.Name)
		}
		s.moveGroups(all, func(string) bool { return true }) // the last step of an upgrade replaces what is left
		if s.observed.NewCatalog || s.observed.CatalogPending {
			t.Errorf("the new catalogue was not applied: %+v", s.observed)
		}
		for _, m := range s.observed.Machines {
			if m.Version != target {
				t.Errorf("node %s has %s", m.Node, m.Version)
			}
		}
		for name := range maps.Keys(s.templates) {
			if s.templates[name] != target {
				t.Errorf("group %s launches %s", name, s.templates[name])
			}
		}
	})
}
