// SPDX-License-Identifier: Apache-2.0

package manifest_test

import (
	"strings"
	"testing"

	"github.com/slipway-k8s/slipway/api/v1alpha1"
	"github.com/slipway-k8s/slipway/internal/manifest"
)

// podSet returns a new cluster with a discovery store and a role for shop/reader.
func podSet(t *testing.T, change func(*v1alpha1.ClusterSpec)) manifest.Set {
	t.Helper()
	set, fs := manifest.NewSet("demo", []string{"us-east-1a"}, manifest.NewSetOptions{})
	if err := fs.Err(); err != nil {
		t.Fatal(err)
	}
	set.Cluster.Spec.KubeAPIServer.ServiceAccountIssuer = ""
	set.Cluster.Spec.ServiceAccountIssuerDiscovery.DiscoveryStore = "s3://example-oidc/prod"
	set.Cluster.Spec.IAM.ServiceAccountExternalPermissions = []v1alpha1.ServiceAccountPermissions{{
		Name: "reader", Namespace: "shop",
		AWS: v1alpha1.ServiceAccountAWS{InlinePolicy: `{"Version":"2012-10-17","Statement":[]}`},
	}}
	change(&set.Cluster.Spec)
	return manifest.Default(set)
}

func TestIssuerOf(t *testing.T) {
	for _, c := range []struct{ store, region, want string }{
		{"s3://example-oidc/prod", "us-east-1", "https://example-oidc.s3.us-east-1.amazonaws.com/prod/demo"},
		{"s3://example-oidc", "eu-central-1", "https://example-oidc.s3.eu-central-1.amazonaws.com/demo"},
		{"s3://example-oidc/a/b_c-d.e", "us-gov-west-1", "https://example-oidc.s3.us-gov-west-1.amazonaws.com/a/b_c-d.e/demo"},
		{"s3://example-oidc", "cn-north-1", "https://example-oidc.s3.cn-north-1.amazonaws.com.cn/demo"},
		{"", "us-east-1", ""},
		{"s3://with.dots", "us-east-1", ""},
		{"s3://example-oidc/", "us-east-1", ""},
		{"s3://example-oidc//a", "us-east-1", ""},
		{"s3://example-oidc/../a", "us-east-1", ""},
		{"s3://example-oidc/a?b", "us-east-1", ""},
		{"s3://u:p@example-oidc", "us-east-1", ""},
		{"https://example-oidc", "us-east-1", ""},
		{"file:///example-oidc", "us-east-1", ""},
	} {
		if got := manifest.IssuerOf(c.store, c.region, "demo"); got != c.want {
			t.Errorf("%s in %s: %q, want %q", c.store, c.region, got, c.want)
		}
	}
}

