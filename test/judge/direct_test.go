// SPDX-License-Identifier: Apache-2.0

package judge_test

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	sdk "github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/credentials"

	"github.com/slipway-k8s/slipway/internal/aws"
	"github.com/slipway-k8s/slipway/internal/awskind"
	"github.com/slipway-k8s/slipway/internal/graph"
	"github.com/slipway-k8s/slipway/internal/model"
	"github.com/slipway-k8s/slipway/internal/plan"
	"github.com/slipway-k8s/slipway/internal/region/regiontest"
	"github.com/slipway-k8s/slipway/internal/target/targettest"
)

// direct builds a topology through the API at cfg: apply, an empty second plan, and a deletion that leaves nothing.
// known changes what an emulator is known to get wrong, in the graph and in what is read.
type direct struct {
	cfg   sdk.Config
	known func(graph.Resource) graph.Resource
}

func (d direct) judge(t *testing.T, in model.Input) {
	t.Helper()
	g, fs := model.Build(in)
	if err := fs.Err(); err != nil {
		t.Fatal(err)
	}
	for _, n := range g.Nodes() {
		n.Resource = d.known(n.Resource)
	}
	name := in.Cluster.Metadata.Name
	cloud := aws.New(d.cfg, aws.Scope{
		Cluster: name, Region: regiontest.Name, RolePath: model.RolePath(name, regiontest.Name), KeyAlias: model.AliasName(name),
	})
	before := d.inventory(t)
	d.apply(t, cloud, g)
	if p := d.plan(t, cloud, g); !p.Empty() {
		t.Errorf("planned again, there are changes:\n%s", lines(p))
	}
	d.apply(t, cloud, &graph.Graph{})
	if p := d.plan(t, cloud, &graph.Graph{}); !p.Empty() {
		t.Errorf("deleted, there is still:\n%s", lines(p))
	}
	if after := d.inventory(t); !slices.Equal(before, after) {
		t.Errorf("before there was\n%s\nand after the deletion\n%s", strings.Join(before, "\n"), strings.Join(after, "\n"))
	}
}

func (d direct) plan(t *testing.T, cloud *aws.Cloud, g *graph.Graph) plan.Plan {
	t.Helper()
	have, err := cloud.Read(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	for i := range have {
		have[i].Resource = d.known(have[i].Resource)
	}
	p, fs := plan.Make(g, have, plan.Options{DestroyData: true})
	if err := fs.Err(); err != nil {
		t.Fatal(err)
	}
	return p
}

func (d direct) apply(t *testing.T, cloud *aws.Cloud, g *graph.Graph) {
	t.Helper()
	if err := (plan.Walk{Cloud: cloud, Now: time.Now, Patience: time.Minute}).Apply(t.Context(), d.plan(t, cloud, g)); err != nil {
		t.Fatal(err)
	}
}

func lines(p plan.Plan) string {
	var b strings.Builder
	for _, s := range p.Steps {
		fmt.Fprintln(&b, s)
		for _, c := range s.Changes {
			fmt.Fprintln(&b, "  ", c)
		}
	}
	return b.String()
}

// TestDirectRegion builds every topology in the local region, in records mode.
func TestDirectRegion(t *testing.T) {
	for _, x := range targettest.Topologies() {
		t.Run(x.Name, func(t *testing.T) {
			cell(t, x.Name, "direct", "region")
			same := func(r graph.Resource) graph.Resource { return r }
			direct{cfg: regiontest.Start(t).Config(), known: same}.judge(t, x.Input(t, regiontest.Name))
		})
	}
}

// TestDirectMoto builds every topology in moto, which shares no code and no author with the local region.
func TestDirectMoto(t *testing.T) {
	moto := motoServer{dir: t.TempDir()}
	t.Cleanup(func() { moto.stop(t) })
	for _, x := range targettest.Topologies() {
		t.Run(x.Name, func(t *testing.T) {
			cell(t, x.Name, "direct", "moto")
			cfg := moto.start(t)
			in := x.Input(t, regiontest.Name)
			for name, image := range in.Images {
				image.ID = anyImage(t, cfg)
				in.Images[name] = image
			}
			direct{cfg: cfg, known: motoDefects}.judge(t, in)
		})
	}
}

// motoDefects hides two defects of moto 5.2.1: it puts the tags of a launch template into the template's data, and it
// does not return the description of a rule between groups.
func motoDefects(r graph.Resource) graph.Resource {
	switch r := r.(type) {
	case awskind.LaunchTemplate:
		r.Data.Tags = slices.DeleteFunc(slices.Clone(r.Data.Tags), func(s awskind.TagSpecification) bool { return s.ResourceType == "launch-template" })
		return r
	case awskind.SecurityGroupIngress:
		r.Description = ""
		return r
	case awskind.SecurityGroupEgress:
		r.Description = ""
		return r
	}
	return r
}

// motoServer is moto on a port of its own, started by the first topology that asks for it.
type motoServer struct {
	dir, script, port string
	env               []string
}

func (m *motoServer) start(t *testing.T) sdk.Config {
	t.Helper()
	if m.port == "" {
		m.launch(t)
	}
	url := "http://127.0.0.1:" + m.port
	return sdk.Config{Region: regiontest.Name, BaseEndpoint: &url, Credentials: credentials.NewStaticCredentialsProvider("test", "test", "")}
}

func (m *motoServer) launch(t *testing.T) {
	t.Helper()
	tool(t, "bash")
	free, err := net.Listen("tcp", "127.0.0.1:0") // several sessions may test at once
	if err != nil {
		t.Fatal(err)
	}
	port := strconv.Itoa(free.Addr().(*net.TCPAddr).Port)
	free.Close()
	script := filepath.Join("..", "..", "..", "shared", "tools", "moto-up.sh")
	env := []string{"MOTO_SHIM=1", "MOTO_RUN_DIR=" + m.dir}
	cmd := exec.CommandContext(t.Context(), "bash", script, "start", port)
	cmd.Env = append(cmd.Environ(), env...)
	out, err := cmd.CombinedOutput()
	if exit, ok := errors.AsType[*exec.ExitError](err); ok && (exit.ExitCode() == 3 || exit.ExitCode() == 127) {
		t.Skipf("SKIPPED: no moto on this machine: %s", out)
	}
	if err != nil {
		t.Fatalf("start moto: %v\n%s", err, out)
	}
	m.script, m.port, m.env = script, port, env
}

func (m *motoServer) stop(t *testing.T) {
	t.Helper()
	if m.port == "" {
		return
	}
	cmd := exec.CommandContext(context.Background(), "bash", m.script, "stop", m.port) //nolint:usetesting // the test's own is over
	cmd.Env = append(cmd.Environ(), m.env...)
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Errorf("stop moto: %v\n%s", err, out)
	}
}
