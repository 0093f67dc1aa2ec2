// SPDX-License-Identifier: Apache-2.0

package model_test

import (
	"encoding/json"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/slipway-k8s/slipway/internal/infra/awskind"
	"github.com/slipway-k8s/slipway/internal/infra/model"
	"github.com/slipway-k8s/slipway/internal/manifest"
)

// registryStatements returns what the roles of a cluster may do in Amazon ECR: "ROLE: ACTION RESOURCE".
func registryStatements(t *testing.T, in model.Input) []string {
	t.Helper()
	var out []string
	for _, n := range build(t, in).Nodes() {
		policy, ok := n.Resource.(awskind.IAMRolePolicy)
		if !ok {
			continue
		}
		var d struct {
			Statement []struct{ Action, Resource []string }
		}
		if err := json.Unmarshal([]byte(policy.Document), &d); err != nil {
			t.Fatal(err)
		}
		role := strings.TrimPrefix(string(n.Addr), "iam-role-policy/")
		for _, s := range d.Statement {
			for _, a := range s.Action {
				if strings.HasPrefix(a, "ecr:") {
					out = append(out, role+": "+a+" "+strings.Join(s.Resource, " "))
				}
			}
		}
	}
	slices.Sort(out)

	return out
}

// TestMachinesPullFromTheirRegistry: roles of machines may read the repositories of the manifest's registry, if it is
// one of Amazon ECR, and nothing else there.
func TestMachinesPullFromTheirRegistry(t *testing.T) {
	in := input(t, manifest.NewSetOptions{})
	if got := registryStatements(t, in); got != nil {
		t.Errorf("without a private registry: %q", got)
	}

	in.Cluster.Spec.Assets.ContainerRegistry = "registry.example.com/mirror"
	if got := registryStatements(t, in); got != nil {
		t.Errorf("with another registry: %q", got)
	}

	in.Cluster.Spec.Assets.ContainerRegistry = "210987654321.dkr.ecr.eu-west-1.amazonaws.com/mirror"
	var want []string
	for _, role := range []string{"control-plane-a", "control-plane-b", "control-plane-c", "worker"} {
		const repositories = "arn:aws:ecr:eu-west-1:210987654321:repository/mirror/*"
		want = append(
			want,
			role+": ecr:BatchCheckLayerAvailability "+repositories,
			role+": ecr:BatchGetImage "+repositories,
			role+": ecr:GetAuthorizationToken *",
			role+": ecr:GetDownloadUrlForLayer "+repositories,
		)
	}
	if diff := cmp.Diff(want, registryStatements(t, in)); diff != "" {
		t.Error(diff)
	}
}
