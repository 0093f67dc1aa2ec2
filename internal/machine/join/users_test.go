// SPDX-License-Identifier: Apache-2.0

package join_test

import (
	"bytes"
	"crypto/tls"
	"encoding/base64"
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/slipway-k8s/slipway/api/v1alpha1"
	"github.com/slipway-k8s/slipway/internal/lib/pki"
	"github.com/slipway-k8s/slipway/internal/machine/join"
)

// review is the answer of a token review.
type review struct {
	Spec   struct{ Token string }
	Status struct {
		Authenticated bool
		Error         string
		User          struct {
			Username string
			Groups   []string
		}
	}
}

// reviewer is a join endpoint with users, behind TLS.
type reviewer struct {
	*world
	front *httptest.Server
}

func newReviewer(t *testing.T) *reviewer {
	t.Helper()
	w := newWorld(t)
	w.sts.arn = "arn:aws:sts::123456789012:assumed-role/ops/alice@example.com"
	w.server.ClusterID = "0123456789abcdef"
	w.server.Users = []v1alpha1.APIUser{
		{ARN: "arn:aws:iam::123456789012:user/bob", Groups: []string{"readers"}},
		{ARN: "arn:aws:iam::123456789012:role/team/ops", Groups: []string{"slipway:cluster-admins", "on-call"}},
	}
	r := &reviewer{world: w, front: httptest.NewUnstartedServer(w.server)}
	r.front.TLS = &tls.Config{ClientAuth: tls.VerifyClientCertIfGiven, ClientCAs: w.server.ClientCAs()}
	r.front.StartTLS()
	t.Cleanup(r.front.Close)

	return r
}

