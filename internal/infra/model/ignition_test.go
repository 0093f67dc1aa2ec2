// SPDX-License-Identifier: Apache-2.0

package model_test

import (
	"encoding/base64"
	"encoding/json"
	"strings"
	"testing"

	"github.com/coreos/ignition/v2/config/v3_3"
	"github.com/vincent-petithory/dataurl"

	"github.com/slipway-k8s/slipway/internal/infra/awskind"
	"github.com/slipway-k8s/slipway/internal/infra/graph"
	"github.com/slipway-k8s/slipway/internal/infra/model"
	"github.com/slipway-k8s/slipway/internal/machine/node"
	"github.com/slipway-k8s/slipway/internal/manifest"
)

// userDataOf is a template's user data once AWS has named everything, and once a renderer has named what
// signals.
func userDataOf(t *testing.T, g *graph.Graph, name string) string {
	t.Helper()
	n := g.Node(graph.Address(awskind.LaunchTemplate{}.Kind(), name))
	r := graph.Resolve(n.Resource, func(graph.Symbol) (string, bool) {
		return "internal-demo-0123456789abcdef.elb.us-east-1.amazonaws.com", true
	})
	text, ok := r.(awskind.LaunchTemplate).Data.UserData.Literal()
	if !ok {
		t.Fatalf("user data of %s is not known", name)
	}
	if plain, err := base64.StdEncoding.DecodeString(text); err == nil {
		text = string(plain)
	}
	if _, before, after := graph.FindSignals(text); after != "" {
		text = before + "GroupA,GroupB" + after
	}
	return strings.ReplaceAll(text, graph.StackNamePlaceholder, "demo-stack")
}

// TestIgnition: Ignition's own parser takes the user data of Flatcar, and the agent reads from it what it
// reads elsewhere.
func TestIgnition(t *testing.T) {
	for _, signals := range []bool{false, true} {
		in := input(t, manifest.NewSetOptions{})
		in.SignalStack = signals
		for i := range in.Groups {
			in.Groups[i].Spec.UserDataFormat = manifest.FormatIgnition
		}
		g, fs := model.Build(in)
		if err := fs.Err(); err != nil {
			t.Fatal(err)
		}
		for _, name := range []string{"control-plane-a", "workers"} {
			text := userDataOf(t, g, name)
			c, report, err := v3_3.Parse([]byte(text))
			if err != nil || len(report.Entries) > 0 {
				t.Fatalf("%s: %v\n%s\n%s", name, err, report, text)
			}
			if len(text) > node.MaxUserDataBytes {
				t.Errorf("%s has %d bytes", name, len(text))
			}
			files := map[string]string{}
			for _, f := range c.Storage.Files {
				files[f.Path] = *f.Contents.Source
				if f.Path == "/opt/bin/slipway-node" && (*f.Mode != 0o755 || !strings.HasPrefix(*f.Contents.Verification.Hash, "sha256-")) {
					t.Errorf("the agent is %+v", f)
				}
			}
			var boot node.BootConfig
			if data, err := dataurl.DecodeString(files["/etc/slipway/boot.json"]); err != nil {
				t.Fatal(err)
			} else if err := json.Unmarshal(data.Data, &boot); err != nil {
				t.Fatalf("%v: %s", err, data.Data)
			}
			if boot.Agent.URL != files["/opt/bin/slipway-node"] || boot.Cluster != "demo" || !strings.HasSuffix(boot.API.Internal, "amazonaws.com") {
				t.Errorf("the agent is told %+v", boot)
			}
			if signals && (boot.SignalResources != "GroupA,GroupB" || boot.StackName != "demo-stack") {
				t.Errorf("the agent is told %+v", boot)
			}
			if len(c.Systemd.Units) != 1 || !*c.Systemd.Units[0].Enabled {
				t.Errorf("units are %+v", c.Systemd.Units)
			}
		}
	}
}

// TestAgentUnits: the unit of the agent, whose memory has keys, is the same with both kinds of user data but for the place of
// the program. Its memory gets to no swap and no core dump.
func TestAgentUnits(t *testing.T) {
	const start, end = "[Unit]\n", "multi-user.target\n"
	units := map[string]string{}
	for _, format := range []string{"", manifest.FormatIgnition} {
		in := input(t, manifest.NewSetOptions{})
		for i := range in.Groups {
			in.Groups[i].Spec.UserDataFormat = format
		}
		g, fs := model.Build(in)
		if err := fs.Err(); err != nil {
			t.Fatal(err)
		}
		text := userDataOf(t, g, "control-plane-a")
		if format == manifest.FormatIgnition {
			c, _, err := v3_3.Parse([]byte(text))
			if err != nil {
				t.Fatal(err)
			}
			text = *c.Systemd.Units[0].Contents
		}
		_, after, _ := strings.Cut(text, start)
		unit, _, found := strings.Cut(after, end)
		if !found {
			t.Fatalf("no unit in %s", text)
		}
		units[format] = strings.Replace(unit, "/opt/bin/", "/usr/local/bin/", 1)
	}
	if units[""] != units[manifest.FormatIgnition] {
		t.Errorf("units differ:\n%s\n%s", units[""], units[manifest.FormatIgnition])
	}
	for _, line := range []string{"LimitCORE=0\n", "MemorySwapMax=0\n", "RestrictSUIDSGID=1\n"} {
		if !strings.Contains(units[""], line) {
			t.Errorf("no line %q in:\n%s", line, units[""])
		}
	}
}
