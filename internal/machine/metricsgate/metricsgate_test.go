// SPDX-License-Identifier: Apache-2.0

package metricsgate_test

import (
	"bytes"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/slipway-k8s/slipway/internal/machine/kube"
	"github.com/slipway-k8s/slipway/internal/machine/metricsgate"
)

const audience = "slipway-metrics"

// newKey returns the key of the fake API server, or one of an attacker.
func newKey(seed byte) *ecdsa.PrivateKey {
	key, err := ecdsa.ParseRawPrivateKey(elliptic.P256(), bytes.Repeat([]byte{seed}, 32))
	if err != nil {
		panic(err)
	}
	return key
}

// signToken returns a token with claims that a key has signed.
func signToken(key *ecdsa.PrivateKey, keyID string, claims map[string]any) string {
	part := func(v any) string {
		body, _ := json.Marshal(v)
		return base64.RawURLEncoding.EncodeToString(body)
	}
	text := part(map[string]string{"alg": "ES256", "kid": keyID}) + "." + part(claims)
	sum := sha256.Sum256([]byte(text))
	r, s, err := ecdsa.Sign(rand.Reader, key, sum[:])
	if err != nil {
		panic(err)
	}
	signature := make([]byte, 64)
	r.FillBytes(signature[:32])
	s.FillBytes(signature[32:])
	return text + "." + base64.RawURLEncoding.EncodeToString(signature)
}

// claimsOf returns the claims of an account's token.
func claimsOf(name string, audiences ...string) map[string]any {
	at := start()
	return map[string]any{"iss": "https://issuer", "sub": name, "aud": audiences, "iat": at.Unix(), "exp": at.Add(time.Hour).Unix()}
}

// start is when the clock of a lab begins.
func start() time.Time { return time.Date(2026, 11, 26, 12, 0, 0, 0, time.UTC) }

// newToken returns a token of an account that the API server has signed.
func newToken(name string, audiences ...string) string {
	return signToken(newKey(1), "api", claimsOf(name, audiences...))
}

// lab is a gate between a fake API server and a fake source.
type lab struct {
	*testing.T
	gate     *httptest.Server
	log      safeBuffer
	mu       sync.Mutex
	now      time.Time
	reviews  int
	apiDown  bool
	keysAway bool
	revoked  bool
	fetches  int           // of the keys
	held     int           // reviews that wait for released
	released chan struct{} // closed at the end
	requests []*http.Request
}

func newLab(t *testing.T) *lab {
	t.Helper()
	l := &lab{T: t, now: start(), released: make(chan struct{})}
	api := httptest.NewServer(http.HandlerFunc(l.serveAPI))
	t.Cleanup(api.Close)
	t.Cleanup(func() { close(l.released) })
	source := httptest.NewServer(http.HandlerFunc(l.serveSource))
	t.Cleanup(source.Close)
	secure := httptest.NewTLSServer(http.HandlerFunc(l.serveSource))
	t.Cleanup(secure.Close)
	sources := map[string]metricsgate.Source{}
	for _, text := range []string{
		"etcd=" + source.URL + "/metrics", "scheduler=" + secure.URL + "/metrics", "moved=" + source.URL + "/moved",
		"broken=" + source.URL + "/broken", "gone=http://127.0.0.1:1/metrics",
	} {
		s, err := metricsgate.ParseSource(text)
		if err != nil {
			t.Fatal(err)
		}
		sources[s.Name] = s
	}
	l.gate = httptest.NewServer(&metricsgate.Gate{
		Sources: sources,
		Reviews: metricsgate.NewReviewer(kube.Client{Server: api.URL, HTTP: api.Client()}, audience, l.clock),
		Client:  metricsgate.NewSourceClient(),
		Token:   func() (string, error) { return "gates-own", nil },
		Log:     slog.New(slog.NewTextHandler(&l.log, nil)),
	})
	t.Cleanup(l.gate.Close)
	return l
}

// safeBuffer is a log that requests write at once.
type safeBuffer struct {
	mu   sync.Mutex
	text bytes.Buffer
}

