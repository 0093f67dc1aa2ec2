// SPDX-License-Identifier: Apache-2.0

package judge_test

import (
	"bytes"
	"testing"

	"github.com/slipway-k8s/slipway/internal/manifest"
	"github.com/slipway-k8s/slipway/internal/target/cloudformation"
	"github.com/slipway-k8s/slipway/internal/target/targettest"
)

func TestCloudFormationLint(t *testing.T) {
	lint := tool(t, "cfn-lint")
	for _, region := range []string{"us-east-1", "eu-central-1"} {
		for name, o := range targettest.Topologies() {
			t.Run(region+"/"+name, func(t *testing.T) {
				file := write(t, t.TempDir(), "template.json", template(t, region, o))
				if out, ok := run(t, "", nil, lint, "--regions", region, "--", file); !ok {
					t.Error(out)
				}
			})
		}
	}
	t.Run("a mistake", func(t *testing.T) {
		body := bytes.Replace(template(t, "us-east-1", manifest.NewOptions{}), []byte(`"CidrBlock"`), []byte(`"CidrBlok"`), 1)
		if _, ok := run(t, "", nil, lint, "--", write(t, t.TempDir(), "template.json", body)); ok {
			t.Error("cfn-lint accepts a property that does not exist")
		}
	})
}

func template(t *testing.T, region string, o manifest.NewOptions) []byte {
	t.Helper()
	body, err := cloudformation.Render(targettest.GraphIn(t, region, o), cloudformation.Options{Description: "test"})
	if err != nil {
		t.Fatal(err)
	}
	return body
}
