// SPDX-License-Identifier: Apache-2.0

package plan_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/slipway-k8s/slipway/internal/infra/graph"
	"github.com/slipway-k8s/slipway/internal/infra/plan"
)

// The kinds of these tests: a net holds zones (data that must not be replaced), gates (replaced in place) and
// rules (found through their net), and machines refer to zones, to a gate's name and to a template's version.
type (
	net struct {
		CIDR string            `aws:"Cidr"`
		Tags map[string]string `aws:"Tags,tags"`
	}
	zone struct {
		Net  graph.Ref[net]    `aws:"Net,immutable"`
		Name string            `aws:"Name,immutable"`
		Tags map[string]string `aws:"Tags,tags"`
	}
	gate struct {
		Net  graph.Ref[net] `aws:"Net,immutable"`
		Port int            `aws:"Port,immutable"`
	}
	rule struct {
		Net  graph.Ref[net] `aws:"Net,immutable"`
		From string         `aws:"From,immutable"`
		Note string         `aws:"Note"`
	}
	template struct {
		Script graph.Text `aws:"Script"`
	}
	machine struct {
		Zones    []graph.Ref[zone]   `aws:"Zones,set"`
		Template graph.Ref[template] `aws:"Template"`
		Version  graph.Text          `aws:"Version"`
		Size     int                 `aws:"Size,always"`
	}
)

func (net) Kind() graph.Kind  { return graph.Kind{Name: "net"} }
func (zone) Kind() graph.Kind { return graph.Kind{Name: "zone"} }
func (gate) Kind() graph.Kind { return graph.Kind{Name: "gate"} }
func (rule) Kind() graph.Kind {
	return graph.Kind{Name: "rule", KeyProperties: []string{"Net", "From"}}
}

func (template) Kind() graph.Kind {
	return graph.Kind{Name: "template", Attributes: map[string]string{"Version": "version"}, VolatileAttributes: []string{"Version"}}
}

func (machine) Kind() graph.Kind {
	return graph.Kind{Name: "machine", ImplicitDependencies: []string{"gate"}}
}

// cloud is a strict one: it refuses to delete what is in use and to use what is not there.
type cloud struct {
	mu      sync.Mutex
	things  map[string]plan.ActualResource
	next    int
	made    map[string]int
	fail    func(plan.Task) error
	changes int
}

type classed struct {
	error
	class plan.ErrorClass
}

func (c classed) Class() plan.ErrorClass { return c.class }

func (c *cloud) actual() []plan.ActualResource {
	var out []plan.ActualResource
	for _, a := range c.things {
		if len(a.Resource.Kind().KeyProperties) > 0 {
			a.Addr = ""
		}
		out = append(out, a)
	}
	return out
}

func (c *cloud) check(t plan.Task) error {
	if c.fail != nil {
		if err := c.fail(t); err != nil {
			return err
		}
	}
	if t.Desired == nil {
		return nil
	}
	for _, p := range graph.References(t.Desired) {
		if a, ok := c.things[p.Literal()]; !ok || a.Resource.Kind().Name != p.KindName() {
			return fmt.Errorf("%s refers to %s %q, which does not exist", t.Step.Addr, p.KindName(), p.Literal())
		}
	}
	return nil
}

func (c *cloud) Create(_ context.Context, t plan.Task) (plan.StepResult, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if err := c.check(t); err != nil {
		return plan.StepResult{}, err
	}
	c.next++
	c.changes++
	a := plan.ActualResource{Addr: t.Step.Addr, ID: fmt.Sprintf("id-%d", c.next), Resource: t.Desired}
	if c.made == nil {
		c.made = map[string]int{}
	}
	c.made[t.Step.Kind]++ // counted by kind: which of two operations comes first is chance
	a.Attributes = map[string]string{"Version": "1", "Name": fmt.Sprintf("%s-%d.example", t.Step.Kind, c.made[t.Step.Kind])}
	c.things[a.ID] = a
	return plan.StepResult{ID: a.ID, Attributes: a.Attributes}, nil
}