func (b *safeBuffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.text.Write(p)
}

// logged returns the log of the gate.
func (l *lab) logged() string {
	l.log.mu.Lock()
	defer l.log.mu.Unlock()
	return l.log.text.String()
}

func (l *lab) clock() time.Time {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.now
}

// set changes the lab between requests.
func (l *lab) set(change func()) {
	l.mu.Lock()
	defer l.mu.Unlock()
	change()
}

// serveKeys answers with the public key of the tokens.
func (l *lab) serveKeys(w http.ResponseWriter) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.fetches++
	if l.keysAway || l.apiDown {
		http.Error(w, "no", http.StatusForbidden)
		return
	}
	point, err := newKey(1).PublicKey.Bytes()
	if err != nil {
		l.Error(err)
	}
	encode := base64.RawURLEncoding.EncodeToString
	_ = json.NewEncoder(w).Encode(map[string]any{"keys": []any{map[string]string{
		"kty": "EC", "use": "sig", "alg": "ES256", "kid": "api", "crv": "P-256", "x": encode(point[1:33]), "y": encode(point[33:]),
	}}})
}

// nameIn returns the account that a token names.
func nameIn(token string) string {
	var claims struct {
		Subject string `json:"sub"`
	}
	parts := strings.Split(token, ".")
	body, _ := base64.RawURLEncoding.DecodeString(parts[1])
	_ = json.Unmarshal(body, &claims)
	return claims.Subject
}

// hold lets the review of a slow account wait.
func (l *lab) hold() {
	l.held++
	l.mu.Unlock()
	<-l.released
	l.mu.Lock()
}

// serveAPI knows the tokens prometheus and other; prometheus may get what RBAC allows in the channel. Reviews of accounts whose name
// begins with slow do not end.
func (l *lab) serveAPI(w http.ResponseWriter, r *http.Request) {
	if r.URL.Path == "/openid/v1/jwks" {
		l.serveKeys(w)
		return
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.reviews++
	if l.apiDown {
		http.Error(w, "no", http.StatusInternalServerError)
		return
	}
	var review struct {
		Kind string
		Spec struct {
			Token         string
			Audiences     []string
			User          string
			Groups        []string
			NonResource   struct{ Path, Verb string } `json:"nonResourceAttributes"`
			ResourceAttrs any                         `json:"resourceAttributes"`
		}
	}
	if err := json.NewDecoder(r.Body).Decode(&review); err != nil {
		l.Error(err)
	}
	var status any
	switch r.URL.Path {
	case "/apis/authentication.k8s.io/v1/tokenreviews":
		name := nameIn(review.Spec.Token)
		if strings.HasPrefix(name, "slow") {
			l.hold()
		}
		known := !l.revoked && (name == "prometheus" || name == "other")
		answered := review.Spec.Audiences
		if name == "old-api" {
			known, answered = true, nil
		}
		status = map[string]any{"authenticated": known, "audiences": answered, "user": map[string]any{"username": name, "groups": []string{"system:serviceaccounts"}}}
	case "/apis/authorization.k8s.io/v1/subjectaccessreviews":
		ok := review.Spec.User == "prometheus" && review.Spec.NonResource.Verb == "get" && len(review.Spec.Groups) == 1
		status = map[string]any{"allowed": ok && strings.HasPrefix(review.Spec.NonResource.Path, "/metrics/"), "denied": review.Spec.NonResource.Path == "/metrics/denied"}
	default:
		l.Errorf("request for %s", r.URL.Path)
	}
	body, _ := json.Marshal(map[string]any{"kind": review.Kind, "status": status})
	_, _ = w.Write(body)
}

func (l *lab) serveSource(w http.ResponseWriter, r *http.Request) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.requests = append(l.requests, r)
	switch r.URL.Path {
	case "/moved":
		http.Redirect(w, r, "http://127.0.0.1:1/elsewhere", http.StatusFound)
	case "/broken":
		http.Error(w, "secret words of the source", http.StatusInternalServerError)
	default:
		w.Header().Set("Content-Type", "text/plain; version=0.0.4")
		w.Header().Set("Set-Cookie", "a=b")
		_, _ = io.WriteString(w, "up 1\n")
	}
}

