// SPDX-License-Identifier: Apache-2.0

package e2e_test

import (
	"context"
	"crypto/tls"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"
)

// TestTokenKeyRotation rotates the key that signs tokens of service accounts on three machines of the control plane. The API accepts tokens
// of both keys all the time, and at the end those of the new key only. What the issuer publishes for STS has the same keys.
func TestTokenKeyRotation(t *testing.T) {
	skipUnlessLong(t)
	e := newEnvironment(t)
	e.runSteps(t, []step{
		{"up", func(e *environment) { e.createClusterWithRoles(nil) }},
		{"the key is rotated without a refused token", rotateTokenKey},
		{"delete leaves nothing", func(e *environment) { e.runSlipway("delete", "cluster", clusterName, "--yes") }},
	})
}

func rotateTokenKey(e *environment) {
	server := e.kubectl("config", "view", "--minify", "-o", "jsonpath={.clusters[0].cluster.server}")
	w := &tokenWatch{url: server + "/apis", client: &http.Client{
		Timeout:   5 * time.Second,
		Transport: &http.Transport{DisableKeepAlives: true, TLSClientConfig: &tls.Config{InsecureSkipVerify: true}},
	}}
	old := e.kubectl("create", "token", "default", "--duration=2h")
	w.add(old)
	ctx, stop := context.WithCancel(e.t.Context())
	defer stop()
	var running sync.WaitGroup
	running.Go(func() { w.run(ctx) })
	for _, step := range []string{"Add", "Promote", "Remove"} {
		if step == "Remove" {
			stop() // from here on the old key ends
			running.Wait()
		}
		out := e.runProgram(e.slipway, "iam", "rotate-token-key", clusterName, "--yes")
		if out.code != 0 || !strings.Contains(out.err, "step "+step+" of cluster") {
			e.t.Fatalf("exit status %d, want step %s: %s", out.code, step, out.err)
		}
		if r := e.runProgram(e.slipway, "iam", "rotate-token-key", clusterName, "--yes"); r.code != 1 {
			e.t.Errorf("%s: the next step was not refused before the apply: %s", step, r.err)
		}
		e.runSlipway("apply", clusterName, "--yes")
		if step != "Remove" { // the next rotation would begin
			r := e.runProgram(e.slipway, "iam", "rotate-token-key", clusterName, "--yes")
			if r.code != 1 || !strings.Contains(r.err, "does not have the keys") {
				e.t.Errorf("%s: exit status %d before machines were replaced: %s", step, r.code, r.err)
			}
		}
		start := time.Now()
		e.runSlipway("rolling-update", "cluster", clusterName, "--yes")
		issued := e.kubectl("create", "token", "default", "--duration=2h")
		w.add(issued)
		e.t.Logf("%s: the machines were replaced in %s, and tokens are signed by key %s", step, time.Since(start).Round(time.Second), keyOf(e.t, issued))
		if isNew := keyOf(e.t, issued) != keyOf(e.t, old); isNew != (step != "Add") {
			e.t.Errorf("%s: tokens are signed by the old key: %v", step, !isNew)
		}
	}
	e.t.Logf("COUNT tokens: %d requests, %d without an answer, %d refused", w.requests, w.unanswered, w.refused)
	if w.refused > 0 || w.requests < 100 {
		e.t.Errorf("%d of %d requests were refused", w.refused, w.requests)
	}
	for _, token := range w.tokens {
		want := http.StatusOK
		if keyOf(e.t, token) == keyOf(e.t, old) {
			want = http.StatusUnauthorized
		}
		e.waitUntil("the API answers", time.Minute, func() error {
			if got, err := w.ask(e.t.Context(), token); err != nil || got != want {
				return fmt.Errorf("key %s: status %d, want %d: %w", keyOf(e.t, token), got, want, err)
			}

			return nil
		})
	}
	keys := e.runProgram("aws", "s3", "cp", discoveryStore+"/"+clusterName+"/openid/v1/jwks", "-").out
	if strings.Count(keys, `"kid"`) != 1 || strings.Contains(keys, keyOf(e.t, old)) {
		e.t.Errorf("STS knows the keys %s", keys)
	}
}

// keyOf returns the id of the key that signed a token.
func keyOf(t *testing.T, token string) string {
	t.Helper()
	head, _, _ := strings.Cut(token, ".")
	text, err := base64.RawURLEncoding.DecodeString(head)
	if err != nil {
		t.Fatal(err)
	}
	var header struct{ Kid string }
	if err := json.Unmarshal(text, &header); err != nil {
		t.Fatal(err)
	}

	return header.Kid
}

// tokenWatch sends requests with tokens to the API, each with a new connection.
type tokenWatch struct {
	url    string
	client *http.Client

	mu                            sync.Mutex
	tokens                        []string
	requests, refused, unanswered int
}

func (w *tokenWatch) add(token string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.tokens = append(w.tokens, token)
}

// ask returns the status of one request.
func (w *tokenWatch) ask(ctx context.Context, token string) (int, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, w.url, nil)
	if err != nil {
		return 0, err
	}
	req.Header.Set("Authorization", "Bearer "+token)
	resp, err := w.client.Do(req)
	if err != nil {
		return 0, err
	}

	return resp.StatusCode, resp.Body.Close()
}

// run asks with all tokens until ctx ends.
func (w *tokenWatch) run(ctx context.Context) {
	for {
		w.mu.Lock()
		tokens := append([]string{}, w.tokens...)
		w.mu.Unlock()
		for _, token := range tokens {
			status, err := w.ask(ctx, token)
			if ctx.Err() != nil {
				return
			}
			w.requests++
			switch {
			case err != nil:
				w.unanswered++
			case status == http.StatusUnauthorized:
				w.refused++
			}
		}
		select {
		case <-ctx.Done():
			return
		case <-time.After(500 * time.Millisecond):
		}
	}
}
