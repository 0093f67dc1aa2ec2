// SPDX-License-Identifier: Apache-2.0

package action_test

import (
	"fmt"
	"os"
	"strings"
	"testing"

	"sigs.k8s.io/yaml"
)

// TestExampleUsesTheAction: the example passes only inputs that exist, and gives no job more rights than it needs.
func TestExampleUsesTheAction(t *testing.T) {
	t.Parallel()
	text, err := os.ReadFile("../../examples/github-actions/cluster.yml")
	if err != nil {
		t.Fatal(err)
	}
	var workflow struct {
		Permissions map[string]string `json:"permissions"`
		Jobs        map[string]struct {
			Permissions map[string]string `json:"permissions"`
			Steps       []struct {
				Uses string         `json:"uses"`
				With map[string]any `json:"with"`
			} `json:"steps"`
		} `json:"jobs"`
	}
	if err := yaml.Unmarshal(text, &workflow); err != nil {
		t.Fatal(err)
	}
	action, err := os.ReadFile("../../action/action.yml")
	if err != nil {
		t.Fatal(err)
	}
	if len(workflow.Permissions) != 0 {
		t.Errorf("every job has %v", workflow.Permissions)
	}
	commands := map[string]bool{}
	for name, job := range workflow.Jobs {
		for right, level := range job.Permissions {
			if level == "write" && right != "id-token" && (right != "pull-requests" || name != "plan") {
				t.Errorf("job %s may write %s", name, right)
			}
		}
		for _, s := range job.Steps {
			if !strings.HasPrefix(s.Uses, "slipway-k8s/slipway/action@") {
				continue
			}
			for input, value := range s.With {
				if !strings.Contains(string(action), "\n  "+input+":\n") {
					t.Errorf("job %s: the action has no input %s", name, input)
				}
				if input == "command" {
					commands[fmt.Sprint(value)] = true
				}
			}
		}
	}
	if !commands["plan"] || !commands["save"] || !commands["apply"] {
		t.Errorf("the example runs only %v", commands)
	}
}