// get returns the status and the body of an answer of the gate.
func (l *lab) get(method, path, authorization string) (int, string) {
	l.Helper()
	r, err := http.NewRequestWithContext(l.Context(), method, l.gate.URL+path, nil)
	if err != nil {
		l.Fatal(err)
	}
	if authorization != "" {
		r.Header.Set("Authorization", authorization)
	}
	r.Header.Set("X-Remote-User", "admin")
	answer, err := http.DefaultClient.Do(r)
	if err != nil {
		l.Fatal(err)
	}
	defer answer.Body.Close()
	if answer.Header.Get("Set-Cookie") != "" {
		l.Error("a header of the source was passed on")
	}
	body, _ := io.ReadAll(answer.Body)
	return answer.StatusCode, string(body)
}

// TestGate: each caller gets what it may, and no other path or method reaches a source.
func TestGate(t *testing.T) {
	good := "Bearer " + newToken("prometheus", audience)
	for name, c := range map[string]struct {
		method, path, authorization string
		want                        int
	}{
		"Prometheus":                       {"GET", "/metrics/etcd", good, 200},
		"a source with TLS":                {"GET", "/metrics/scheduler", good, 200},
		"nobody":                           {"GET", "/metrics/etcd", "", 401},
		"no token":                         {"GET", "/metrics/etcd", "Bearer ", 401},
		"a password":                       {"GET", "/metrics/etcd", "Basic YTpi", 401},
		"garbage":                          {"GET", "/metrics/etcd", "Bearer x", 401},
		"a token for the API server":       {"GET", "/metrics/etcd", "Bearer " + newToken("prometheus", "https://issuer"), 401},
		"a token of nobody":                {"GET", "/metrics/etcd", "Bearer " + newToken("forged", audience), 401},
		"an API server without audiences":  {"GET", "/metrics/etcd", "Bearer " + newToken("old-api", audience), 401},
		"a very long token":                {"GET", "/metrics/etcd", "Bearer " + newToken(strings.Repeat("x", 20<<10), audience), 401},
		"a token of another issuer":        {"GET", "/metrics/etcd", "Bearer " + signToken(newKey(2), "api", claimsOf("prometheus", audience)), 401},
		"a token with an unknown key":      {"GET", "/metrics/etcd", "Bearer " + signToken(newKey(2), "own", claimsOf("prometheus", audience)), 401},
		"another pod":                      {"GET", "/metrics/etcd", "Bearer " + newToken("other", audience), 403},
		"another path":                     {"GET", "/debug/pprof", good, 403},
		"the parent path":                  {"GET", "/metrics", good, 403},
		"a path that is denied explicitly": {"GET", "/metrics/denied", good, 403},
		"an unknown source":                {"GET", "/metrics/other", good, 404},
		"a longer path":                    {"GET", "/metrics/etcd/", good, 404},
		"a path below":                     {"GET", "/metrics/etcd/v2/keys", good, 404},
		"a write":                          {"POST", "/metrics/etcd", good, 405},
		"a redirect":                       {"GET", "/metrics/moved", good, 502},
		"a source that fails":              {"GET", "/metrics/broken", good, 502},
		"a source that is away":            {"GET", "/metrics/gone", good, 502},
		"health":                           {"GET", "/healthz", "", 200},
	} {
		t.Run(name, func(t *testing.T) {
			l := newLab(t)
			status, body := l.get(c.method, c.path, c.authorization)
			if status != c.want {
				t.Fatalf("%d %s, want %d", status, body, c.want)
			}
			if strings.Contains(body, "up 1") != (c.want == 200 && c.path != "/healthz") || strings.Contains(body, "secret words") {
				t.Errorf("the answer is %q", body)
			}
			if c.want/100 == 4 && len(l.requests) > 0 {
				t.Error("the source was asked")
			}
			if name == "another pod" && strings.Contains(l.logged(), "other") {
				t.Error("the token is in the log")
			}
		})
	}
}

