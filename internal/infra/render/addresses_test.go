// SPDX-License-Identifier: Apache-2.0

package render_test

import (
	"encoding/json"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// TestAddressesStay checks that the names of the default cluster's resources in Terraform and CloudFormation
// do not change. A changed name would replace the resource in a user's next plan: Terraform can move it by a
// moved block, a stack cannot.
func TestAddressesStay(t *testing.T) {
	out := rendered(t, ha())
	var tf struct {
		Resource map[string]map[string]any
		Variable map[string]any
		Output   map[string]any
	}
	var cfn struct{ Resources, Parameters, Outputs map[string]any }
	if err := json.Unmarshal([]byte(out["main.tf.json"]), &tf); err != nil {
		t.Fatal(err)
	}
	if err := json.Unmarshal([]byte(out["template.json"]), &cfn); err != nil {
		t.Fatal(err)
	}
	var lines []string
	for kind, all := range tf.Resource {
		for name := range all {
			lines = append(lines, "terraform "+kind+"."+name)
		}
	}
	for what, all := range map[string]map[string]any{
		"terraform var": tf.Variable, "terraform output": tf.Output,
		"cloudformation": cfn.Resources, "cloudformation parameter": cfn.Parameters, "cloudformation output": cfn.Outputs,
	} {
		for name := range maps.Keys(all) {
			lines = append(lines, what+" "+name)
		}
	}
	slices.Sort(lines)
	file, got := filepath.Join("testdata", "addresses.txt"), strings.Join(lines, "\n")+"\n"
	if *update {
		if err := os.WriteFile(file, []byte(got), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(string(want), got); diff != "" {
		t.Errorf("names changed (-want +got):\n%s", diff)
	}
}
