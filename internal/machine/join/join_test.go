// SPDX-License-Identifier: Apache-2.0

package join_test

import (
	"bytes"
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/json"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	v4 "github.com/aws/aws-sdk-go-v2/aws/signer/v4"

	"github.com/slipway-k8s/slipway/internal/lib/pki"
	"github.com/slipway-k8s/slipway/internal/machine/join"
)

const instance = "i-0123456789abcdef0"

// fakeSTS accepts only requests whose signature matches its one set of credentials, including the
// signed header.
type fakeSTS struct {
	arn string
	now func() time.Time
}

func (f *fakeSTS) creds() aws.Credentials {
	return aws.Credentials{AccessKeyID: "AKID", SecretAccessKey: "SECRET", SessionToken: "SESSION"}
}

func (f *fakeSTS) Retrieve(context.Context) (aws.Credentials, error) { return f.creds(), nil }

func (f *fakeSTS) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if !f.signed(r) {
		http.Error(w, "SignatureDoesNotMatch", http.StatusForbidden)
		return
	}
	fmt.Fprintf(w, `<GetCallerIdentityResponse xmlns="https://sts.amazonaws.com/doc/2011-06-15/"><GetCallerIdentityResult>
		<Arn>%s</Arn><UserId>x</UserId><Account>123456789012</Account></GetCallerIdentityResult></GetCallerIdentityResponse>`, f.arn)
}

// signed signs the request again with the SDK and compares signatures.
func (f *fakeSTS) signed(r *http.Request) bool {
	q := r.URL.Query()
	got := q.Get("X-Amz-Signature")
	at, err := time.Parse("20060102T150405Z", q.Get("X-Amz-Date"))
	if err != nil {
		return false
	}
	plain := url.Values{"Action": q["Action"], "Version": q["Version"], "X-Amz-Expires": q["X-Amz-Expires"]}
	req, err := http.NewRequestWithContext(r.Context(), http.MethodGet, "http://"+r.Host+"/?"+plain.Encode(), nil)
	if err != nil {
		return false
	}
	for _, name := range []string{"X-Slipway-Csr-Sha256", "X-Slipway-Cluster-Id"} {
		if value := r.Header.Get(name); value != "" {
			req.Header.Set(name, value)
		}
	}
	const empty = "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"
	again, _, err := v4.NewSigner().PresignHTTP(r.Context(), f.creds(), req, empty, "sts", "us-east-1", at)
	return err == nil && strings.Contains(again, "X-Amz-Signature="+got)
}

// world is a join endpoint with a fake STS and a fake EC2.
type world struct {
	sts     *fakeSTS
	stsURL  string
	server  *join.Server
	url     string
	machine join.Machine
	found   bool
	ca      pki.CA
}

func newWorld(t *testing.T) *world {
	t.Helper()
	key, err := pki.NewKey(pki.KubernetesCA)
	if err != nil {
		t.Fatal(err)
	}
	ca, err := pki.NewCA(pki.KubernetesCA, "demo", key, time.Now())
	if err != nil {
		t.Fatal(err)
	}
	w := &world{found: true, ca: ca, sts: &fakeSTS{arn: "arn:aws:sts::123456789012:assumed-role/demo-worker/" + instance, now: time.Now}}
	w.machine = join.Machine{
		ID: instance, Account: "123456789012", Name: "ip-10-80-16-4.ec2.internal", Address: "10.80.16.4", State: "running", Role: "worker", Group: "nodes", ScalingGroup: "nodes.demo",
	}
	sts := httptest.NewServer(w.sts)
	t.Cleanup(sts.Close)
	w.stsURL = sts.URL
	w.server = &join.Server{
		CA: ca, Cluster: "demo", WorkerRoles: map[string]string{"nodes": "demo-worker", "gpu": "demo-worker-gpu"}, STSEndpoint: sts.URL, HTTP: sts.Client(), TTL: time.Hour, Now: time.Now,
		Log: slog.New(slog.DiscardHandler),
		FindMachine: func(_ context.Context, id string) (join.Machine, bool, error) {
			if id != instance {
				return join.Machine{}, false, errors.New("asked for " + id)
			}
			return w.machine, w.found, nil
		},
	}
	front := httptest.NewServer(w.server)
	t.Cleanup(front.Close)
	w.url = front.URL
	return w
}

func (w *world) signer() join.Signer {
	return join.Signer{Credentials: w.sts, Region: "us-east-1", Endpoint: w.stsURL, Now: time.Now}
}

func (w *world) client() join.Client {
	return join.Client{URL: w.url, HTTP: http.DefaultClient, Sign: w.signer()}
}