// TestCallersTokenIsNotPassedOn: sources get neither the token of the caller nor other headers; those with TLS get the gate's own.
func TestCallersTokenIsNotPassedOn(t *testing.T) {
	l := newLab(t)
	good := "Bearer " + newToken("prometheus", audience)
	l.get("GET", "/metrics/etcd", good)
	l.get("GET", "/metrics/scheduler", good)
	if len(l.requests) != 2 {
		t.Fatalf("%d requests", len(l.requests))
	}
	for i, want := range []string{"", "Bearer gates-own"} {
		h := l.requests[i].Header
		if h.Get("Authorization") != want || h.Get("X-Remote-User") != "" {
			t.Errorf("the source gets %v", h)
		}
	}
}

// TestDecisionsAreRemembered: the API server is asked once a minute. While it does not answer, Prometheus reads on for 15 minutes. Who
// loses the right is refused after a minute.
func TestDecisionsAreRemembered(t *testing.T) {
	l := newLab(t)
	good := "Bearer " + newToken("prometheus", audience)
	want := func(status int) {
		t.Helper()
		if got, body := l.get("GET", "/metrics/etcd", good); got != status {
			t.Errorf("%d %s, want %d", got, body, status)
		}
	}
	want(200)
	want(200)
	if l.reviews != 2 { // a TokenReview and a SubjectAccessReview
		t.Errorf("%d reviews", l.reviews)
	}
	l.set(func() { l.apiDown = true })
	l.set(func() { l.now = l.now.Add(14 * time.Minute) })
	want(200)
	if status, _ := l.get("GET", "/metrics/scheduler", good); status != 503 {
		t.Errorf("%d for a path without a decision while the API server is away", status)
	}
	l.set(func() { l.now = l.now.Add(2 * time.Minute) })
	want(503)
	l.set(func() { l.apiDown = false })
	want(200)
	l.set(func() { l.revoked = true })
	l.set(func() { l.now = l.now.Add(2 * time.Minute) })
	want(401)
	l.set(func() { l.apiDown = true })
	want(503)
}

// TestManyCallers: what is remembered does not grow without bound.
func TestManyCallers(t *testing.T) {
	l := newLab(t)
	for i := range 300 {
		token := newToken("prometheus", audience, strings.Repeat("x", i))
		if status, body := l.get("GET", "/metrics/etcd", "Bearer "+token); status != 200 {
			t.Fatalf("%d %s", status, body)
		}
		l.set(func() { l.now = l.now.Add(time.Millisecond) })
	}
}

// TestParseSource refuses what would make the gate a way to other addresses.
func TestParseSource(t *testing.T) {
	for text, ok := range map[string]bool{
		"etcd=http://127.0.0.1:2381/metrics":      true,
		"scheduler=https://127.0.0.1:1/metrics":   true,
		"etcd=http://[::1]:2381/metrics":          true,
		"etcd=http://169.254.169.254/latest":      false,
		"etcd=http://localhost:2381/metrics":      false,
		"etcd=http://0.0.0.0:2381/metrics":        false,
		"etcd=http://10.0.0.1/":                   false,
		"etcd=http://127.0.0.1.example.com/":      false,
		"etcd=file:///etc/shadow":                 false,
		"etcd=unix://127.0.0.1/run/x":             false,
		"etcd=http://a:b@127.0.0.1:2381/metrics":  false,
		"a/b=http://127.0.0.1:2381/metrics":       false,
		"=http://127.0.0.1:2381/metrics":          false,
		"http://127.0.0.1:2381/metrics":           false,
		"etcd=http://127.0.0.1:2381:80/metrics%x": false,
	} {
		if _, err := metricsgate.ParseSource(text); (err == nil) != ok {
			t.Errorf("%s: %v, want ok %t", text, err, ok)
		}
	}
}
