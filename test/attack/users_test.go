// SPDX-License-Identifier: Apache-2.0

package attack_test

import (
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/json"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/slipway-k8s/slipway/api/v1alpha1"
	"github.com/slipway-k8s/slipway/internal/machine/join"
	"github.com/slipway-k8s/slipway/internal/region/regiontest"
)

// reviewToken asks a join endpoint whose a token is, as kube-apiserver does after TLS has verified its certificate.
func reviewToken(t *testing.T, s *join.Server, token string) (user, reason string) {
	t.Helper()
	body, err := json.Marshal(map[string]any{"spec": map[string]string{"token": token}})
	if err != nil {
		t.Fatal(err)
	}

	r := httptest.NewRequestWithContext(t.Context(), http.MethodPost, join.TokenReviewPath, strings.NewReader(string(body)))
	server := &x509.Certificate{Subject: pkix.Name{CommonName: join.APIServerClient}}
	r.TLS = &tls.ConnectionState{VerifiedChains: [][]*x509.Certificate{{server}}}
	w := httptest.NewRecorder()
	s.ServeHTTP(w, r)

	var answer struct {
		Status struct {
			Error string
			User  struct{ Username string }
		}
	}
	if err := json.Unmarshal(w.Body.Bytes(), &answer); err != nil {
		t.Fatalf("%d %s", w.Code, w.Body)
	}

	return answer.Status.User.Username, answer.Status.Error
}

// TestTokensOfOthers: with the region's IAM and STS, the token of the named user is accepted, and nothing else is. Never open: tokens
// of users and this test were made together.
func TestTokensOfOthers(t *testing.T) {
	l := newLabWithoutStore(t)
	alice := l.user("alice", nil)
	eve := l.user("eve", nil)
	arn := "arn:aws:iam::" + regiontest.AccountID + ":user/alice"
	cluster := func(id string) *join.Server {
		return &join.Server{
			Cluster: "demo", ClusterID: id, STSEndpoint: l.region.URL, HTTP: http.DefaultClient, Now: time.Now,
			Log:   slog.New(slog.DiscardHandler),
			Users: []v1alpha1.APIUser{{ARN: arn, Groups: []string{"slipway:cluster-admins"}}},
		}
	}
	sign := func(c caller, id string, at time.Time) string {
		cfg := l.config(c)
		s := join.Signer{Credentials: cfg.Credentials, Region: cfg.Region, Endpoint: l.region.URL, Now: func() time.Time { return at }}
		token, _, err := s.CreateToken(t.Context(), id)
		l.check(err)

		return token
	}

	const id = "0123456789abcdef"
	now := time.Now()
	if user, reason := reviewToken(t, cluster(id), sign(alice, id, now)); user != arn {
		t.Errorf("alice is %q: %s", user, reason)
	}

	for name, attack := range map[string]struct {
		token, want string
	}{
		"a user that is not named":          {sign(eve, id, now), "is no user of cluster demo"},
		"the account's root":                {sign(caller{}, id, now), "is not the ARN of an IAM role or user"},
		"a token that another cluster got":  {sign(alice, "fedcba9876543210", now), "STS rejected the proof"},
		"a token of three minutes ago":      {sign(alice, id, now.Add(-3*time.Minute)), "STS rejected the proof"},
		"a token of ten minutes ago":        {sign(alice, id, now.Add(-10*time.Minute)), "has expired"},
		"a key of nobody":                   {sign(caller{key: "AKIAIOSFODNN7EXAMPLE", secret: "x"}, id, now), "STS rejected the proof"},
		"the user's key id without its key": {sign(caller{key: alice.key, secret: "x"}, id, now), "STS rejected the proof"},
	} {
		if user, reason := reviewToken(t, cluster(id), attack.token); user != "" || !strings.Contains(reason, attack.want) {
			t.Errorf("%s is %q: %s", name, user, reason)
		}
	}
}

// TestRevokedAdministrator: who was taken out of the manifest has no access with the next token, although the credentials are
// valid, and never was in a group that the manifest does not give. Seen to fail with the check of users taken out.
func TestRevokedAdministrator(t *testing.T) {
	l := newLabWithoutStore(t)
	alice := l.user("alice", nil)
	arn := "arn:aws:iam::" + regiontest.AccountID + ":user/alice"
	const id = "0123456789abcdef"
	server := &join.Server{
		Cluster: "demo", ClusterID: id, STSEndpoint: l.region.URL, HTTP: http.DefaultClient, Now: time.Now,
		Log: slog.New(slog.DiscardHandler),
		Users: []v1alpha1.APIUser{
			{ARN: arn, Groups: []string{"slipway:cluster-admins"}},
			{ARN: arn + "2", Groups: []string{"viewers"}},
		},
	}
	cfg := l.config(alice)
	s := join.Signer{Credentials: cfg.Credentials, Region: cfg.Region, Endpoint: l.region.URL, Now: time.Now}
	token, _, err := s.CreateToken(t.Context(), id)
	l.check(err)
	if user, reason := reviewToken(t, server, token); user != arn {
		t.Fatalf("alice is %q: %s", user, reason)
	}

	server.Users = server.Users[1:]
	if user, reason := reviewToken(t, server, token); user != "" || !strings.Contains(reason, "is no user of cluster demo") {
		t.Errorf("after the revocation, alice is %q: %s", user, reason)
	}
}
