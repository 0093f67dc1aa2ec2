// SPDX-License-Identifier: Apache-2.0

package kube_test

import (
	"slices"
	"strings"
	"testing"

	"github.com/slipway-k8s/slipway/api/v1alpha1"
	"github.com/slipway-k8s/slipway/internal/machine/kube"
)

// TestServiceAccountIssuers: the issuer of new tokens comes first, the accepted ones follow; a cluster that names none keeps
// the issuer that all clusters had before the field existed.
func TestServiceAccountIssuers(t *testing.T) {
	for want, settings := range map[string]v1alpha1.KubeAPIServer{
		"https://kubernetes.default.svc":           {},
		"https://oidc.example":                     {ServiceAccountIssuer: "https://oidc.example"},
		"https://kubernetes.default.svc https://z": {AcceptedServiceAccountIssuers: []string{"https://z"}},
		"https://oidc.example https://z https://a": {
			ServiceAccountIssuer:          "https://oidc.example",
			AcceptedServiceAccountIssuers: []string{"https://z", "https://a"},
		},
	} {
		flags := kube.APIServerFlags(kube.Config{APIServerSettings: settings})
		flags = slices.DeleteFunc(flags, func(f string) bool { return !strings.HasPrefix(f, "--service-account-issuer=") })
		if got := strings.ReplaceAll(strings.Join(flags, " "), "--service-account-issuer=", ""); got != want {
			t.Errorf("%+v: %q, want %q", settings, got, want)
		}
	}
}
