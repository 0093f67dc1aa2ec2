// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"bytes"
	"crypto/tls"
	"encoding/base64"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/credentials"

	"github.com/slipway-k8s/slipway/api/v1alpha1"
	"github.com/slipway-k8s/slipway/internal/lib/pki"
	"github.com/slipway-k8s/slipway/internal/machine/join"
	"github.com/slipway-k8s/slipway/internal/machine/kube"
)

// realUsers are the users of a real API server. STS is not real: it knows one access key for each ARN, and signs each
// request again to compare the signatures.
type realUsers struct {
	arns map[string]string // by access key
	sts  *httptest.Server
}

const realClusterID = "0123456789abcdef"

// addUsers names users in the document of the machine.
func addUsers(t *testing.T, a *Agent) *realUsers {
	t.Helper()
	u := &realUsers{arns: map[string]string{
		"OPS":   "arn:aws:sts::123456789012:assumed-role/ops/alice",
		"DEV":   "arn:aws:sts::123456789012:assumed-role/dev/bob",
		"OTHER": "arn:aws:sts::123456789012:assumed-role/other/eve",
		"ROOT":  "arn:aws:iam::123456789012:root",
	}}
	u.sts = httptest.NewServer(u)
	t.Cleanup(u.sts.Close)
	a.doc.ClusterID = realClusterID
	a.doc.Join.Users = []v1alpha1.APIUser{
		{ARN: "arn:aws:iam::123456789012:role/ops", Groups: []string{pki.AdminGroup}},
		{ARN: "arn:aws:iam::123456789012:role/dev", Groups: []string{"developers"}},
	}
	return u
}

func (u *realUsers) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	q := r.URL.Query()
	key, _, _ := strings.Cut(q.Get("X-Amz-Credential"), "/")
	at, err := time.Parse("20060102T150405Z", q.Get("X-Amz-Date"))
	if err != nil {
		http.Error(w, "IncompleteSignature", http.StatusBadRequest)
		return
	}
	s := u.signer(key, at)
	token, _, err := s.CreateToken(r.Context(), r.Header.Get("X-Slipway-Cluster-Id"))
	again, decodeErr := base64.RawURLEncoding.DecodeString(strings.TrimPrefix(token, "slipway-v1."))
	if err != nil || decodeErr != nil || !strings.Contains(string(again), "X-Amz-Signature="+q.Get("X-Amz-Signature")) {
		http.Error(w, "SignatureDoesNotMatch", http.StatusForbidden)
		return
	}
	fmt.Fprintf(w, "<GetCallerIdentityResponse><GetCallerIdentityResult><Arn>%s</Arn><UserId>AROAX:y</UserId>"+
		"</GetCallerIdentityResult></GetCallerIdentityResponse>", u.arns[key])
}

// signer signs with an access key.
func (u *realUsers) signer(key string, at time.Time) join.Signer {
	return join.Signer{
		Credentials: credentials.NewStaticCredentialsProvider(key, "secret of "+key, ""), Region: "us-east-1",
		Endpoint: u.sts.URL, Now: func() time.Time { return at },
	}
}

// serve answers token reviews of the API server as the agent does, at a free port.
func (u *realUsers) serve(t *testing.T, a *Agent) {
	t.Helper()
	endpoint := &join.Server{
		CA: a.bundle.CAs[pki.KubernetesCA], Cluster: a.doc.Cluster, ClusterID: a.doc.ClusterID, Users: a.doc.Join.Users,
		STSEndpoint: u.sts.URL, HTTP: u.sts.Client(), Now: time.Now, Log: a.Log,
	}
	leaf := pki.Leaf{CN: "slipway-join", Usages: []pki.Usage{pki.ServerUsage}, TTL: time.Hour, IPs: []netip.Addr{a.instance.Address}}
	pair := newCertificateSource(a.bundle, pki.KubernetesCA, leaf, a.Now)
	listener, err := tls.Listen("tcp", "127.0.0.1:0", joinTLSConfig(pair, endpoint.ClientCAs()))
	if err != nil {
		t.Fatal(err)
	}
	front := &http.Server{Handler: endpoint, ReadHeaderTimeout: 5 * time.Second}
	go func() { _ = front.Serve(listener) }()
	t.Cleanup(func() { _ = front.Close() })

	path := a.Root.Path(kube.ConfigDir + "/token-review.conf")
	body, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	before := []byte("https://127.0.0.1:" + join.Port)
	if !bytes.Contains(body, before) {
		t.Fatalf("kube-apiserver does not ask the agent: %s", body)
	}
	if err := os.WriteFile(path, bytes.Replace(body, before, []byte("https://"+listener.Addr().String()), 1), 0o600); err != nil {
		t.Fatal(err)
	}
}

// check uses the API with tokens of several roles.
func (u *realUsers) check(t *testing.T, a *Agent, server string) {
	t.Helper()
	for name, c := range map[string]struct {
		key, cluster string
		want         int
	}{
		"an administrator":   {"OPS", realClusterID, http.StatusOK},
		"a developer":        {"DEV", realClusterID, http.StatusForbidden},
		"a role of nobody":   {"OTHER", realClusterID, http.StatusUnauthorized},
		"another cluster's":  {"OPS", "fedcba9876543210", http.StatusUnauthorized},
		"the account's root": {"ROOT", realClusterID, http.StatusUnauthorized},
	} {
		token, _, err := u.signer(c.key, time.Now()).CreateToken(t.Context(), c.cluster)
		if err != nil {
			t.Fatal(err)
		}
		code, body := getWithToken(t, a, server+"/api/v1/namespaces/kube-system/secrets", token)
		if code != c.want {
			t.Errorf("%s reads Secrets: %d, want %d\n%s", name, code, c.want, body)
		}
		if c.want == http.StatusForbidden && !strings.Contains(body, u.arns[c.key]) {
			t.Errorf("%s has no name in %s", name, body)
		}
	}
	if code, body := getWithToken(t, a, server+"/version", "eyJhbGciOiJSUzI1NiJ9.e30.AAAA"); code != http.StatusUnauthorized {
		t.Errorf("a token of another kind: %d %s", code, body)
	}
	if flags := kube.APIServerFlags(testAgent(t).kubeConfig()); slices.ContainsFunc(flags, func(f string) bool { return strings.Contains(f, "webhook") }) {
		t.Errorf("without users the API server asks too: %s", flags)
	}
}

func getWithToken(t *testing.T, a *Agent, url, token string) (int, string) {
	t.Helper()
	client := &http.Client{Timeout: 20 * time.Second, Transport: &http.Transport{TLSClientConfig: a.kubernetesTLSConfig(), DisableKeepAlives: true}}
	req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, url, nil)
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("Authorization", "Bearer "+token)
	resp, err := client.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	body, _ := io.ReadAll(resp.Body)
	_ = resp.Body.Close()
	return resp.StatusCode, string(body)
}