func (c *cloud) Update(_ context.Context, t plan.Task) (plan.StepResult, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if err := c.check(t); err != nil {
		return plan.StepResult{}, err
	}
	c.changes++
	a := c.things[t.Actual.ID]
	a.Resource = t.Desired
	a.Attributes = map[string]string{"Version": a.Attributes["Version"] + "1", "Name": a.Attributes["Name"]}
	c.things[a.ID] = a
	return plan.StepResult{ID: a.ID, Attributes: a.Attributes}, nil
}

func (c *cloud) Delete(_ context.Context, t plan.Task) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if err := c.check(t); err != nil {
		return err
	}
	for _, a := range c.things {
		for _, p := range graph.References(a.Resource) {
			if p.Literal() == t.Actual.ID && p.KindName() == t.Step.Kind {
				return fmt.Errorf("DependencyViolation: %s is used by %s", t.Step.Addr, a.Addr)
			}
		}
		if slices.Contains(a.Resource.Kind().ImplicitDependencies, t.Step.Kind) && t.Step.Action == plan.Delete {
			return fmt.Errorf("DependencyViolation: %s is needed by %s", t.Step.Addr, a.Addr)
		}
	}
	c.changes++
	delete(c.things, t.Actual.ID)
	return nil
}

func (c *cloud) WaitReady(context.Context, plan.Task, plan.StepResult) error { return nil }

// spec is what a random manifest may say.
type spec struct {
	Zones    int
	Rules    []string
	Port     int
	Tag      string
	Script   string
	Machines int
}

func specs() *rapid.Generator[spec] {
	return rapid.Custom(func(t *rapid.T) spec {
		return spec{
			Zones: rapid.IntRange(1, 4).Draw(t, "zones"), Port: rapid.IntRange(1, 3).Draw(t, "port"),
			Rules: rapid.SliceOfNDistinct(rapid.StringMatching("[a-d]"), 0, 4, rapid.ID[string]).Draw(t, "rules"),
			Tag:   rapid.StringMatching("[ab]").Draw(t, "tag"), Script: rapid.StringMatching("[ab]").Draw(t, "script"),
			Machines: rapid.IntRange(0, 3).Draw(t, "machines"),
		}
	})
}

func (s spec) graph() *graph.Graph {
	g := &graph.Graph{}
	n := graph.Add(g, "main", net{CIDR: "10.0.0.0/8", Tags: map[string]string{"t": s.Tag}})
	var zones []graph.Ref[zone]
	for i := range s.Zones {
		zones = append(zones, graph.Add(g, strconv.Itoa(i), zone{Net: n, Name: strconv.Itoa(i), Tags: map[string]string{"t": s.Tag}}))
	}
	for _, r := range s.Rules {
		graph.Add(g, r, rule{Net: n, From: r, Note: s.Tag})
	}
	door := graph.Add(g, "door", gate{Net: n, Port: s.Port})
	for i := range s.Machines {
		tpl := graph.Add(g, strconv.Itoa(i), template{Script: graph.Concat(graph.LiteralText(s.Script+" "), door.Attr("Name")).Base64()})
		graph.Add(g, strconv.Itoa(i), machine{Zones: zones, Template: tpl, Version: tpl.Attr("Version"), Size: i}, door)
	}
	return g
}

func walk(c plan.Cloud) plan.Applier { return plan.Applier{Cloud: c, Now: time.Now} }

func TestConverge(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		c := &cloud{things: map[string]plan.ActualResource{}}
		for range rapid.IntRange(1, 4).Draw(t, "rounds") {
			s := specs().Draw(t, "spec")
			g := s.graph()
			unlucky := rapid.SliceOfN(rapid.IntRange(0, 30), 0, 6).Draw(t, "unlucky")
			n := 0
			c.fail = func(plan.Task) error {
				n++
				if slices.Contains(unlucky, n) {
					return errors.New("refused")
				}
				return nil
			}
			drift(t, c)
			apply(t, c, g)
			c.fail = nil
			if err := apply(t, c, g); err != nil {
				t.Fatalf("second apply of %+v: %v", s, err)
			}
			if rest, _ := plan.Compute(g, c.actual(), plan.Options{}); !rest.IsEmpty() {
				t.Fatalf("not converged: %v", rest.Steps)
			}
		}
		if err := apply(t, c, &graph.Graph{}); err != nil {
			t.Fatal(err)
		}
		if len(c.things) != 0 {
			t.Fatalf("left behind: %v", c.things)
		}
	})
}

