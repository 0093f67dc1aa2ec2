// SPDX-License-Identifier: Apache-2.0

package judge_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/slipway-k8s/slipway/internal/infra/awskind"
	"github.com/slipway-k8s/slipway/internal/infra/graph"
	"github.com/slipway-k8s/slipway/internal/infra/render/rendertest"
	"github.com/slipway-k8s/slipway/internal/infra/render/terraform"
	"github.com/slipway-k8s/slipway/internal/manifest"
	"github.com/slipway-k8s/slipway/test/referencedata"
)

// terraformRunner runs Terraform with the stand-in for the AWS provider.
type terraformRunner struct {
	program  string
	toolsKey string // hash of Terraform, the provider's source and its schema
	home     string // directory of the provider and its settings
	started  bool   // the provider is built
	env      []string
	sessions map[string]*terraformSession // by directory
}

// newTerraform returns a runner that builds the provider in home. It skips t, with the reason, if Terraform is
// missing.
func newTerraform(t *testing.T, home string) *terraformRunner {
	t.Helper()
	tf := &terraformRunner{program: requireTool(t, "terraform"), home: home, sessions: map[string]*terraformSession{}}
	version, ok := runCommand(t, "", []string{"CHECKPOINT_DISABLE=1"}, tf.program, "version")
	if !ok {
		t.Fatalf("terraform version: %s", version)
	}

	texts := [][]byte{[]byte(version), referencedata.Read(t, referencedata.TerraformProvider)}
	sources, err := filepath.Glob("awsprovider/*")
	if err != nil {
		t.Fatal(err)
	}

	for _, source := range sources {
		text, err := os.ReadFile(source)
		if err != nil {
			t.Fatal(err)
		}

		texts = append(texts, text)
	}

	tf.toolsKey = hashOf(texts...)

	return tf
}

// startProvider builds the provider, once. It skips t, with the reason, if its modules are missing.
func (tf *terraformRunner) startProvider(t *testing.T) {
	t.Helper()
	if tf.started {
		return
	}

	schema := writeFile(t, tf.home, referencedata.TerraformProvider, referencedata.Read(t, referencedata.TerraformProvider))
	source, err := filepath.Abs("awsprovider")
	if err != nil {
		t.Fatal(err)
	}
	if out, ok := runCommand(t, source, nil, "go", "mod", "download"); !ok {
		t.Skipf("SKIPPED: cannot download the modules of the stand-in provider: %s", out)
	}
	if out, ok := runCommand(t, source, nil, "go", "build", "-o", filepath.Join(tf.home, "terraform-provider-aws"), "."); !ok {
		t.Fatalf("build the stand-in provider: %s", out)
	}
	config := fmt.Sprintf("provider_installation {\n  dev_overrides { \"hashicorp/aws\" = %q }\n  direct {}\n}\n", tf.home)
	tf.started = true
	tf.env = []string{
		"TF_CLI_CONFIG_FILE=" + writeFile(t, tf.home, "terraformrc", []byte(config)), "SLIPWAY_TERRAFORM_SCHEMA=" + schema,
		"CHECKPOINT_DISABLE=1", "TF_IN_AUTOMATION=1", "GOGC=400", // it runs for a second
	}
}

// answer returns Terraform's answer to a command in a directory.
func (tf *terraformRunner) answer(t *testing.T, dir string, args ...string) terraformAnswer {
	t.Helper()
	if tf.sessions[dir] == nil {
		tf.sessions[dir] = tf.newSession(t, dir)
	}

	return tf.sessions[dir].run(t, args...)
}

func (tf *terraformRunner) runTerraform(t *testing.T, dir string, args ...string) (string, bool) {
	t.Helper()
	answer := tf.answer(t, dir, args...)

	return answer.text(), answer.Succeeded
}

func (tf *terraformRunner) mustRunTerraform(t *testing.T, dir string, args ...string) string {
	t.Helper()
	out, ok := tf.runTerraform(t, dir, args...)
	if !ok {
		t.Fatalf("terraform %s: %s", strings.Join(args, " "), out)
	}
	return out
}

