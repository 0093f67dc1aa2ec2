// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"bytes"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/slipway-k8s/slipway/api/v1alpha1"
	"github.com/slipway-k8s/slipway/internal/machine/kube"
)

// TestSigningKeyOfComponents: the key that signs tokens of service accounts is in the directory of the API server, and in that
// of the controller manager only if the manifest wants tokens in Secrets. A running machine that had it has it no more.
func TestSigningKeyOfComponents(t *testing.T) {
	a := testAgent(t)
	key, err := a.bundle.ServiceAccount.PEM()
	if err != nil {
		t.Fatal(err)
	}
	holders := func(setting string) []string {
		t.Helper()
		a.doc.KubeControllerManager.ServiceAccountTokenSecrets = setting
		files, err := a.controlPlaneFiles()
		if err != nil {
			t.Fatal(err)
		}
		if _, err := a.writeFiles(files); err != nil {
			t.Fatal(err)
		}
		var out []string
		for _, component := range kube.StaticPodNames() {
			path := kube.ComponentDir(component) + "/service-account.key"
			if body, err := a.Root.Read(path); err == nil && bytes.Equal(body, key) {
				out = append(out, component)
			}
		}
		for _, f := range files {
			if bytes.Contains(f.Body, key) && !strings.HasSuffix(f.Path, "/service-account.key") {
				t.Errorf("the key is in %s", f.Path)
			}
		}
		return out
	}
	both := []string{kube.APIServer, kube.ControllerManager}
	for _, c := range []struct {
		setting string
		want    []string
	}{
		{"", both},
		{v1alpha1.TokenSecretsDisabled, both[:1]},
		{v1alpha1.TokenSecretsEnabled, both},
		{v1alpha1.TokenSecretsDisabled, both[:1]},
	} {
		if got := holders(c.setting); !slices.Equal(got, c.want) {
			t.Errorf("serviceAccountTokenSecrets %q: %v have the key, want %v", c.setting, got, c.want)
		}
	}
}

// checkTokenSecrets checks that a controller manager without the signing key puts no token into a Secret, and that the API
// server still signs tokens on request.
func checkTokenSecrets(t *testing.T, api kube.Client) {
	t.Helper()
	const account = "/api/v1/namespaces/kube-system/serviceaccounts/default"
	eventually(t, "a service account", func() error { return api.Get(t.Context(), account, new(any)) })
	const secrets = "/api/v1/namespaces/kube-system/secrets"
	body := `{"apiVersion":"v1","kind":"Secret","metadata":{"name":"forever","annotations":` +
		`{"kubernetes.io/service-account.name":"default"}},"type":"kubernetes.io/service-account-token"}`
	if _, err := api.Do(t.Context(), http.MethodPost, secrets, "application/json", []byte(body)); err != nil {
		t.Fatal(err)
	}
	request := `{"apiVersion":"authentication.k8s.io/v1","kind":"TokenRequest","spec":{"expirationSeconds":600}}`
	answer, err := api.Do(t.Context(), http.MethodPost, account+"/token", "application/json", []byte(request))
	if err != nil || !bytes.Contains(answer, []byte(`"token"`)) {
		t.Errorf("a token on request: %v", err)
	}
	time.Sleep(3 * time.Second) // the controller needs less than a second
	var secret struct {
		Data map[string]string `json:"data"`
	}
	if err := api.Get(t.Context(), secrets+"/forever", &secret); err != nil || secret.Data["token"] != "" {
		t.Errorf("the controller manager has signed a token for a Secret (%v)", err)
	}
}
