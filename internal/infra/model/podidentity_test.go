// SPDX-License-Identifier: Apache-2.0

package model_test

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/slipway-k8s/slipway/api/v1alpha1"
	"github.com/slipway-k8s/slipway/internal/infra/awskind"
	"github.com/slipway-k8s/slipway/internal/infra/graph"
	"github.com/slipway-k8s/slipway/internal/infra/model"
	"github.com/slipway-k8s/slipway/internal/infra/render/rendertest"
)

const readPolicy = `{"Version":"2012-10-17","Statement":[{"Effect":"Allow","Action":"s3:GetObject","Resource":"*"}]}`

// podGraph returns the graph of the highly available example with roles of service accounts, given as NAMESPACE/NAME.
func podGraph(t *testing.T, store string, accounts ...string) *graph.Graph {
	t.Helper()
	for _, x := range rendertest.Topologies() {
		if x.Name != "ha" {
			continue
		}
		in := x.Input(t, "us-east-1")
		in.Cluster.Spec.ServiceAccountIssuerDiscovery.DiscoveryStore = store
		in.Cluster.Spec.KubeAPIServer.ServiceAccountIssuer = "https://oidc.s3.us-east-1.amazonaws.com/prod/demo"
		for _, a := range accounts {
			namespace, name, _ := strings.Cut(a, "/")
			in.Cluster.Spec.IAM.ServiceAccountExternalPermissions = append(in.Cluster.Spec.IAM.ServiceAccountExternalPermissions,
				v1alpha1.ServiceAccountPermissions{Namespace: namespace, Name: name, AWS: v1alpha1.ServiceAccountAWS{InlinePolicy: readPolicy}})
		}
		g, fs := model.Build(in)
		if err := fs.Err(); err != nil {
			t.Fatal(err)
		}
		return g
	}
	t.Fatal("there is no example ha")
	return nil
}

// identities returns the addresses of the providers, roles and policies of pods.
func identities(g *graph.Graph) []string {
	var out []string
	for _, n := range g.Nodes() {
		if n.Resource.Kind().Name == "iam-oidc-provider" || strings.Contains(string(n.Addr), "/sa-") {
			out = append(out, string(n.Addr))
		}
	}
	return out
}

func TestPodIdentityIsOff(t *testing.T) {
	if got := identities(podGraph(t, "", "shop/reader")); len(got) > 0 {
		t.Errorf("a cluster without a discovery store has %v", got)
	}
}

func TestPodIdentity(t *testing.T) {
	g := podGraph(t, "s3://oidc/prod", "shop/reader", "web/app-reader", "web-app/reader", "web-app/a.b")
	want := []string{
		"iam-oidc-provider/pods",
		"iam-role/sa-shop-reader", "iam-role-policy/sa-shop-reader",
		"iam-role/sa-web-app-reader-e4feb4", "iam-role-policy/sa-web-app-reader-e4feb4",
		"iam-role/sa-web-app-reader-186a4f", "iam-role-policy/sa-web-app-reader-186a4f",
		"iam-role/sa-web-app-a-b-4ae96e", "iam-role-policy/sa-web-app-a-b-4ae96e",
	}
	if diff := cmp.Diff(want, identities(g)); diff != "" {
		t.Errorf("(-want +got)\n%s", diff)
	}
	provider, ok := g.Node("iam-oidc-provider/pods").Resource.(awskind.OIDCProvider)
	if !ok || provider.URL != "https://oidc.s3.us-east-1.amazonaws.com/prod/demo" || !cmp.Equal(provider.ClientIDs, []string{"sts.amazonaws.com"}) {
		t.Errorf("%+v", provider)
	}
	n := g.Node("iam-role/sa-shop-reader")
	role, ok := n.Resource.(awskind.IAMRole)
	if !ok || role.PermissionsBoundary != rendertest.Boundary || role.Path != "/slipway/us-east-1/demo/" || role.Name != "demo.sa-shop.reader.us-east-1" {
		t.Errorf("%+v", role)
	}
	if !cmp.Equal(n.ExplicitDeps, []graph.Addr{"iam-oidc-provider/pods"}) {
		t.Errorf("the role depends on %v", n.ExplicitDeps)
	}
	trust := graph.CanonicalJSON(`{"Version":"2012-10-17","Statement":[{"Sid":"ServiceAccount","Effect":"Allow",
		"Principal":{"Federated":"arn:aws:iam::123456789012:oidc-provider/oidc.s3.us-east-1.amazonaws.com/prod/demo"},
		"Action":["sts:AssumeRoleWithWebIdentity"],
		"Condition":{"StringEquals":{
			"oidc.s3.us-east-1.amazonaws.com/prod/demo:aud":"sts.amazonaws.com",
			"oidc.s3.us-east-1.amazonaws.com/prod/demo:sub":"system:serviceaccount:shop:reader"}}}]}`)
	if diff := cmp.Diff(trust, role.TrustPolicy); diff != "" {
		t.Errorf("trust policy (-want +got)\n%s", diff)
	}
	policy, ok := g.Node("iam-role-policy/sa-shop-reader").Resource.(awskind.IAMRolePolicy)
	if !ok || policy.Document != graph.CanonicalJSON(readPolicy) {
		t.Errorf("%+v", policy)
	}
}