// drift changes resources outside Slipway: it removes rules, adds some, and creates a second resource of the
// same address.
func drift(t *rapid.T, c *cloud) {
	for _, id := range slices.Sorted(func(yield func(string) bool) {
		for id := range c.things {
			if !yield(id) {
				return
			}
		}
	}) {
		a := c.things[id]
		switch a.Resource.(type) {
		case rule:
			if rapid.Bool().Draw(t, "revoke "+id) {
				delete(c.things, id)
			}
		case net:
			if rapid.Bool().Draw(t, "foreign rule") {
				c.next++
				f := fmt.Sprintf("id-%d", c.next)
				c.things[f] = plan.ActualResource{ID: f, Resource: rule{Net: graph.UnmanagedRef[net](id), From: "world"}}
			}
		case zone:
			if rapid.IntRange(0, 5).Draw(t, "twin") == 0 {
				c.next++
				twin := a
				twin.ID = fmt.Sprintf("id-%d", c.next)
				c.things[twin.ID] = twin
			}
		}
	}
}

func apply(t *rapid.T, c *cloud, g *graph.Graph) error {
	p, fs := plan.Compute(g, c.actual(), plan.Options{DestroyData: true})
	if err := fs.Err(); err != nil {
		t.Fatalf("refused: %v", err)
	}
	seen := map[graph.Addr]bool{}
	for _, s := range p.Steps {
		if s.Action != plan.Delete {
			for _, d := range g.Node(s.Addr).Deps {
				if slices.ContainsFunc(p.Steps, func(o plan.Step) bool { return o.Addr == d && o.Action != plan.Delete }) && !seen[d] {
					t.Fatalf("%s comes before %s, which it needs", s.Addr, d)
				}
			}
		}
		seen[s.Addr] = true
	}
	return walk(c).Apply(t.Context(), p)
}

func small() spec {
	return spec{Zones: 1, Rules: []string{"a"}, Port: 1, Tag: "a", Script: "a", Machines: 1}
}

// lines returns the plan from one spec to another as a person reads it.
func lines(t *testing.T, from, to spec, between func(*cloud)) []string {
	t.Helper()
	c := &cloud{things: map[string]plan.ActualResource{}}
	p, _ := plan.Compute(from.graph(), nil, plan.Options{})
	if err := walk(c).Apply(t.Context(), p); err != nil {
		t.Fatal(err)
	}
	if between != nil {
		between(c)
	}
	before := c.changes
	p, fs := plan.Compute(to.graph(), c.actual(), plan.Options{})
	if err := fs.Err(); err != nil {
		t.Fatal(err)
	}
	if c.changes != before {
		t.Fatal("planning changed something")
	}
	var out []string
	for _, s := range p.Steps {
		line := []string{string(s.Action) + " " + string(s.Addr)}
		for _, ch := range s.Changes {
			line = append(line, ch.String())
		}
		out = append(out, strings.Join(line, " | "))
	}
	return out
}

