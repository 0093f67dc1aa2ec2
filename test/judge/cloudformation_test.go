// SPDX-License-Identifier: Apache-2.0

package judge_test

import (
	"bytes"
	"testing"

	"github.com/slipway-k8s/slipway/internal/graph"
	"github.com/slipway-k8s/slipway/internal/manifest"
	"github.com/slipway-k8s/slipway/internal/target/cloudformation"
	"github.com/slipway-k8s/slipway/internal/target/targettest"
)

func TestCloudFormationLint(t *testing.T) {
	for _, x := range targettest.Topologies() {
		t.Run(x.Name, func(t *testing.T) {
			cell(t, x.Name, "cloudformation", "cfn-lint")
			lint := tool(t, "cfn-lint")
			for _, region := range []string{"us-east-1", "eu-central-1"} {
				file := write(t, t.TempDir(), "template.json", template(t, x.StackGraph(t, region)))
				if out, ok := run(t, "", nil, lint, "--regions", region, "--", file); !ok {
					t.Errorf("%s: %s", region, out)
				}
			}
		})
	}
	t.Run("a mistake", func(t *testing.T) {
		lint := tool(t, "cfn-lint")
		body := bytes.Replace(template(t, targettest.Graph(t, manifest.NewOptions{})), []byte(`"CidrBlock"`), []byte(`"CidrBlok"`), 1)
		if _, ok := run(t, "", nil, lint, "--", write(t, t.TempDir(), "template.json", body)); ok {
			t.Error("cfn-lint accepts a property that does not exist")
		}
	})
}

func template(t *testing.T, g *graph.Graph) []byte {
	t.Helper()
	body, err := cloudformation.Render(g, cloudformation.Options{Description: "test"})
	if err != nil {
		t.Fatal(err)
	}
	return body
}
