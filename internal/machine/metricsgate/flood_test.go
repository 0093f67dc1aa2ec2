// SPDX-License-Identifier: Apache-2.0

package metricsgate_test

import (
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"
)

// flooder sends requests with tokens at once, and counts the answers by status.
type flooder struct {
	wait    sync.WaitGroup
	mu      sync.Mutex
	answers map[int]int
}

// flood sends one request with each token.
func (l *lab) flood(tokens []string) *flooder {
	l.Helper()
	f := &flooder{answers: map[int]int{}}
	for _, token := range tokens {
		f.wait.Go(func() {
			r, err := http.NewRequestWithContext(l.Context(), http.MethodGet, l.gate.URL+"/metrics/etcd", nil)
			if err != nil {
				return
			}

			r.Header.Set("Authorization", "Bearer "+token)
			answer, err := http.DefaultClient.Do(r)
			if err != nil {
				return
			}

			_, _ = io.Copy(io.Discard, answer.Body)
			_ = answer.Body.Close()
			f.mu.Lock()
			defer f.mu.Unlock()
			f.answers[answer.StatusCode]++
		})
	}

	return f
}

// count returns how many requests had an answer with a status.
func (f *flooder) count(status int) int {
	f.mu.Lock()
	defer f.mu.Unlock()

	return f.answers[status]
}

// isHeld reports whether reviews wait.
func (l *lab) isHeld() bool {
	l.mu.Lock()
	defer l.mu.Unlock()

	return l.held > 0
}

// await waits until a condition holds.
func (l *lab) await(what string, holds func() bool) {
	l.Helper()
	for range 500 {
		if holds() {
			return
		}

		time.Sleep(10 * time.Millisecond)
	}

	l.Fatalf("it does not happen that %s", what)
}

// wantMetrics checks that Prometheus gets metrics soon, with a token.
func (l *lab) wantMetrics(token, path string) {
	l.Helper()
	r, err := http.NewRequestWithContext(l.Context(), http.MethodGet, l.gate.URL+path, nil)
	if err != nil {
		l.Fatal(err)
	}

	r.Header.Set("Authorization", "Bearer "+token)
	client := &http.Client{Timeout: 5 * time.Second}
	answer, err := client.Do(r)
	if err != nil {
		l.Errorf("Prometheus gets no metrics: %v", err)
		return
	}

	defer func() { _ = answer.Body.Close() }()
	body, err := io.ReadAll(answer.Body)
	if err != nil || answer.StatusCode != http.StatusOK || !strings.Contains(string(body), "up 1") {
		l.Errorf("Prometheus gets %s %s %v", answer.Status, body, err)
	}
}

// tokensOf returns tokens of accounts whose reviews take long.
func tokensOf(count int, sign func(name string) string) []string {
	out := make([]string, 0, count)
	for i := range count {
		out = append(out, sign(fmt.Sprintf("slow%d", i)))
	}

	return out
}

// TestUnsignedTokensKeepNobodyOut: a pod sends tokens that nobody has signed, which used to keep the four places for questions to the API
// server busy, and all others waiting. Seen to succeed: Prometheus got no metrics, even with a token that had just been accepted.
func TestUnsignedTokensKeepNobodyOut(t *testing.T) {
	l := newLab(t)
	forge := func(name string) string { return signToken(newKey(2), "api", claimsOf(name, audience)) }
	f := l.flood(tokensOf(100, forge))
	l.await("forged tokens take effect", func() bool { return l.isHeld() || f.count(http.StatusUnauthorized) == 100 })
	l.wantMetrics(newToken("prometheus", audience), "/metrics/etcd")
	l.wantMetrics(newToken("prometheus", audience), "/metrics/scheduler")
	if l.isHeld() || f.count(http.StatusUnauthorized) != 100 {
		t.Errorf("the API server was asked about forged tokens; %v", f.answers)
	}

	l.set(func() {
		if l.fetches != 1 {
			t.Errorf("the API server was asked for its keys %d times", l.fetches)
		}
	})
}

// TestSignedTokensKeepNobodyOut: many pods send tokens with the audience that the API server has signed for them. Each account waits with
// few requests, and those whose token was accepted a short time ago have places of their own, also for other paths.
func TestSignedTokensKeepNobodyOut(t *testing.T) {
	l := newLab(t)
	l.wantMetrics(newToken("prometheus", audience), "/metrics/etcd")
	l.set(func() { l.now = l.now.Add(2 * time.Minute) })
	one := newToken("slow", audience)
	same := l.flood(slices.Repeat([]string{one}, 100))
	l.await("most requests of one account are refused", func() bool { return same.count(http.StatusServiceUnavailable) >= 84 })
	others := l.flood(tokensOf(300, func(name string) string { return newToken(name, audience) }))
	l.await("requests of too many accounts are refused", func() bool { return others.count(http.StatusServiceUnavailable) >= 60 })
	l.wantMetrics(newToken("prometheus", audience), "/metrics/etcd")
	l.wantMetrics(newToken("prometheus", audience), "/metrics/scheduler")
	l.set(func() {
		if l.held != 2 {
			t.Errorf("%d questions at once", l.held)
		}
	})
	if strings.Contains(l.logged(), "level=") {
		t.Errorf("strangers fill the log: %s", l.logged())
	}
}

// TestFloodWithoutKeys: while the gate cannot read the keys, forged tokens take the places of strangers, and no others.
func TestFloodWithoutKeys(t *testing.T) {
	l := newLab(t)
	l.keysAway = true
	good := newToken("prometheus", audience)
	l.wantMetrics(good, "/metrics/etcd")
	l.set(func() { l.now = l.now.Add(2 * time.Minute) })
	forge := func(name string) string { return signToken(newKey(2), "api", claimsOf(name, audience)) }
	f := l.flood(tokensOf(100, forge))
	l.await("most forged tokens are refused", func() bool { return f.count(http.StatusServiceUnavailable) >= 84 })
	l.wantMetrics(good, "/metrics/etcd")
	l.wantMetrics(good, "/metrics/scheduler")
	l.set(func() {
		l.keysAway = false
		l.now = l.now.Add(time.Minute)
	})
	if status, body := l.get("GET", "/metrics/etcd", "Bearer "+forge("slow")); status != http.StatusUnauthorized {
		t.Errorf("a forged token once the keys can be read: %d %s", status, body)
	}
}

// TestEndedTokens: a token that has ended is refused without a question. So is one that claims to have no end.
func TestEndedTokens(t *testing.T) {
	l := newLab(t)
	l.set(func() { l.now = l.now.Add(62 * time.Minute) })
	endless := claimsOf("prometheus", audience)
	delete(endless, "exp")
	for _, token := range []string{newToken("prometheus", audience), signToken(newKey(1), "api", endless)} {
		if status, body := l.get("GET", "/metrics/etcd", "Bearer "+token); status != http.StatusUnauthorized {
			t.Errorf("%d %s", status, body)
		}
	}
	l.set(func() {
		if l.reviews > 0 {
			t.Errorf("%d reviews", l.reviews)
		}
	})
}