// showJSON reads what terraform show prints of the state, or of a saved plan.
func (tf *terraformRunner) showJSON(t *testing.T, dir string, doc any, plan ...string) {
	t.Helper()
	answer := tf.answer(t, dir, append([]string{"show", "-json"}, plan...)...)
	if !answer.Succeeded {
		t.Fatalf("terraform show: %s", answer.text())
	}
	if err := json.Unmarshal([]byte(answer.Stdout), doc); err != nil {
		t.Fatal(err)
	}
}

func TestTerraform(t *testing.T) { //nolint:tparallel // one run of Terraform uses the whole machine
	t.Parallel()
	var tf *terraformRunner
	home := t.TempDir()
	for _, x := range judgedTopologies() {
		t.Run(x.Name, func(t *testing.T) {
			reportVerdict(t, x.Name, "terraform", "terraform")
			skipUnlessJudged(t, x.Name)
			if tf == nil {
				tf = newTerraform(t, home)
			}
			g, dir := x.Graph(t), t.TempDir()
			writeFile(t, dir, "main.tf.json", renderConfiguration(t, g, terraform.Options{Region: "us-east-1"}))
			tf.mustRunTerraform(t, dir, "validate", "-no-color")
			tf.mustRunTerraform(t, dir, "apply", "-no-color", "-auto-approve", "-input=false")
			if out, ok := tf.runTerraform(t, dir, "plan", "-no-color", "-detailed-exitcode", "-input=false"); !ok {
				t.Errorf("the second plan has changes: %s", out)
			}
			compareAttributes(t, g, tf.readState(t, dir))
			out, ok := tf.runTerraform(t, dir, "destroy", "-no-color", "-auto-approve", "-input=false")
			if ok || !strings.Contains(out, "prevent_destroy") {
				t.Errorf("etcd's volumes may be destroyed: %s", out)
			}
		})
	}
	t.Run("as a module", func(t *testing.T) {
		if tf == nil {
			tf = newTerraform(t, home)
		}
		dir := t.TempDir()
		writeFile(t, filepath.Join(dir, "cluster"), "main.tf.json", renderConfiguration(t, rendertest.Graph(t, manifest.NewSetOptions{}), terraform.Options{AsModule: true}))
		writeFile(t, dir, "main.tf", []byte(`provider "aws" { region = "us-east-1" }
module "cluster" {
  source           = "./cluster"
  count            = 1
  workers_max_size = 7
}
output "api" { value = module.cluster[0].load_balancer_api_dns_name }
`))
		tf.mustRunTerraform(t, dir, "get", "-no-color")
		out := tf.mustRunTerraform(t, dir, "plan", "-no-color", "-input=false")
		if !strings.Contains(out, "Plan: 101 to add, 0 to change, 0 to destroy") || !strings.Contains(out, "= 7") {
			t.Error(out)
		}
		tf.mustRunTerraform(t, dir, "apply", "-no-color", "-auto-approve", "-input=false")
		if out, ok := tf.runTerraform(t, dir, "plan", "-no-color", "-detailed-exitcode", "-input=false"); !ok {
			t.Errorf("the second plan has changes: %s", out)
		}
		if out := tf.mustRunTerraform(t, dir, "output", "-no-color", "-raw", "api"); out == "" {
			t.Error("the module's output is empty")
		}
	})
}