// ask reviews a token with a client certificate for leaf, as kube-apiserver does.
func (r *reviewer) ask(t *testing.T, token string, leaf *pki.Leaf) (review, int) {
	t.Helper()
	body, err := json.Marshal(map[string]any{
		"apiVersion": "authentication.k8s.io/v1", "kind": "TokenReview",
		"spec": map[string]any{"token": token, "audiences": []string{"https://kubernetes.default.svc"}},
	})
	if err != nil {
		t.Fatal(err)
	}
	client := trustingClient(t, r.front, r.ca, leaf)
	resp, err := client.Post(r.front.URL+join.TokenReviewPath, "application/json", bytes.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	text, err := io.ReadAll(resp.Body)
	_ = resp.Body.Close()
	if err != nil {
		t.Fatal(err)
	}
	var out review
	if resp.StatusCode == http.StatusOK {
		if err := json.Unmarshal(text, &out); err != nil {
			t.Fatal(err)
		}
	}
	return out, resp.StatusCode
}

func apiServerLeaf() *pki.Leaf {
	return &pki.Leaf{CN: join.APIServerClient, Usages: []pki.Usage{pki.ClientUsage}, TTL: time.Hour}
}

func (w *world) token(t *testing.T, cluster string, at time.Time) string {
	t.Helper()
	s := w.signer()
	s.Now = func() time.Time { return at }
	token, expires, err := s.CreateToken(t.Context(), cluster)
	if err != nil || expires.Sub(at) != time.Minute {
		t.Fatalf("expires %v: %v", expires, err)
	}
	return token
}

// TestUsersHaveNames: a session of a named role, whatever its path, is a user with the name of the session and the
// groups of the manifest.
func TestUsersHaveNames(t *testing.T) {
	r := newReviewer(t)
	for arn, groups := range map[string][]string{
		"arn:aws:sts::123456789012:assumed-role/ops/alice@example.com": {"slipway:cluster-admins", "on-call"},
		"arn:aws:iam::123456789012:user/people/bob":                    {"readers"},
	} {
		r.sts.arn = arn
		got, code := r.ask(t, r.token(t, "0123456789abcdef", time.Now()), apiServerLeaf())
		if code != http.StatusOK || !got.Status.Authenticated || got.Status.User.Username != arn || !slices.Equal(got.Status.User.Groups, groups) {
			t.Errorf("%s: %d %+v", arn, code, got)
		}
		if got.Spec.Token != "" {
			t.Error("the answer repeats the token")
		}
	}
}

// TestTokensThatAreRefused: nobody else is a user, and a proof of something else is no token.
func TestTokensThatAreRefused(t *testing.T) {
	const id = "0123456789abcdef"
	valid := func(t *testing.T, r *reviewer) string { t.Helper(); return r.token(t, id, time.Now()) }
	for name, test := range map[string]struct {
		arn   string
		token func(t *testing.T, r *reviewer) string
		want  string
	}{
		"a role that is not mapped":         {"arn:aws:sts::123456789012:assumed-role/dev/alice", valid, "is no user of cluster demo"},
		"a role of another account":         {"arn:aws:sts::210987654321:assumed-role/ops/alice", valid, "is no user of cluster demo"},
		"a role of another partition":       {"arn:aws-cn:sts::123456789012:assumed-role/ops/alice", valid, "is no user of cluster demo"},
		"a user with the name of a role":    {"arn:aws:iam::123456789012:user/ops", valid, "is no user of cluster demo"},
		"the account's root":                {"arn:aws:iam::123456789012:root", valid, "is not the ARN of an IAM role or user"},
		"a federated user":                  {"arn:aws:sts::123456789012:federated-user/bob", valid, "is not the ARN of an IAM role or user"},
		"a session with the name of a role": {"arn:aws:sts::123456789012:assumed-role/dev/ops", valid, "is no user of cluster demo"},
		"a token for another cluster":       {"", func(t *testing.T, r *reviewer) string { t.Helper(); return r.token(t, "fedcba9876543210", time.Now()) }, "STS rejected the proof"},
		"an old token": {"", func(t *testing.T, r *reviewer) string {
			t.Helper()
			return r.token(t, id, time.Now().Add(-7*time.Minute))
		}, "has expired"},
		"a token of the future": {"", func(t *testing.T, r *reviewer) string {
			t.Helper()
			return r.token(t, id, time.Now().Add(7*time.Minute))
		}, "not valid yet"},
		"a worker's proof for a certificate": {"", func(t *testing.T, r *reviewer) string { t.Helper(); return asToken(r.proof(t, "csr")) }, "does not sign host and x-slipway-cluster-id"},
		"a token that is changed": {"", func(t *testing.T, r *reviewer) string {
			t.Helper()
			return asToken(strings.Replace(r.query(t), "Signature=", "Signature=0", 1))
		}, "STS rejected the proof"},
		"another action": {"", func(t *testing.T, r *reviewer) string {
			t.Helper()
			return asToken(strings.Replace(r.query(t), "GetCallerIdentity", "AssumeRole", 1))
		}, "is not for GetCallerIdentity"},
		"a token that is no query":     {"", func(*testing.T, *reviewer) string { return asToken("%zz") }, "not a valid query string"},
		"not base64":                   {"", func(*testing.T, *reviewer) string { return "slipway-v1.?" }, "not valid base64"},
		"a token of a service account": {"", func(*testing.T, *reviewer) string { return "eyJhbGciOi.x.y" }, ""},
	} {
		t.Run(name, func(t *testing.T) {
			r := newReviewer(t)
			if test.arn != "" {
				r.sts.arn = test.arn
			}
			got, code := r.ask(t, test.token(t, r), apiServerLeaf())
			if code != http.StatusOK || got.Status.Authenticated || len(got.Status.User.Groups) > 0 {
				t.Fatalf("%d %+v", code, got)
			}
			if !strings.Contains(got.Status.Error, test.want) || (test.want == "") != (got.Status.Error == "") {
				t.Errorf("refused with %q, want %q", got.Status.Error, test.want)
			}
		})
	}
}

func asToken(query string) string {
	return "slipway-v1." + base64.RawURLEncoding.EncodeToString([]byte(query))
}

// query returns what a valid token has inside.
func (r *reviewer) query(t *testing.T) string {
	t.Helper()
	text, err := base64.RawURLEncoding.DecodeString(strings.TrimPrefix(r.token(t, "0123456789abcdef", time.Now()), "slipway-v1."))
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

func (r *reviewer) proof(t *testing.T, csr string) string {
	t.Helper()
	proof, err := r.signer().CreateProof(t.Context(), []byte(csr))
	if err != nil {
		t.Fatal(err)
	}
	return proof
}

// TestOnlyTheAPIServerReviewsTokens: nobody else learns whose an intercepted token is.
func TestOnlyTheAPIServerReviewsTokens(t *testing.T) {
	r := newReviewer(t)
	token := r.token(t, "0123456789abcdef", time.Now())
	node, _ := join.NodeLeaves("ip-10-80-16-4", netip.MustParseAddr("10.80.16.4"), time.Hour)
	for name, leaf := range map[string]*pki.Leaf{"no certificate": nil, "of a node": &node} {
		if got, code := r.ask(t, token, leaf); code != http.StatusForbidden {
			t.Errorf("%s: %d %+v", name, code, got)
		}
	}
}

// TestRevokedUsers: without users, without an id of the cluster, and after a removal nobody is a user. If STS does not
// answer, the API server is told to ask again: nothing may be remembered.
func TestRevokedUsers(t *testing.T) {
	r := newReviewer(t)
	ask := func() (review, int) { return r.ask(t, r.token(t, "0123456789abcdef", time.Now()), apiServerLeaf()) }
	users := r.server.Users
	r.server.Users = users[:1]
	if got, code := ask(); code != http.StatusOK || got.Status.Authenticated {
		t.Errorf("removed: %d %+v", code, got)
	}
	r.server.Users = nil
	if _, code := ask(); code != http.StatusNotFound {
		t.Errorf("without users: %d", code)
	}
	r.server.Users = users
	r.server.ClusterID = ""
	if got, code := r.ask(t, r.token(t, "", time.Now()), apiServerLeaf()); code != http.StatusOK || got.Status.Authenticated {
		t.Errorf("without an id: %d %+v", code, got)
	}
	r.server.ClusterID = "0123456789abcdef"
	r.server.STSEndpoint = "http://127.0.0.1:1"
	if got, code := ask(); code != http.StatusServiceUnavailable {
		t.Errorf("without STS: %d %+v", code, got)
	}
}

// TestUserTokenIsNoNode: what kubectl sends gets no certificate of a node.
func TestUserTokenIsNoNode(t *testing.T) {
	r := newReviewer(t)
	if code, text := r.post(t, newCSR(t), r.query(t)); code != http.StatusForbidden || !strings.Contains(text, "x-slipway-csr-sha256") {
		t.Errorf("%d %s", code, text)
	}
}