func TestPlanLines(t *testing.T) {
	edit := func(f func(*spec)) spec { s := small(); f(&s); return s }
	find := func(c *cloud, kind string) plan.ActualResource {
		for _, a := range c.things {
			if a.Resource.Kind().Name == kind {
				return a
			}
		}
		t.Fatalf("no %s", kind)
		return plan.ActualResource{}
	}
	for name, tc := range map[string]struct {
		to      spec
		between func(*cloud)
		want    []string
	}{
		"nothing": {to: small()},
		"a tag": {to: edit(func(s *spec) { s.Tag = "b" }), want: []string{
			`update net/main | Tags[t]: "a" → "b"`, `update zone/0 | Tags[t]: "a" → "b"`, `update rule/a | Note: "a" → "b"`,
		}},
		"a new version reaches the group": {to: edit(func(s *spec) { s.Script = "b" }), want: []string{
			`update template/0 | Script: "YSBnYXRlLTEuZXhhbXBsZQ==" → "YiBnYXRlLTEuZXhhbXBsZQ=="`,
			`update machine/0 | Version: "1" → (known after apply)`,
		}},
		"a rule revoked by hand": {to: small(), between: func(c *cloud) { delete(c.things, find(c, "rule").ID) }, want: []string{"create rule/a"}},
		"a rule added by hand": {to: small(), between: func(c *cloud) {
			c.things["x"] = plan.ActualResource{ID: "x", Resource: rule{Net: graph.UnmanagedRef[net](find(c, "net").ID), From: "world"}}
		}, want: []string{"delete rule/main:world"}},
		"a foreign tag is left alone": {to: small(), between: func(c *cloud) {
			a := find(c, "net")
			a.Resource = net{CIDR: "10.0.0.0/8", Tags: map[string]string{"t": "a", "cost-centre": "7"}}
			c.things[a.ID] = a
		}},
		"a tag of Slipway's that the manifest does not have": {to: small(), between: func(c *cloud) {
			a := find(c, "net")
			a.Resource = net{CIDR: "10.0.0.0/8", Tags: map[string]string{"t": "a", "slipway.dev/old": "7"}}
			c.things[a.ID] = a
		}, want: []string{`update net/main | Tags[slipway.dev/old]: "7" → (not set)`}},
		"an immutable property": {to: edit(func(s *spec) { s.Port = 2; s.Machines = 0 }), want: []string{
			`replace gate/door | Port: 1 → 2  # forces replacement`, "delete machine/0", "delete template/0",
		}},
	} {
		t.Run(name, func(t *testing.T) {
			if diff := cmp.Diff(tc.want, lines(t, small(), tc.to, tc.between)); diff != "" {
				t.Error(diff)
			}
		})
	}
}

func TestPlanIsDeterministic(t *testing.T) {
	c := &cloud{things: map[string]plan.ActualResource{}}
	s := spec{Zones: 3, Rules: []string{"a", "b", "c"}, Port: 1, Tag: "a", Script: "a", Machines: 3}
	p, _ := plan.Compute(s.graph(), nil, plan.Options{})
	if err := walk(c).Apply(t.Context(), p); err != nil {
		t.Fatal(err)
	}
	var first string
	for range 20 {
		p, _ := plan.Compute(&graph.Graph{}, c.actual(), plan.Options{})
		b, err := json.Marshal(p.Document("demo"))
		if err != nil {
			t.Fatal(err)
		}
		if first == "" {
			first = string(b)
		}
		if diff := cmp.Diff(first, string(b)); diff != "" {
			t.Fatal(diff)
		}
	}
	if !strings.Contains(first, `"summary":{"add":0,"change":0,"destroy":14,"publish":0}`) {
		t.Error(first)
	}
}

type vol struct {
	Zone string `aws:"AvailabilityZone,immutable"`
}

func (vol) Kind() graph.Kind {
	return graph.Kind{Name: "vol", Lifecycle: graph.Lifecycle{HoldsData: true, Replacement: graph.ForbidReplacement}}
}

func TestDataIsProtected(t *testing.T) {
	have := []plan.ActualResource{{Addr: "vol/etcd-a", ID: "vol-1", Resource: vol{Zone: "a"}}}
	if _, fs := plan.Compute(&graph.Graph{}, have, plan.Options{}); fs.Err() == nil {
		t.Error("a volume would be destroyed without a finding")
	}
	if p, fs := plan.Compute(&graph.Graph{}, have, plan.Options{DestroyData: true}); fs.Err() != nil || len(p.Steps) != 1 {
		t.Errorf("with DestroyData: %v, %v", p.Steps, fs)
	}
	g := &graph.Graph{}
	graph.Add(g, "etcd-a", vol{Zone: "b"})
	if _, fs := plan.Compute(g, have, plan.Options{DestroyData: true}); fs.Err() == nil {
		t.Error("the plan moves a volume to another zone")
	}
}