// TestTerraformChangesTemplates: a change of what machines are launched from, such as in an upgrade, makes Terraform change
// the launch templates of these machines, in place, and nothing else. slipway rolling-update then sets the versions of their
// groups and replaces the machines.
func TestTerraformChangesTemplates(t *testing.T) {
	tf := newTerraform(t, t.TempDir())
	dir := t.TempDir()
	write := func(o manifest.NewSetOptions) {
		writeFile(t, dir, "main.tf.json", renderConfiguration(t, rendertest.Graph(t, o), terraform.Options{Region: "us-east-1"}))
	}
	write(manifest.NewSetOptions{})
	tf.mustRunTerraform(t, dir, "apply", "-no-color", "-auto-approve", "-input=false")
	for _, step := range []struct {
		name    string
		options manifest.NewSetOptions
		want    []string
	}{
		{"control plane", manifest.NewSetOptions{ControlPlaneSize: "m5.xlarge"}, []string{
			"aws_launch_template.control-plane-a update", "aws_launch_template.control-plane-b update", "aws_launch_template.control-plane-c update",
		}},
		{"workers", manifest.NewSetOptions{ControlPlaneSize: "m5.xlarge", NodeSize: "m5.2xlarge"}, []string{
			"aws_launch_template.workers update",
		}},
	} {
		write(step.options)
		tf.mustRunTerraform(t, dir, "plan", "-no-color", "-input=false", "-out=plan")
		if diff := cmp.Diff(step.want, tf.readChanges(t, dir, "plan")); diff != "" {
			t.Errorf("%s (-want +got):\n%s", step.name, diff)
		}
		tf.mustRunTerraform(t, dir, "apply", "-no-color", "-input=false", "plan")
		if out, ok := tf.runTerraform(t, dir, "plan", "-no-color", "-detailed-exitcode", "-input=false"); !ok {
			t.Errorf("%s: the second plan has changes: %s", step.name, out)
		}
	}
}

// TestTerraformCreatesLostVolumes: Terraform creates an etcd volume that somebody has deleted, by itself, and nothing else. So
// machines must not: Terraform would not know of their volume, and this one would be the second.
func TestTerraformCreatesLostVolumes(t *testing.T) {
	tf := newTerraform(t, t.TempDir())
	dir := t.TempDir()
	body := renderConfiguration(t, rendertest.Graph(t, manifest.NewSetOptions{}), terraform.Options{Region: "us-east-1"})
	const region = `"region": "us-east-1"`
	lost := bytes.Replace(body, []byte(region), []byte(`"lost": "volume/etcd-b", `+region), 1)
	if bytes.Equal(lost, body) {
		t.Fatalf("the configuration does not contain %s", region)
	}
	writeFile(t, dir, "main.tf.json", body)
	tf.mustRunTerraform(t, dir, "apply", "-no-color", "-auto-approve", "-input=false")
	writeFile(t, dir, "main.tf.json", lost)
	tf.mustRunTerraform(t, dir, "plan", "-no-color", "-input=false", "-out=plan")
	if diff := cmp.Diff([]string{"aws_ebs_volume.etcd-b create"}, tf.readChanges(t, dir, "plan")); diff != "" {
		t.Errorf("the plan (-want +got):\n%s", diff)
	}
	tf.mustRunTerraform(t, dir, "apply", "-no-color", "-input=false", "plan")
	writeFile(t, dir, "main.tf.json", body)
	if out, ok := tf.runTerraform(t, dir, "plan", "-no-color", "-detailed-exitcode", "-input=false"); !ok {
		t.Errorf("the second plan has changes: %s", out)
	}
}

// readChanges returns the changes of a saved plan, sorted: the address of each resource and the actions.
func (tf *terraformRunner) readChanges(t *testing.T, dir, plan string) []string {
	t.Helper()
	var doc struct {
		Changes []struct {
			Address string
			Change  struct{ Actions []string }
		} `json:"resource_changes"`
	}
	tf.showJSON(t, dir, &doc, plan)
	var changes []string
	for _, c := range doc.Changes {
		if actions := strings.Join(c.Change.Actions, " "); actions != "no-op" {
			changes = append(changes, c.Address+" "+actions)
		}
	}
	slices.Sort(changes)
	return changes
}

