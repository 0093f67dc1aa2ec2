// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"bytes"
	"crypto/ecdsa"
	"crypto/rand"
	"crypto/sha256"
	"crypto/x509"
	"encoding/base64"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"net/http"
	"testing"

	"github.com/slipway-k8s/slipway/internal/lib/pki"
	"github.com/slipway-k8s/slipway/internal/machine/kube"
)

// checkFormerTokens checks that a token which a controller manager once put into a Secret stays valid when the controller
// manager has no key any more, and ends with its Secret.
func checkFormerTokens(t *testing.T, a *Agent, api kube.Client) {
	t.Helper()
	const namespace = "/api/v1/namespaces/kube-system/"
	var account struct{ Metadata struct{ UID string } }
	if err := api.Get(t.Context(), namespace+"serviceaccounts/default", &account); err != nil {
		t.Fatal(err)
	}

	const claim = "kubernetes.io/serviceaccount/"
	token := signFormerToken(t, a.bundle.ServiceAccount, map[string]string{
		"iss":                          "kubernetes/serviceaccount",
		"sub":                          "system:serviceaccount:kube-system:default",
		claim + "namespace":            "kube-system",
		claim + "secret.name":          "former",
		claim + "service-account.name": "default",
		claim + "service-account.uid":  account.Metadata.UID,
	})
	status := func() int { return statusWithToken(t, a, api.Server+namespace+"pods", token) }
	if got := status(); got != http.StatusUnauthorized {
		t.Errorf("a token without its Secret: %d", got)
	}

	secret, err := json.Marshal(map[string]any{
		"apiVersion": "v1", "kind": "Secret", "type": "kubernetes.io/service-account-token",
		"metadata": map[string]any{
			"name":        "former",
			"annotations": map[string]string{"kubernetes.io/service-account.name": "default"},
		},
		"data": map[string][]byte{"token": []byte(token)},
	})
	if err != nil {
		t.Fatal(err)
	}

	if _, err := api.Do(t.Context(), http.MethodPost, namespace+"secrets", "application/json", secret); err != nil {
		t.Fatal(err)
	}

	await := func(what string, want int) {
		t.Helper()
		eventually(t, what, func() error {
			if got := status(); got != want {
				return fmt.Errorf("status %d, want %d", got, want)
			}

			return nil
		})
	}
	await("a token in a Secret is valid", http.StatusForbidden) // who it is is known, and may not list pods
	if _, err := api.Do(t.Context(), http.MethodDelete, namespace+"secrets/former", "", nil); err != nil {
		t.Fatal(err)
	}

	await("the token of a deleted Secret is invalid", http.StatusUnauthorized)
}

// statusWithToken returns the status with which the API server answers a request with a token.
func statusWithToken(t *testing.T, a *Agent, url, token string) int {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, url, nil)
	if err != nil {
		t.Fatal(err)
	}

	req.Header.Set("Authorization", "Bearer "+token)
	client := &http.Client{Transport: &http.Transport{TLSClientConfig: a.kubernetesTLSConfig(), DisableKeepAlives: true}}
	resp, err := client.Do(req)
	if err != nil {
		t.Fatal(err)
	}

	_ = resp.Body.Close()

	return resp.StatusCode
}

// signFormerToken returns a token in the form of the controller manager: without an end.
func signFormerToken(t *testing.T, key pki.Key, claims map[string]string) string {
	t.Helper()
	text, err := key.PEM()
	if err != nil {
		t.Fatal(err)
	}

	block, _ := pem.Decode(text)
	parsed, err := x509.ParsePKCS8PrivateKey(block.Bytes)
	if err != nil {
		t.Fatal(err)
	}

	private, ok := parsed.(*ecdsa.PrivateKey)
	if !ok {
		t.Fatalf("the key is a %T", parsed)
	}

	body, err := json.Marshal(claims)
	if err != nil {
		t.Fatal(err)
	}

	encoding := base64.RawURLEncoding
	signed := encoding.EncodeToString([]byte(`{"alg":"ES256"}`)) + "." + encoding.EncodeToString(body)
	sum := sha256.Sum256([]byte(signed))
	r, s, err := ecdsa.Sign(rand.Reader, private, sum[:])
	if err != nil {
		t.Fatal(err)
	}

	signature := bytes.Join([][]byte{r.FillBytes(make([]byte, 32)), s.FillBytes(make([]byte, 32))}, nil)

	return signed + "." + encoding.EncodeToString(signature)
}