func TestJoinGivesTheNodesOwnCertificates(t *testing.T) {
	w := newWorld(t)
	got, err := w.client().Join(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	roots := x509.NewCertPool()
	roots.AppendCertsFromPEM(w.ca.CertsPEM())
	for text, usage := range map[string]x509.ExtKeyUsage{got.Client: x509.ExtKeyUsageClientAuth, got.Server: x509.ExtKeyUsageServerAuth} {
		certs, err := pki.ParseCerts([]byte(text))
		if err != nil {
			t.Fatal(err)
		}
		if _, err := certs[0].Verify(x509.VerifyOptions{Roots: roots, KeyUsages: []x509.ExtKeyUsage{usage}}); err != nil {
			t.Error(err)
		}
		if certs[0].Subject.CommonName != "system:node:"+w.machine.Name || !slices.Contains(certs[0].Subject.Organization, "system:nodes") {
			t.Errorf("subject %s", certs[0].Subject)
		}
		if len(certs[0].ExtKeyUsage) != 1 {
			t.Errorf("usages %v", certs[0].ExtKeyUsage)
		}
	}
	client, err := pki.ParseCerts([]byte(got.Client))
	if err != nil || !slices.Contains(client[0].Subject.Organization, "slipway:group:nodes") {
		t.Errorf("the certificate does not state the group: %v %v", client[0].Subject, err)
	}
	server, err := pki.ParseCerts([]byte(got.Server))
	if err != nil {
		t.Fatal(err)
	}
	if err := server[0].VerifyHostname(w.machine.Name); err != nil {
		t.Error(err)
	}
	if err := server[0].VerifyHostname(w.machine.Address); err != nil {
		t.Error(err)
	}
}

func TestJoinRefuses(t *testing.T) {
	for name, c := range map[string]struct {
		change func(*world)
		name   string
		want   string
	}{
		"another node's name":          {name: "system:node:ip-10-80-16-5.ec2.internal", want: "may not request"},
		"an administrator":             {name: "kubernetes-admin", want: "may not request"},
		"another account":              {change: func(w *world) { w.sts.arn = "arn:aws:sts::210987654321:assumed-role/demo-worker/" + instance }, want: "another account"},
		"an instance without account":  {change: func(w *world) { w.machine.Account = "" }, want: "another account"},
		"another role":                 {change: func(w *world) { w.sts.arn = "arn:aws:sts::123456789012:assumed-role/other/" + instance }, want: "worker role"},
		"a longer role":                {change: func(w *world) { w.sts.arn = "arn:aws:sts::123456789012:assumed-role/demo-worker/x/" + instance }, want: "worker role"},
		"another group's role":         {change: func(w *world) { w.sts.arn = "arn:aws:sts::123456789012:assumed-role/demo-worker-gpu/" + instance }, want: "not a worker in a group"},
		"a user":                       {change: func(w *world) { w.sts.arn = "arn:aws:iam::123456789012:user/" + instance }, want: "assumed role"},
		"a session that is no one":     {change: func(w *world) { w.sts.arn = "arn:aws:sts::123456789012:assumed-role/demo-worker/me" }, want: "worker role"},
		"an unknown instance":          {change: func(w *world) { w.found = false }, want: "not belong to this cluster"},
		"a terminated instance":        {change: func(w *world) { w.machine.State = "terminated" }, want: "is terminated"},
		"a control-plane machine":      {change: func(w *world) { w.machine.Role = "control-plane" }, want: "not a worker"},
		"tags without a scaling group": {change: func(w *world) { w.machine.ScalingGroup = "" }, want: "not launched by the Auto Scaling group"},
		"another scaling group":        {change: func(w *world) { w.machine.ScalingGroup = "gpu.demo" }, want: "not launched by the Auto Scaling group"},
		"another cluster's group":      {change: func(w *world) { w.machine.ScalingGroup = "nodes.demo-2" }, want: "not launched by the Auto Scaling group"},
		"a group of other machines":    {change: func(w *world) { w.machine.Group = "strangers" }, want: "not a worker"},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			if c.change != nil {
				c.change(w)
			}
			if c.name == "" {
				if _, err := w.client().Join(t.Context()); err == nil || !strings.Contains(err.Error(), "403") || !strings.Contains(err.Error(), c.want) {
					t.Errorf("got %v, want 403 and %q", err, c.want)
				}
				c.name = "system:node:" + w.machine.Name
			}
			csr := newCSR(t, c.name)
			proof, err := w.signer().CreateProof(t.Context(), []byte(csr))
			if err != nil {
				t.Fatal(err)
			}
			if code, text := w.post(t, csr, proof); code != http.StatusForbidden || !strings.Contains(text, c.want) {
				t.Errorf("a request for %s: %d %s, want 403 and %q", c.name, code, text, c.want)
			}
		})
	}
}

