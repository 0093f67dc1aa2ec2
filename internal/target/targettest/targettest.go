// SPDX-License-Identifier: Apache-2.0

// Package targettest makes the graphs that tests of the renderers and their judges share.
// It knows no renderer.
package targettest

import (
	"strings"
	"testing"

	"github.com/slipway-k8s/slipway/internal/graph"
	"github.com/slipway-k8s/slipway/internal/manifest"
	"github.com/slipway-k8s/slipway/internal/model"
	"github.com/slipway-k8s/slipway/internal/node"
)

// Topologies are the clusters that every renderer is judged with, by name; ha is the default one.
func Topologies() map[string]manifest.NewOptions {
	return map[string]manifest.NewOptions{
		"ha":       {},
		"five":     {ControlPlaneCount: 5},
		"single":   {ControlPlaneCount: 1},
		"internal": {APILoadBalancerType: "Internal"},
	}
}

// Graph builds the cluster called demo in us-east-1.
func Graph(t *testing.T, o manifest.NewOptions) *graph.Graph {
	t.Helper()
	return GraphIn(t, "us-east-1", o)
}

// GraphIn builds it in another region.
func GraphIn(t *testing.T, region string, o manifest.NewOptions) *graph.Graph {
	t.Helper()
	const name = "demo"
	set, fs := manifest.New(name, []string{region + "a", region + "b", region + "c"}, o)
	set = manifest.Default(set)
	if err := append(fs, manifest.Validate(set)...).Err(); err != nil {
		t.Fatal(err)
	}
	in := model.Input{
		Cluster: set.Cluster, Groups: set.Groups, Account: "123456789012", Region: region, Partition: "aws",
		Images: map[string]model.Image{}, Boot: map[string]model.Boot{}, BootScript: node.BootScript(),
		MachineStore: model.MachineStore{Bucket: "store", Prefix: "prod", KMSKeyARN: "arn:aws:kms:" + region + ":123456789012:key/12345678-1234-1234-1234-123456789012"},
	}
	sum := strings.Repeat("0", 64)
	for _, g := range set.Groups {
		in.Images[g.Metadata.Name] = model.Image{ID: "ami-0123456789abcdef0", RootDevice: "/dev/xvda"}
		in.Boot[g.Metadata.Name] = model.Boot{
			AgentURL: "s3://store/prod/" + node.AgentPrefix(name) + sum + "/slipway-node", AgentSHA256: sum,
			DocumentURL: "s3://store/prod/" + node.DocumentPrefix(name, g.Spec.Role) + "documents/" + g.Metadata.Name + "-" + sum + ".json", DocumentSHA256: sum,
		}
	}
	g, fs := model.Build(in)
	if err := fs.Err(); err != nil {
		t.Fatal(err)
	}
	return g
}
