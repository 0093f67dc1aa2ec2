// SPDX-License-Identifier: Apache-2.0

package graph_test

import (
	"encoding/base64"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/slipway-k8s/slipway/internal/infra/graph"
)

type (
	net struct {
		CIDR string `aws:"CidrBlock,immutable"`
		DNS  bool   `aws:"EnableDnsSupport,always"`
		Note string // no tag: not a property
	}
	host struct {
		Net    graph.Ref[net]    `aws:"VpcId,immutable"`
		Others []graph.Ref[net]  `aws:"Others,set" tf:"other_ids"`
		Disks  []disk            `aws:"Disks"`
		Script graph.Text        `aws:"UserData"`
		Tags   map[string]string `aws:"Tags,tags"`
		Policy graph.JSON        `aws:"Policy"`
	}
	disk struct {
		Size int        `aws:"Size"`
		Key  graph.Text `aws:"Key"`
	}
)

func (net) Kind() graph.Kind  { return graph.Kind{Name: "net"} }
func (host) Kind() graph.Kind { return graph.Kind{Name: "host"} }

func values(r graph.Resource) map[string]any {
	out := map[string]any{}
	for _, f := range graph.Fields(r) {
		v := f.Value
		if t, ok := v.(graph.Text); ok {
			v = t.String()
		}
		out[f.Property] = v
	}
	return out
}

func TestFields(t *testing.T) {
	g := &graph.Graph{}
	a := graph.Add(g, "a", net{CIDR: "10.0.0.0/8", Note: "x"})
	h := host{
		Net: a, Others: []graph.Ref[net]{graph.UnmanagedRef[net]("net-2"), graph.UnmanagedRef[net]("net-1")},
		Disks: []disk{{Size: 3, Key: graph.LiteralText("k")}}, Script: graph.Concat(graph.LiteralText("at "), a.Attr("Name"), graph.LiteralText("!")),
		Policy: graph.CanonicalJSON(`{"b": 1, "a": [2]}`),
	}
	want := map[string]any{
		"VpcId": graph.Symbol{Addr: "net/a"}, "Others": []any{"net-1", "net-2"}, "UserData": "at ${net/a.Name}!",
		"Disks": []any{map[string]any{"Size": int64(3), "Key": "k"}}, "Policy": `{"a":[2],"b":1}`,
	}
	if diff := cmp.Diff(want, values(h)); diff != "" {
		t.Error(diff)
	}
	if diff := cmp.Diff(map[string]any{"EnableDnsSupport": false}, values(net{Note: "x"})); diff != "" {
		t.Errorf("an enforced zero: %s", diff)
	}
	if diff := cmp.Diff([]string{"VpcId", "Others", "Disks", "Disks/*/Size", "Disks/*/Key", "UserData", "Tags", "Policy"}, graph.NestedPaths(h)); diff != "" {
		t.Error(diff)
	}
}

func TestResolveLeavesTheOriginalAlone(t *testing.T) {
	g := &graph.Graph{}
	a := graph.Add(g, "a", net{CIDR: "10.0.0.0/8"})
	h := host{
		Net: a, Others: []graph.Ref[net]{a}, Disks: []disk{{Key: a.Attr("Arn")}},
		Script: graph.Concat(graph.LiteralText("id="), a.ID(), graph.LiteralText(" name="), a.Attr("Name")).Base64(),
	}
	known := map[graph.Symbol]string{{Addr: "net/a"}: "net-1", {Addr: "net/a", Attribute: "Arn"}: "arn:1", {Addr: "net/a", Attribute: "Name"}: "one"}
	got := graph.Resolve(h, func(s graph.Symbol) (string, bool) { v, ok := known[s]; return v, ok })
	want := map[string]any{
		"VpcId": "net-1", "Others": []any{"net-1"}, "Disks": []any{map[string]any{"Key": "arn:1"}},
		"UserData": base64.StdEncoding.EncodeToString([]byte("id=net-1 name=one")),
	}
	if diff := cmp.Diff(want, values(got)); diff != "" {
		t.Error(diff)
	}
	if n := len(graph.Symbols(got)); n != 0 {
		t.Errorf("%d symbols are left", n)
	}
	if diff := cmp.Diff([]graph.Symbol{{Addr: "net/a"}, {Addr: "net/a", Attribute: "Arn"}, {Addr: "net/a", Attribute: "Name"}}, graph.Symbols(h)); diff != "" {
		t.Errorf("the original changed: %s", diff)
	}
}

// TestProtectOfUnmanaged: a volume or key that Slipway does not manage is not in the graph.
func TestProtectOfUnmanaged(t *testing.T) {
	g := &graph.Graph{}
	a := graph.Add(g, "a", net{})
	graph.Protect(g, graph.UnmanagedRef[net]("net-9"))
	graph.Protect(g, graph.Ref[net]{})
	if g.Node("net/a").Protected {
		t.Error("net/a is protected by a reference to another resource")
	}
	graph.Protect(g, a)
	if !g.Node("net/a").Protected {
		t.Error("net/a is not protected")
	}
}