func TestIsServiceAccountRole(t *testing.T) {
	for addr, want := range map[graph.Addr]bool{
		"iam-role/sa-shop-reader": true, "iam-role-policy/sa-shop-reader": true, "iam-role-policy/sa-shop-reader:extra": true,
		"iam-role/worker": false, "iam-role/worker-sa-group": false, "iam-oidc-provider/pods": false, "autoscaling-group/sa-group": false,
	} {
		if got := model.IsServiceAccountRole(addr); got != want {
			t.Errorf("%s: %v, want %v", addr, got, want)
		}
	}
}

// TestServiceAccountRoleNames: no two service accounts, and no service account and group, share a role.
func TestServiceAccountRoleNames(t *testing.T) {
	long := strings.Repeat("a", 60)
	seen := map[string]string{}
	for _, a := range []string{"a/b", "a/b.c", "a-b/c", "a/b-c", long + "/x", long + "/y", "x/" + long, "x/" + long + "b"} {
		namespace, name, _ := strings.Cut(a, "/")
		role := model.ServiceAccountRoleName("demo", "us-east-1", namespace, name)
		if len(role) > 64 {
			t.Errorf("%s has %d characters", role, len(role))
		}
		if first, taken := seen[role]; taken {
			t.Errorf("%s and %s share the role %s", first, a, role)
		}
		seen[role] = a
	}
	if group := model.GroupRoleName("demo", "us-east-1", "sa-a.b"); seen[group] != "" {
		t.Errorf("group and service account share the role %s", group)
	}
}

// TestVPCCNIRole: a cluster with the Amazon VPC CNI has the role of its service account, whose ARN the control plane gets, and others have
// none. The policy is for this cluster alone.
func TestVPCCNIRole(t *testing.T) {
	for _, x := range rendertest.Topologies() {
		if x.Name != "ha" {
			continue
		}
		in := x.Input(t, "us-east-1")
		in.Cluster.Spec.ServiceAccountIssuerDiscovery.DiscoveryStore = "s3://oidc/prod"
		in.Cluster.Spec.KubeAPIServer.ServiceAccountIssuer = "https://oidc.s3.us-east-1.amazonaws.com/prod/demo"
		for cni, want := range map[string][]string{
			v1alpha1.CNIFlannel:   {"iam-oidc-provider/pods"},
			v1alpha1.CNIAmazonVPC: {"iam-oidc-provider/pods", "iam-role/sa-kube-system-aws-node-a5d80c", "iam-role-policy/sa-kube-system-aws-node-a5d80c"},
		} {
			in.Cluster.Spec.Networking.CNI = cni
			g, fs := model.Build(in)
			if err := fs.Err(); err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(want, identities(g)); diff != "" {
				t.Errorf("%s (-want +got)\n%s", cni, diff)
			}
			for _, n := range g.Nodes() {
				role, isRole := n.Resource.(awskind.IAMRole)
				if isRole && strings.Contains(role.Name, "aws-node") {
					arn := model.VPCCNIRoleARN("aws", "123456789012", in.Cluster)
					if !strings.HasSuffix(arn, role.Path+role.Name) || role.PermissionsBoundary != rendertest.Boundary {
						t.Errorf("the control plane gets %s for %+v", arn, role)
					}
				}
				if policy, ok := n.Resource.(awskind.IAMRolePolicy); ok && strings.Contains(string(n.Addr), "aws-node") &&
					!strings.Contains(string(policy.Document), `"aws:RequestTag/cluster.k8s.amazonaws.com/name":["demo"]`) {
					t.Errorf("the policy is not for the cluster: %s", policy.Document)
				}
			}
		}
	}
}