func TestTerraformRefusesMistakes(t *testing.T) {
	tf := newTerraform(t, t.TempDir())
	body := renderConfiguration(t, rendertest.Graph(t, manifest.NewSetOptions{}), terraform.Options{Region: "us-east-1"})
	for name, edit := range map[string][2]string{
		"an unknown attribute":  {`"cidr_block":`, `"cidr_blok":`},
		"a missing one":         {`"policy":`, `"name_prefix":`},
		"a mistyped one":        {`"enable_dns_support": true`, `"enable_dns_support": "maybe"`},
		"an unknown block":      {`"metadata_options": [`, `"metadata": [`},
		"an unknown reference":  {`${aws_vpc.main.id}`, `${aws_vpc.main.ident}`},
		"an unknown nested one": {`"http_tokens":`, `"http_token":`},
	} {
		t.Run(name, func(t *testing.T) {
			wrong := bytes.Replace(body, []byte(edit[0]), []byte(edit[1]), 1)
			if bytes.Equal(wrong, body) {
				t.Fatalf("the configuration does not contain %s", edit[0])
			}
			dir := t.TempDir()
			writeFile(t, dir, "main.tf.json", wrong)
			if out, ok := tf.runTerraform(t, dir, "validate", "-no-color"); ok {
				t.Errorf("Terraform accepts it: %s", out)
			}
		})
	}
}

func renderConfiguration(t *testing.T, g *graph.Graph, o terraform.Options) []byte {
	t.Helper()
	body, err := terraform.Render(g, o)
	if err != nil {
		t.Fatal(err)
	}
	return body
}

// readState returns the attributes of each resource by its address in Terraform.
func (tf *terraformRunner) readState(t *testing.T, dir string) map[string]map[string]any {
	t.Helper()
	var doc struct {
		Values struct {
			RootModule struct {
				Resources []struct {
					Address string
					Values  map[string]any
				}
			} `json:"root_module"`
		}
	}
	tf.showJSON(t, dir, &doc)
	byAddress := map[string]map[string]any{}
	for _, r := range doc.Values.RootModule.Resources {
		byAddress[r.Address] = r.Values
	}
	return byAddress
}

// TestTerraformText checks that all texts of a resource arrive unchanged, although Terraform parses
// them as templates.
func TestTerraformText(t *testing.T) {
	tf := newTerraform(t, t.TempDir())
	g, dir := &graph.Graph{}, t.TempDir()
	lb := graph.Add(g, "api", awskind.LoadBalancer{Name: "api"})
	for i, s := range []string{
		"$", "%", "${", "%{", "$${", "%%{", "$$${a}", "${\"a\"}", "%{ if true }", "a\"b\\c\n\r\td", "5%", "$$", "$%", "%$", "$%{", "%${", "$\r%\r\n", "}{$}", "é✓",
		"#!/bin/sh\necho \"${PATH}\" '$HOME' %{http_code} \\n",
	} {
		// The text is first, before a reference, and after a reference.
		text := graph.Concat(graph.LiteralText(s), lb.Attr("DNSName"), graph.LiteralText(s))
		graph.Add(g, fmt.Sprintf("t-%d", i), awskind.LaunchTemplate{
			Name: "t", Data: awskind.LaunchTemplateData{UserData: text.Base64()}, Tags: awskind.Tags{"plain": s},
		})
		graph.Add(g, fmt.Sprintf("v-%d", i), awskind.Volume{Zone: "z", KMSKey: text, Tags: awskind.Tags{s: "key"}})
	}
	writeFile(t, dir, "main.tf.json", renderConfiguration(t, g, terraform.Options{Region: "us-east-1"}))
	tf.mustRunTerraform(t, dir, "apply", "-no-color", "-auto-approve", "-input=false")
	state := tf.readState(t, dir)
	compareAttributes(t, g, state)
	for _, n := range g.Nodes() {
		if v, ok := n.Resource.(awskind.Volume); ok {
			tags, _ := state["aws_ebs_volume."+n.Name]["tags"].(map[string]any)
			for k := range v.Tags {
				if tags[k] != "key" {
					t.Errorf("the tag's key %q became %v", k, tags)
				}
			}
		}
	}
}