// newCSR returns a certificate signing request for a common name; none without one.
func newCSR(t *testing.T, name ...string) string {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	der, err := x509.CreateCertificateRequest(rand.Reader, &x509.CertificateRequest{Subject: pkix.Name{CommonName: strings.Join(name, "")}}, key)
	if err != nil {
		t.Fatal(err)
	}
	return string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE REQUEST", Bytes: der}))
}

func (w *world) post(t *testing.T, csr, proof string) (int, string) {
	t.Helper()
	body, err := json.Marshal(map[string]string{"csr": csr, "proof": proof})
	if err != nil {
		t.Fatal(err)
	}
	resp, err := http.Post(w.url+"/v1/node-certificate", "application/json", bytes.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	return resp.StatusCode, string(text)
}

// TestProofIsBound checks that an intercepted proof is useless with another key, when changed, and
// when expired.
func TestProofIsBound(t *testing.T) {
	w := newWorld(t)
	csr := newCSR(t)
	proof, err := w.signer().CreateProof(t.Context(), []byte(csr))
	if err != nil {
		t.Fatal(err)
	}
	if code, text := w.post(t, csr, proof); code != http.StatusOK {
		t.Fatalf("the unchanged request: %d %s", code, text)
	}
	later := w.signer()
	later.Now = func() time.Time { return time.Now().Add(-time.Hour) }
	old, err := later.CreateProof(t.Context(), []byte(csr))
	if err != nil {
		t.Fatal(err)
	}
	for name, c := range map[string]struct{ csr, proof, want string }{
		"another key":       {newCSR(t), proof, "STS rejected"},
		"another action":    {csr, strings.Replace(proof, "GetCallerIdentity", "AssumeRole", 1), "not for GetCallerIdentity"},
		"one more argument": {csr, proof + "&RoleArn=x", "parameter"},
		"a fragment":        {csr, proof + "#x", "STS rejected"},
		"an argument twice": {csr, proof + "&Action=GetCallerIdentity", "parameter"},
		"a long expiry":     {csr, strings.Replace(proof, "X-Amz-Expires=60", "X-Amz-Expires=604800", 1), "1 to 60"},
		"an expired proof":  {csr, old, "expired or is not valid yet"},
		"unbound":           {csr, strings.Replace(proof, "x-slipway-csr-sha256", "x-other", 1), "does not sign"},
		"another signature": {csr, proof[:len(proof)-4] + "0000", "STS rejected"},
		"nothing":           {csr, "", "not for"},
		"garbage":           {csr, "%zz", "not a valid query string"},
	} {
		t.Run(name, func(t *testing.T) {
			code, text := w.post(t, c.csr, c.proof)
			if code != http.StatusForbidden || !strings.Contains(text, c.want) {
				t.Errorf("got %d %s, want 403 and %q", code, text, c.want)
			}
		})
	}
}

// TestLogsHoldNoProof checks that a failed call to STS does not log the worker's session token.
func TestLogsHoldNoProof(t *testing.T) {
	w := newWorld(t)
	var log bytes.Buffer
	w.server.Log = slog.New(slog.NewTextHandler(&log, nil))
	w.server.STSEndpoint = "http://127.0.0.1:1"
	if _, err := w.client().Join(t.Context()); err == nil || !strings.Contains(err.Error(), "503") {
		t.Errorf("got %v, want 503", err)
	}
	if text := log.String(); !strings.Contains(text, "call STS") || strings.Contains(text, "X-Amz") || strings.Contains(text, "SESSION") {
		t.Errorf("the log contains %s", text)
	}
}

func TestServerIsStrict(t *testing.T) {
	w := newWorld(t)
	for name, c := range map[string]struct {
		method, path, body string
		want               int
	}{
		"health":        {http.MethodGet, "/healthz", "", 200},
		"other path":    {http.MethodGet, "/", "", 404},
		"other method":  {http.MethodGet, "/v1/node-certificate", "", 405},
		"no JSON":       {http.MethodPost, "/v1/node-certificate", "x", 400},
		"unknown field": {http.MethodPost, "/v1/node-certificate", `{"csr":"","proof":"","name":"admin"}`, 400},
		"no CSR":        {http.MethodPost, "/v1/node-certificate", `{"csr":"x","proof":""}`, 400},
		"too long":      {http.MethodPost, "/v1/node-certificate", `{"csr":"` + strings.Repeat("x", 40000) + `"}`, 400},
	} {
		t.Run(name, func(t *testing.T) {
			req, err := http.NewRequestWithContext(t.Context(), c.method, w.url+c.path, strings.NewReader(c.body))
			if err != nil {
				t.Fatal(err)
			}
			resp, err := http.DefaultClient.Do(req)
			if err != nil {
				t.Fatal(err)
			}
			resp.Body.Close()
			if resp.StatusCode != c.want {
				t.Errorf("got %d, want %d", resp.StatusCode, c.want)
			}
		})
	}
}

// TestRateIsLimited: requests that are not well-formed cost nothing, and one address cannot use up the limit of all. A
// pod could block the renewals of all workers with 50 empty requests before.
func TestRateIsLimited(t *testing.T) {
	w := newWorld(t)
	at := time.Now()
	w.server.Now = func() time.Time { return at }
	for range 80 {
		if code, _ := w.post(t, "x", ""); code != http.StatusBadRequest {
			t.Fatalf("a malformed request is answered %d", code)
		}
	}

	csr := newCSR(t)
	proof, err := w.signer().CreateProof(t.Context(), []byte(csr))
	if err != nil {
		t.Fatal(err)
	}
	limited := 0
	for range 30 {
		if code, _ := w.post(t, csr, proof); code == http.StatusTooManyRequests {
			limited++
		}
	}
	if limited != 10 {
		t.Errorf("%d of 30 requests at once of one machine were limited, want 10", limited)
	}

	body := `{"csr":` + strconv.Quote(csr) + `,"proof":` + strconv.Quote(proof) + `}`
	answers := map[int]int{}
	for i := range 40 {
		req := httptest.NewRequest(http.MethodPost, "/v1/node-certificate", strings.NewReader(body))
		req.RemoteAddr = fmt.Sprintf("10.0.0.%d:1234", i)
		rec := httptest.NewRecorder()
		w.server.ServeHTTP(rec, req)
		answers[rec.Code]++
	}
	if answers[http.StatusOK] != 30 || answers[http.StatusTooManyRequests] != 10 {
		t.Errorf("other machines were answered %v, want 30 certificates until the limit of all", answers)
	}
}

func FuzzRequest(f *testing.F) {
	f.Add(`{"csr":"x","proof":"Action=GetCallerIdentity"}`)
	f.Add(`{}`)
	srv := &join.Server{Now: time.Now, Log: slog.New(slog.DiscardHandler), HTTP: http.DefaultClient, STSEndpoint: "http://127.0.0.1:1"}
	f.Fuzz(func(t *testing.T, body string) {
		rec := httptest.NewRecorder()
		srv.ServeHTTP(rec, httptest.NewRequest(http.MethodPost, "/v1/node-certificate", strings.NewReader(body)))
		if rec.Code == http.StatusOK {
			t.Errorf("%q got a certificate", body)
		}
	})
}

// TestJoinAsksAboutLaunches: a machine that no Auto Scaling group launched joins only if what it runs was checked. A machine of
// another Auto Scaling group, or one that is refused already, is not asked about. The reason of a failure stays here.
func TestJoinAsksAboutLaunches(t *testing.T) {
	for name, c := range map[string]struct {
		change func(*world)
		answer error
		asked  bool
		want   string
	}{
		"what it runs is right": {asked: true},
		"what it runs is wrong": {answer: join.Forbid("other user data"), asked: true, want: "403 Forbidden: other user data"},
		"EC2 fails":             {answer: errors.New("secret"), asked: true, want: "503 Service Unavailable: try again"},
		"another group":         {change: func(w *world) { w.machine.ScalingGroup = "gpu.demo" }, want: "not launched by the Auto Scaling group nodes.demo"},
		"a terminated instance": {change: func(w *world) { w.machine.State = "terminated" }, want: "is terminated"},
		"another role":          {change: func(w *world) { w.machine.Group = "gpu" }, want: "not a worker in a group"},
		"launched by its group": {change: func(w *world) { w.machine.ScalingGroup = "nodes.demo" }, answer: errors.New("no")},
		"no check":              {change: func(w *world) { w.server.CheckLaunch = nil }, want: "not launched by the Auto Scaling group nodes.demo"},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			w.machine.ScalingGroup = ""
			asked := false
			w.server.CheckLaunch = func(_ context.Context, m join.Machine) error {
				asked = m.ID == instance
				return c.answer
			}
			if c.change != nil {
				c.change(w)
			}
			got, err := w.client().Join(t.Context())
			switch {
			case c.want == "" && (err != nil || got.Client == ""):
				t.Errorf("it did not join: %v", err)
			case c.want != "" && (err == nil || !strings.Contains(err.Error(), c.want) || strings.Contains(err.Error(), "secret")):
				t.Errorf("error %v, want %s", err, c.want)
			}
			if asked != c.asked {
				t.Errorf("asked: %v", asked)
			}
		})
	}
}
