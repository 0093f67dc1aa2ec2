// SPDX-License-Identifier: Apache-2.0

package diagram_test

import (
	"bytes"
	"encoding/xml"
	"errors"
	"flag"
	"io"
	"os"
	"strings"
	"testing"

	"github.com/slipway-k8s/slipway/internal/infra/awskind"
	"github.com/slipway-k8s/slipway/internal/infra/graph"
	"github.com/slipway-k8s/slipway/internal/infra/render/diagram"
	"github.com/slipway-k8s/slipway/internal/infra/render/rendertest"
	"github.com/slipway-k8s/slipway/internal/manifest"
)

var update = flag.Bool("update", false, "rewrite the golden")

func TestEveryTopologyIsDrawn(t *testing.T) {
	for _, x := range rendertest.Topologies() {
		t.Run(x.Name, func(t *testing.T) {
			g := x.Graph(t)
			svg := diagram.RenderSVG(g)
			wellFormed(t, svg)
			if !bytes.Equal(svg, diagram.RenderSVG(g)) {
				t.Error("the same graph gave other bytes")
			}
			for _, n := range g.Nodes() {
				switch r := n.Resource.(type) {
				case awskind.Subnet:
					want(t, svg, "subnet "+n.Name+" · "+r.CIDR, 1)
				case awskind.AutoScalingGroup:
					want(t, svg, ">"+n.Name+" · ", len(r.Subnets))
				case awskind.LoadBalancer:
					want(t, svg, "Load balancer "+n.Name+"<", 1)
				case awskind.SecurityGroup:
					if !strings.Contains(string(svg), ">"+n.Name+"</text>") {
						t.Errorf("security group %s has no flow", n.Name)
					}
				}
			}
			if x.Name == "ha" {
				golden(t, svg)
			}
		})
	}
}

// Each machine behind a load balancer has an arrow from it, and each balancer that faces the world one from
// there.
func TestArrows(t *testing.T) {
	svg := diagram.RenderSVG(rendertest.Graph(t, manifest.NewSetOptions{}))
	want(t, svg, `class="flow"`, 3*2+1)
	svg = diagram.RenderSVG(rendertest.Graph(t, manifest.NewSetOptions{APILoadBalancerType: "Internal"}))
	want(t, svg, `class="flow"`, 3)
}

// What a cluster only uses is drawn by its identity.
func TestExistingNetwork(t *testing.T) {
	g := &graph.Graph{}
	vpc, subnet := graph.UnmanagedRef[awskind.VPC]("vpc-1"), graph.UnmanagedRef[awskind.Subnet]("subnet-1")
	own := graph.Add(g, "own", awskind.Subnet{VPC: vpc, CIDR: "10.0.0.0/24", Zone: "us-east-1a"})
	template := graph.Add(g, "w", awskind.LaunchTemplate{Data: awskind.LaunchTemplateData{InstanceType: "m7i.large"}})
	graph.Add(g, "w", awskind.AutoScalingGroup{
		MinSize: 1, MaxSize: 4, Template: awskind.TemplateSpec{ID: template}, Subnets: []graph.Ref[awskind.Subnet]{subnet, own},
		Tags: awskind.Tags{awskind.TagRole: "worker", awskind.TagCluster: `a<b&"c"`},
	})
	svg := diagram.RenderSVG(g)
	wellFormed(t, svg)
	want(t, svg, "VPC vpc-1 (existing)", 2)
	want(t, svg, "subnet subnet-1", 1)
	want(t, svg, "1–4 machines over 2 subnets", 2)
}

func TestNothing(t *testing.T) { wellFormed(t, diagram.RenderSVG(&graph.Graph{})) }

// golden compares with the picture that the README shows.
func golden(t *testing.T, svg []byte) {
	t.Helper()
	const path = "../../../../docs/images/ha.svg"
	if *update {
		if err := os.WriteFile(path, svg, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	kept, err := os.ReadFile(path)
	if err != nil || !bytes.Equal(kept, svg) {
		t.Errorf("%s is not what is drawn now (%v); look at the change and run make generate", path, err)
	}
}

func want(t *testing.T, svg []byte, text string, times int) {
	t.Helper()
	if n := strings.Count(string(svg), text); n != times {
		t.Errorf("%q is there %d times, want %d", text, n, times)
	}
}

func wellFormed(t *testing.T, svg []byte) {
	t.Helper()
	d := xml.NewDecoder(bytes.NewReader(svg))
	for {
		_, err := d.Token()
		if errors.Is(err, io.EOF) {
			return
		}
		if err != nil {
			t.Fatalf("not well-formed: %v", err)
		}
	}
}