func TestPodIdentitySettings(t *testing.T) {
	type spec = v1alpha1.ClusterSpec
	role := func(c *spec) *v1alpha1.ServiceAccountPermissions { return &c.IAM.ServiceAccountExternalPermissions[0] }
	for want, change := range map[string]func(*spec){
		"": func(*spec) {},
		`discoveryStore "s3://with.dots": is not a valid s3:// URL of a bucket`:                                          func(c *spec) { c.ServiceAccountIssuerDiscovery.DiscoveryStore = "s3://with.dots" },
		`discoveryStore "s3://example-oidc/prod": is in the bucket of spec.configStore.base`:                             func(c *spec) { c.ConfigStore.Base = "s3://example-oidc/machines" },
		`serviceAccountIssuer "https://a.example": is not where the documents of the discovery store can be read (leave`: func(c *spec) { c.KubeAPIServer.ServiceAccountIssuer = "https://a.example" },
		`makes an issuer of more than 255 characters`: func(c *spec) {
			c.ServiceAccountIssuerDiscovery.DiscoveryStore = "s3://example-oidc/" + strings.Repeat("a", 220)
		},
		`serviceAccountExternalPermissions: needs a discovery store`:                           func(c *spec) { c.ServiceAccountIssuerDiscovery.DiscoveryStore = "" },
		`serviceAccountExternalPermissions[0].name "Reader": is not a valid name of a service`: func(c *spec) { role(c).Name = "Reader" },
		`serviceAccountExternalPermissions[0].namespace "*": is not a valid name of a name`:    func(c *spec) { role(c).Namespace = "*" },
		`serviceAccountExternalPermissions[0].namespace "a.b": is not a valid name of a`:       func(c *spec) { role(c).Namespace = "a.b" },
		`serviceAccountExternalPermissions[0].aws: allows nothing`:                             func(c *spec) { role(c).AWS.InlinePolicy = "" },
		`serviceAccountExternalPermissions[0].aws.inlinePolicy: is not a policy document in J`: func(c *spec) { role(c).AWS.InlinePolicy = "[]" },
		`serviceAccountExternalPermissions[0].aws.inlinePolicy "8999": exceeds the limit of 8`: func(c *spec) {
			role(c).AWS.InlinePolicy = `{"Version":"2012-10-17","Statement":"` + strings.Repeat("a", 9000-40) + `"}`
		},
		`serviceAccountExternalPermissions[0].aws.policyARNs[0] "read": is not a valid managed`: func(c *spec) { role(c).AWS.PolicyARNs = []string{"read"} },
		`serviceAccountExternalPermissions[0].aws.policyARNs[1] "arn:aws:iam::aws:policy/A": duplicates policyARNs[0]`: func(c *spec) {
			role(c).AWS.PolicyARNs = []string{"arn:aws:iam::aws:policy/A", "arn:aws:iam::aws:policy/A"}
		},
		`serviceAccountExternalPermissions[1] "shop/reader": duplicates serviceAccountExternalPermissions[0]`: func(c *spec) {
			c.IAM.ServiceAccountExternalPermissions = append(c.IAM.ServiceAccountExternalPermissions, *role(c))
		},
		`serviceAccountExternalPermissions "101": exceeds 100 roles`: func(c *spec) {
			for len(c.IAM.ServiceAccountExternalPermissions) < 101 {
				c.IAM.ServiceAccountExternalPermissions = append(c.IAM.ServiceAccountExternalPermissions, *role(c))
			}
		},
	} {
		err := manifest.Validate(podSet(t, change)).Err()
		if want == "" {
			if err != nil {
				t.Error(err)
			}
			continue
		}
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("want %q in %v", want, err)
		}
	}
}

// TestIssuerOfDiscoveryStore: the issuer follows the store, and stays when the cluster was applied.
func TestIssuerOfDiscoveryStore(t *testing.T) {
	set := podSet(t, func(*v1alpha1.ClusterSpec) {})
	const want = "https://example-oidc.s3.us-east-1.amazonaws.com/prod/demo"
	if got := set.Cluster.Spec.KubeAPIServer.ServiceAccountIssuer; got != want {
		t.Errorf("the issuer is %q, want %q", got, want)
	}
	other := podSet(t, func(c *v1alpha1.ClusterSpec) {
		c.ServiceAccountIssuerDiscovery.DiscoveryStore = "s3://example-oidc/other"
	})
	if err := manifest.CheckChanges(set, other).Err(); err == nil || !strings.Contains(err.Error(), "discoveryStore") {
		t.Errorf("another store: %v", err)
	}
	more := podSet(t, func(c *v1alpha1.ClusterSpec) { c.IAM.ServiceAccountExternalPermissions = nil })
	if err := manifest.CheckChanges(set, more).Err(); err != nil {
		t.Errorf("other roles: %v", err)
	}
	plain, _ := manifest.NewSet("demo", []string{"us-east-1a"}, manifest.NewSetOptions{})
	if got := manifest.Default(plain).Cluster.Spec.KubeAPIServer.ServiceAccountIssuer; got != "" {
		t.Errorf("a cluster without a discovery store has the issuer %q", got)
	}
}
