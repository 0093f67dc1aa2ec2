// SPDX-License-Identifier: Apache-2.0

package services

import (
	"cmp"
	"compress/gzip"
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/slipway-k8s/slipway/internal/region/wire"
)

// botocoreModel is the part of a model of botocore that the region is compared with: what the AWS CLI and boto3 send and read.
type botocoreModel struct {
	Operations map[string]struct {
		Input  *botocoreMember `json:"input"`
		Output *botocoreMember `json:"output"`
	} `json:"operations"`
	Shapes map[string]*botocoreShape `json:"shapes"`
}

// botocoreShape is the type of members.
type botocoreShape struct {
	Type            string                    `json:"type"`
	Members         map[string]botocoreMember `json:"members"`
	Member          *botocoreMember           `json:"member"` // of a list
	Key             *botocoreMember           `json:"key"`    // of a map
	Value           *botocoreMember           `json:"value"`  // of a map
	Required        []string                  `json:"required"`
	Payload         string                    `json:"payload"`
	Flattened       bool                      `json:"flattened"`
	TimestampFormat string                    `json:"timestampFormat"`
	Exception       bool                      `json:"exception"`
	Error           struct {
		Code   string `json:"code"`
		Status int    `json:"httpStatusCode"`
	} `json:"error"`
}

// botocoreMember refers to a shape and says where a message has it.
type botocoreMember struct {
	Shape           string `json:"shape"`
	Location        string `json:"location"`
	LocationName    string `json:"locationName"`
	QueryName       string `json:"queryName"`
	Flattened       bool   `json:"flattened"`
	TimestampFormat string `json:"timestampFormat"`
}

// botocoreNames are the folders of botocore's models whose names are not those of the region's services.
func botocoreNames() map[string]string {
	return map[string]string{
		"elasticloadbalancing": "elbv2",
		"servicequotas":        "service-quotas",
		"tagging":              "resourcegroupstaggingapi",
	}
}

// botocoreData returns the folder of botocore's models, and skips the test on a machine without botocore.
func botocoreData(t *testing.T) string {
	t.Helper()
	python := cmp.Or(os.Getenv("MOTO_PYTHON"), "python3")
	out, err := exec.CommandContext(t.Context(), python, "-c", "import botocore; print(botocore.__path__[0])").Output()
	if err != nil {
		t.Skipf("SKIPPED: no botocore on this machine: %v", err)
	}

	return filepath.Join(strings.TrimSpace(string(out)), "data")
}

// readBotocoreModel reads the model of a service of the region, of its API version.
func readBotocoreModel(t *testing.T, data string, s wire.Service) *botocoreModel {
	t.Helper()
	name := cmp.Or(botocoreNames()[s.Name], s.Name)
	found, err := filepath.Glob(filepath.Join(data, name, cmp.Or(s.Version, "*"), "service-2.json*"))
	if err != nil || len(found) == 0 {
		t.Fatalf("botocore has no model of %s %s", name, s.Version)
	}

	f, err := os.Open(slices.Max(found))
	if err != nil {
		t.Fatal(err)
	}

	defer func() { _ = f.Close() }()
	decoder := json.NewDecoder(f)
	if strings.HasSuffix(f.Name(), ".gz") {
		z, err := gzip.NewReader(f)
		if err != nil {
			t.Fatal(err)
		}

		decoder = json.NewDecoder(z)
	}

	model := &botocoreModel{}
	if err := decoder.Decode(model); err != nil {
		t.Fatalf("%s: %v", f.Name(), err)
	}

	return model
}

// errorStatuses returns the HTTP statuses of the errors that a model declares, by code; 0 if it does not say.
func (m *botocoreModel) errorStatuses() map[string]int {
	out := map[string]int{}
	for name, shape := range m.Shapes {
		if shape.Exception {
			out[cmp.Or(shape.Error.Code, name)] = shape.Error.Status
		}
	}

	return out
}
