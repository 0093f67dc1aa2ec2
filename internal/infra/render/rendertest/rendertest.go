// SPDX-License-Identifier: Apache-2.0

// Package rendertest builds the graphs that the tests of the renderers share. It does not know the renderers.
package rendertest

import (
	"strings"
	"testing"

	"github.com/slipway-k8s/slipway/examples"
	"github.com/slipway-k8s/slipway/internal/infra/graph"
	"github.com/slipway-k8s/slipway/internal/infra/model"
	"github.com/slipway-k8s/slipway/internal/lib/diag"
	"github.com/slipway-k8s/slipway/internal/lib/partition"
	"github.com/slipway-k8s/slipway/internal/machine/node"
	"github.com/slipway-k8s/slipway/internal/manifest"
)

// Boundary is the permissions boundary of the roles.
const Boundary = "arn:aws:iam::123456789012:policy/slipway/slipway-machines-store"

// exampleRegion is the region in the examples and in the names of their zones.
const exampleRegion = "us-east-1"

// Image is the machine image of every group of amd64 machines; ImageARM is for arm64.
const (
	Image    = "ami-0123456789abcdef0"
	ImageARM = "ami-0123456789abcdef1"
)

// ClusterID is the id of every cluster.
const ClusterID = "k7q2m4x9c3v5b8n1"

// Topology is one of the example clusters that every renderer is tested with; ha is the default cluster.
type Topology struct {
	// Name of the example's file, without its extension.
	Name     string
	text     string
	function model.FunctionCode // published code; zero for that of renderings
}

// Topologies returns the examples, sorted by name.
func Topologies() []Topology {
	var out []Topology
	for _, e := range examples.All() {
		out = append(out, Topology{Name: e.Name, text: string(e.YAML)})
	}

	return out
}

// Graph builds the graph of x in the example's region.
func (x Topology) Graph(t *testing.T) *graph.Graph {
	t.Helper()
	return x.GraphIn(t, exampleRegion)
}

// GraphIn builds the graph of x in another region.
func (x Topology) GraphIn(t *testing.T, region string) *graph.Graph {
	t.Helper()
	return buildGraph(t, x.Input(t, region))
}

func buildGraph(t *testing.T, in model.Input) *graph.Graph {
	t.Helper()
	g, fs := model.Build(in)
	if err := fs.Err(); err != nil {
		t.Fatal(err)
	}

	return g
}

// StackGraph builds the graph of x for a CloudFormation stack, whose machines signal.
func (x Topology) StackGraph(t *testing.T, region string) *graph.Graph {
	t.Helper()
	in := x.Input(t, region)
	in.SignalStack = true

	return buildGraph(t, in)
}

// WithReplaced returns x with each key of ids replaced by its value.
func (x Topology) WithReplaced(ids map[string]string) Topology {
	for from, to := range ids {
		x.text = strings.ReplaceAll(x.text, from, to)
	}

	return x
}

// WithFunction returns x with the published code of the function that keeps DNS records.
func (x Topology) WithFunction(code model.FunctionCode) Topology {
	x.function = code
	return x
}

// Input returns the model's input for x in a region.
func (x Topology) Input(t *testing.T, region string) model.Input {
	t.Helper()
	text := strings.ReplaceAll(x.text, exampleRegion, region)
	domain := region + "." + partition.OfRegion(region).DNSSuffix // of registries in Amazon ECR
	text = strings.ReplaceAll(text, region+".amazonaws.com/", domain+"/")
	set, fs := manifest.Parse([]byte(text))
	in := modelInput(t, region, set, fs)
	if x.function.Key != "" {
		in.FunctionCode = x.function
	}

	return in
}

// Graph builds the graph of a new cluster demo in us-east-1.
func Graph(t *testing.T, o manifest.NewSetOptions) *graph.Graph {
	t.Helper()
	return GraphIn(t, "us-east-1", o)
}

// GraphIn builds the graph of a new cluster demo in another region.
func GraphIn(t *testing.T, region string, o manifest.NewSetOptions) *graph.Graph {
	t.Helper()
	const name = "demo"
	set, fs := manifest.NewSet(name, []string{region + "a", region + "b", region + "c"}, o)

	return buildGraph(t, modelInput(t, region, set, fs))
}

func modelInput(t *testing.T, region string, set manifest.Set, fs diag.Findings) model.Input {
	t.Helper()
	set = manifest.Default(set)
	if err := append(fs, manifest.Validate(set)...).Err(); err != nil {
		t.Fatal(err)
	}

	name := set.Cluster.Metadata.Name
	in := model.Input{
		Cluster:    set.Cluster,
		ClusterID:  ClusterID,
		Groups:     set.Groups,
		Account:    "123456789012",
		Region:     region,
		Partition:  partition.OfRegion(region).Name,
		Images:     map[string]model.Image{},
		Boot:       map[string]model.BootSource{},
		BootScript: node.BootScript(region),
		MachineStore: model.MachineStore{
			Boundary:  Boundary,
			Bucket:    "store",
			Prefix:    "prod",
			KMSKeyARN: "arn:" + partition.OfRegion(region).Name + ":kms:" + region + ":123456789012:key/12345678-1234-1234-1234-123456789012",
		},
	}

	sum := strings.Repeat("0", 64)
	in.FunctionCode = model.FunctionCode{Key: "prod/" + node.FunctionKey(name, sum), SHA256: sum, Arch: "amd64"}

	for _, g := range set.Groups {
		image := model.Image{ID: Image, RootDevice: "/dev/xvda"}
		if manifest.InstanceTypeArch(g.Spec.MachineType) == "arm64" {
			image.ID = ImageARM
		}

		in.Images[g.Metadata.Name] = image
		in.Boot[g.Metadata.Name] = model.BootSource{
			AgentURL:    "s3://store/prod/" + node.AgentPrefix(name) + sum + "/slipway-node",
			AgentSHA256: sum,
			DocumentURL: "s3://store/prod/" + node.DocumentPrefix(name, g.Spec.Role) +
				"documents/" + g.Metadata.Name + "-" + sum + ".json",
			DocumentSHA256: sum,
		}
	}

	return in
}
