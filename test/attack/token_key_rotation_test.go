// SPDX-License-Identifier: Apache-2.0

package attack_test

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"strings"
	"testing"

	sdk "github.com/aws/aws-sdk-go-v2/aws"
	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/slipway-k8s/slipway/internal/lib/pki"
	"github.com/slipway-k8s/slipway/internal/lib/store"
)

// rotateTokenKey carries out a step of a rotation as 'slipway iam rotate-token-key' does once all machines are replaced, which this
// region has none of, and signs and applies it.
func (p podLab) rotateTokenKey(operator caller, want pki.RotationStep) {
	p.Helper()
	cfg := p.config(caller{})
	s, sealer, err := store.Open(p.Context(), stateURL, store.Options{AWS: func(context.Context) (sdk.Config, error) { return cfg, nil }})
	p.check(err)
	r, err := pki.PlanTokenKeyRotation(p.Context(), s, sealer, "demo")
	p.check(err)
	if r.Step != want {
		p.Fatalf("the next step is %s, want %s", r.Step, want)
	}
	p.check(r.Write(p.Context(), s))
	p.must(operator, 0, "state", "sign", "demo", "--yes")
	p.must(operator, 0, "apply", "demo", "--yes")
}

// TestTokenKeyRotation: while the key of tokens is rotated, tokens of both keys get credentials; afterwards those of the old key get none.
// No attack: an operator with the policy of one has the rights for it.
func TestTokenKeyRotation(t *testing.T) {
	p := newPodLab(t)
	operator := p.user("operator", p.policies("demo", "--allow-existing"))
	old := p
	try := func(what string, pod podLab, works bool) {
		t.Helper()
		_, err := pod.assumeWith(readerRole, pod.sign(pod.private(), nil))
		switch {
		case works && err != nil:
			t.Errorf("%s: %v", what, err)
		case !works:
			p.refused(what, "InvalidIdentityToken", err)
		}
	}
	try("before", old, true)

	p.must(operator, 0, "iam", "rotate-token-key", "demo", "--yes")
	if _, errs, code := p.slipway(operator, "iam", "rotate-token-key", "demo", "--yes"); code != 1 || !strings.Contains(errs, "has changes that were not applied") {
		t.Errorf("exit status %d before the apply: %s", code, errs)
	}
	p.must(operator, 0, "apply", "demo", "--yes")
	try("a key was added", old, true)
	if _, errs, code := p.slipway(operator, "iam", "rotate-token-key", "demo", "--yes"); code != 1 || strings.Contains(errs, "step Promote of cluster demo is done") {
		t.Errorf("exit status %d without machines that have the key: %s", code, errs)
	}

	p.rotateTokenKey(operator, pki.RotationPromote)
	now := podLab{lab: p.lab, key: p.serviceAccountKey()}
	if now.key.Public().Equal(old.key.Public()) {
		t.Error("the old key still signs")
	}
	try("the old key after the new one signs", old, true)
	try("the new key", now, true)

	p.rotateTokenKey(operator, pki.RotationRemove)
	try("the new key after the old one is gone", now, true)
	try("the old key", old, false)
}

// TestRealTokenKeyRotation: an API server with a new key accepts tokens of the old one until it is removed. No attack: what keeps pods
// working while keys are rotated.
func TestRealTokenKeyRotation(t *testing.T) {
	if testing.Short() {
		t.Skip("SKIPPED: -short")
	}
	p := newPodLab(t)
	cfg := p.config(caller{})
	s, sealer, err := store.Open(t.Context(), stateURL, store.Options{AWS: func(context.Context) (sdk.Config, error) { return cfg, nil }})
	p.check(err)
	for _, step := range []pki.RotationStep{pki.RotationAdd, pki.RotationPromote, pki.RotationRemove} {
		r, err := pki.PlanTokenKeyRotation(t.Context(), s, sealer, "demo")
		p.check(err)
		if r.Step != step {
			t.Fatalf("the next step is %s, want %s", r.Step, step)
		}
		p.check(r.Write(t.Context(), s))
		public, err := pki.ParsePublicBundle(store.Object{Body: r.Body})
		p.check(err)
		options := signWith(t, p.serviceAccountKey(), podIssuer)
		options.VerificationKey = []byte(public.ServiceAccountKeys)
		server := startRealAPI(t, options)
		accounts := server.api.CoreV1().ServiceAccounts("default")
		_, err = accounts.Create(t.Context(), &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Name: "reader"}}, metav1.CreateOptions{})
		p.check(err)
		issued := server.accountToken("default", "reader")
		former := p.sign(p.private(), claimsOf(t, issued)) // the same token with the key of before the rotation
		for token, works := range map[string]bool{issued: true, former: step != pki.RotationRemove} {
			review, err := server.api.AuthenticationV1().TokenReviews().Create(
				t.Context(), &authenticationv1.TokenReview{Spec: authenticationv1.TokenReviewSpec{Token: token}}, metav1.CreateOptions{})
			p.check(err)
			if review.Status.Authenticated != works {
				t.Errorf("%s: a token of the API server: %v, of the former key: %v; authenticated: %v, %s",
					step, token == issued, token == former, review.Status.Authenticated, review.Status.Error)
			}
		}
	}
}

// claimsOf returns the claims of a token.
func claimsOf(t *testing.T, token string) map[string]any {
	t.Helper()
	parts := strings.Split(token, ".")
	text, err := base64.RawURLEncoding.DecodeString(parts[1])
	if err != nil {
		t.Fatal(err)
	}
	var claims map[string]any
	decoder := json.NewDecoder(strings.NewReader(string(text)))
	decoder.UseNumber()
	if err := decoder.Decode(&claims); err != nil {
		t.Fatal(err)
	}

	return claims
}