func TestAddRefusesWhatIsABug(t *testing.T) {
	for name, add := range map[string]func(g *graph.Graph){
		"an address twice":             func(g *graph.Graph) { graph.Add(g, "a", net{}) },
		"a reference to another graph": func(g *graph.Graph) { graph.Add(g, "h", host{Net: graph.Add(&graph.Graph{}, "elsewhere", net{})}) },
	} {
		t.Run(name, func(t *testing.T) {
			g := &graph.Graph{}
			graph.Add(g, "a", net{})
			defer func() {
				if recover() == nil {
					t.Error("Add did not panic")
				}
			}()
			add(g)
		})
	}
}

func TestDependencies(t *testing.T) {
	g := &graph.Graph{}
	a, b := graph.Add(g, "a", net{}), graph.Add(g, "b", net{})
	graph.Add(g, "h", host{Net: a, Script: a.Attr("Name")}, b, a, graph.UnmanagedRef[net]("net-9"))
	n := g.Node("host/h")
	if diff := cmp.Diff([]graph.Addr{"net/a", "net/b"}, n.Deps); diff != "" {
		t.Error(diff)
	}
	if diff := cmp.Diff([]graph.Addr{"net/b"}, n.ExplicitDeps); diff != "" {
		t.Errorf("explicit dependencies: %s", diff)
	}
}

func TestSnake(t *testing.T) {
	for in, want := range map[string]string{
		"CidrBlock": "cidr_block", "DNSName": "dns_name", "EnableDnsHostnames": "enable_dns_hostnames", "VpcId": "vpc_id",
		"MapPublicIpOnLaunch": "map_public_ip_on_launch", "TargetGroupARNs": "target_group_ar_ns", "Iops": "iops",
	} {
		if got := graph.Snake(in); got != want {
			t.Errorf("%s: %s, want %s", in, got, want)
		}
	}
}

func FuzzCanonical(f *testing.F) {
	f.Add(`{"b":[1,2,{"c":null}],"a":"x"}`)
	f.Add(`no json`)
	f.Fuzz(func(t *testing.T, doc string) {
		once := graph.CanonicalJSON(doc)
		if twice := graph.CanonicalJSON(string(once)); twice != once {
			t.Errorf("%q becomes %q, then %q", doc, once, twice)
		}
	})
}

func FuzzText(f *testing.F) {
	f.Add("a", "b", "c")
	f.Fuzz(func(t *testing.T, a, b, c string) {
		got, known := graph.Concat(graph.LiteralText(a), graph.LiteralText(b), graph.LiteralText(c)).Literal()
		if !known || got != strings.Join([]string{a, b, c}, "") {
			t.Errorf("got %q", got)
		}
	})
}

// TestReferencesInDocuments: a reference in a JSON document is a dependency and a symbol, and is replaced when its value is
// known.
func TestReferencesInDocuments(t *testing.T) {
	g := &graph.Graph{}
	a := graph.Add(g, "a", net{CIDR: "10.0.0.0/8"})
	document := graph.CanonicalJSON(`{"on":["arn:` + graph.Symbol{Addr: a.Addr()}.InJSON() + `/x","` + graph.Symbol{Addr: a.Addr(), Attribute: "Arn"}.InJSON() + `"],"to":1}`)
	h := host{Policy: document}
	graph.Add(g, "h", h)
	if diff := cmp.Diff([]graph.Addr{"net/a"}, g.Node("host/h").Deps); diff != "" {
		t.Error(diff)
	}
	if diff := cmp.Diff(map[string]any{"Policy": `{"on":["arn:${net/a}/x","${net/a.Arn}"],"to":1}`}, values(h)); diff != "" {
		t.Error(diff)
	}

	known := map[graph.Symbol]string{{Addr: "net/a"}: "net-1"}
	lookup := func(s graph.Symbol) (string, bool) { v, ok := known[s]; return v, ok }
	if diff := cmp.Diff([]graph.Symbol{{Addr: "net/a", Attribute: "Arn"}}, graph.Symbols(graph.Resolve(h, lookup))); diff != "" {
		t.Errorf("half of it is known: %s", diff)
	}
	known[graph.Symbol{Addr: "net/a", Attribute: "Arn"}] = "arn:1"
	if diff := cmp.Diff(map[string]any{"Policy": `{"on":["arn:net-1/x","arn:1"],"to":1}`}, values(graph.Resolve(h, lookup))); diff != "" {
		t.Error(diff)
	}
	if again := graph.JSONOf(document.Text()); again != document {
		t.Errorf("%s becomes %s", document, again)
	}
}

func FuzzReferencesInDocuments(f *testing.F) {
	f.Add(`{"a":"@@ref net/a Arn@@"}`)
	f.Add(`@@ref @@ref x y@@`)
	f.Fuzz(func(t *testing.T, document string) {
		if again := graph.JSONOf(graph.JSON(document).Text()); again != graph.JSON(document) {
			t.Errorf("%q becomes %q", document, again)
		}
	})
}
