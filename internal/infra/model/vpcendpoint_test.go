// SPDX-License-Identifier: Apache-2.0

package model_test

import (
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/slipway-k8s/slipway/internal/infra/model"
	"github.com/slipway-k8s/slipway/internal/infra/render/rendertest"
	"github.com/slipway-k8s/slipway/internal/manifest"
)

// TestEndpointsOfIsolatedClusters: machines that reach AWS through endpoints only could not signal the stack that waited for
// them, and had no sessions. Machines behind a NAT gateway need no further endpoints.
func TestEndpointsOfIsolatedClusters(t *testing.T) {
	for name, c := range map[string]struct {
		topology string
		sessions bool
		listed   string
		want     []string // of those that depend on settings
	}{
		"isolated":                     {"isolated", false, "", []string{"cloudformation"}},
		"isolated, with sessions":      {"isolated", true, "", []string{"cloudformation", "ssmmessages"}},
		"isolated, listed":             {"isolated", true, "ssmmessages", []string{"cloudformation", "ssmmessages"}},
		"highly available, with a NAT": {"ha", true, "", nil},
	} {
		for _, x := range rendertest.Topologies() {
			if x.Name != c.topology {
				continue
			}
			in := x.Input(t, "us-east-1")
			in.Cluster.Spec.MachineAccess.SessionManager = c.sessions
			if c.listed != "" {
				in.Cluster.Spec.Networking.VPCEndpoints = append(in.Cluster.Spec.Networking.VPCEndpoints, c.listed)
			}
			g, fs := model.Build(in)
			if err := fs.Err(); err != nil {
				t.Fatal(err)
			}
			var got []string
			for _, n := range g.Nodes() {
				service, isEndpoint := strings.CutPrefix(string(n.Addr), "vpc-endpoint/")
				if isEndpoint && slices.Contains([]string{"cloudformation", "ssmmessages"}, service) {
					got = append(got, service)
				}
			}
			slices.Sort(got)
			if diff := cmp.Diff(c.want, got); diff != "" {
				t.Errorf("%s (-want +got):\n%s", name, diff)
			}
		}
	}
}

// TestSessionsOfOwnEndpoints: the agent of Session Manager registers with ssm, and its sessions use ssmmessages. A list of
// endpoints that has neither gets both.
func TestSessionsOfOwnEndpoints(t *testing.T) {
	listed := []string{"ec2", "sts", "kms", "autoscaling"}
	for name, c := range map[string]struct {
		nat      string
		sessions bool
		want     []string
	}{
		"with sessions":         {"None", true, []string{"autoscaling", "ec2", "kms", "ssm", "ssmmessages", "sts"}},
		"without sessions":      {"None", false, []string{"autoscaling", "ec2", "kms", "sts"}},
		"through a NAT gateway": {"Single", true, []string{"autoscaling", "ec2", "kms", "sts"}},
	} {
		in := input(t, manifest.NewSetOptions{})
		in.Cluster.Spec.MachineAccess.SessionManager = c.sessions
		in.Cluster.Spec.Networking.NATGateways = c.nat
		in.Cluster.Spec.Networking.VPCEndpoints = listed
		var got []string
		for _, n := range build(t, in).Nodes() {
			if service, ok := strings.CutPrefix(string(n.Addr), "vpc-endpoint/"); ok {
				got = append(got, service)
			}
		}

		slices.Sort(got)
		if diff := cmp.Diff(c.want, got); diff != "" {
			t.Errorf("%s (-want +got):\n%s", name, diff)
		}
	}
}

// TestEndpointsOfPrivateRegistries: machines without internet access reach a registry in Amazon ECR through three
// endpoints, also if the manifest lists others only. Another registry needs none of them.
func TestEndpointsOfPrivateRegistries(t *testing.T) {
	const registry = "123456789012.dkr.ecr.us-east-1.amazonaws.com/mirror"
	listed := []string{"ec2", "sts", "kms", "autoscaling"}
	for name, c := range map[string]struct {
		nat, registry string
		want          []string
	}{
		"ECR, without internet access": {"None", registry, []string{"autoscaling", "ec2", "ecr-api", "ecr-dkr", "kms", "s3", "sts"}},
		"another registry":             {"None", "registry.example.com", []string{"autoscaling", "ec2", "kms", "sts"}},
		"ECR, through a NAT gateway":   {"Single", registry, []string{"autoscaling", "ec2", "kms", "sts"}},
	} {
		in := input(t, manifest.NewSetOptions{})
		in.Cluster.Spec.Assets.ContainerRegistry = c.registry
		in.Cluster.Spec.Networking.NATGateways = c.nat
		in.Cluster.Spec.Networking.VPCEndpoints = listed
		var got []string
		for _, n := range build(t, in).Nodes() {
			if service, ok := strings.CutPrefix(string(n.Addr), "vpc-endpoint/"); ok {
				got = append(got, service)
			}
		}
		slices.Sort(got)
		if diff := cmp.Diff(c.want, got); diff != "" {
			t.Errorf("%s (-want +got):\n%s", name, diff)
		}
	}
}
