// SPDX-License-Identifier: Apache-2.0

package imds_test

import (
	"context"
	"errors"
	"maps"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/slipway-k8s/slipway/internal/region/imds"
)

type source struct {
	values             map[string]string
	required, disabled bool
}

func (s *source) FindInstance(vpc string, addr netip.Addr) (string, bool) {
	ids := map[string]string{"10.0.0.5": "i-05", "10.0.0.6": "i-06"}
	id, ok := ids[addr.String()]
	return id, ok && vpc == "vpc-1"
}

func (s *source) GetValue(_, path string) ([]byte, bool, error) {
	if path == "meta-data/broken" {
		return nil, false, errors.New("no such luck")
	}
	v, ok := s.values[path]
	return []byte(v), ok, nil
}

func (s *source) TokenOptions(string) (tokensRequired, enabled bool) { return s.required, !s.disabled }

func (s *source) ListPaths(string) []string { return slices.Collect(maps.Keys(s.values)) }

type bench struct {
	t       *testing.T
	source  *source
	now     time.Time
	from    string
	handler http.Handler
}

func newBench(t *testing.T) *bench {
	t.Helper()
	b := &bench{t: t, now: time.Unix(1_700_000_000, 0), from: "10.0.0.5", source: &source{required: true, values: map[string]string{
		"meta-data/instance-id":                   "i-05",
		"meta-data/placement/region":              "us-east-1",
		"meta-data/placement/availability-zone":   "us-east-1a",
		"meta-data/iam/security-credentials/role": `{"Code":"Success"}`,
		"dynamic/instance-identity/document":      "{}",
	}}}
	handler, err := imds.New(imds.Options{
		Source: b.source,
		Clock:  func() time.Time { return b.now },
		RequestOrigin: func(context.Context) (string, netip.Addr, bool) {
			addr, err := netip.ParseAddr(b.from)
			return "vpc-1", addr, err == nil
		},
	})
	if err != nil {
		t.Fatal(err)
	}
	b.handler = handler
	return b
}

func (b *bench) do(method, path string, header ...string) (int, string) {
	b.t.Helper()
	req := httptest.NewRequest(method, path, http.NoBody)
	for i := 0; i < len(header); i += 2 {
		req.Header.Set(header[i], header[i+1])
	}
	rec := httptest.NewRecorder()
	b.handler.ServeHTTP(rec, req)
	return rec.Code, rec.Body.String()
}

const (
	ttl   = "X-aws-ec2-metadata-token-ttl-seconds"
	token = "X-aws-ec2-metadata-token"
)

func (b *bench) token(seconds string) string {
	b.t.Helper()
	code, body := b.do(http.MethodPut, "/latest/api/token", ttl, seconds)
	if code != http.StatusOK {
		b.t.Fatalf("token: status %d", code)
	}
	return body
}

func TestValuesAndDirectories(t *testing.T) {
	b := newBench(t)
	tok := b.token("60")
	for _, tt := range []struct {
		path string
		code int
		want string
	}{
		{"/latest/meta-data/instance-id", 200, "i-05"},
		{"/2009-04-04/meta-data/instance-id", 200, "i-05"},
		{"/latest/meta-data/instance-id/", 200, "i-05"},
		{"/latest/meta-data/", 200, "iam/\ninstance-id\nplacement/"},
		{"/latest/meta-data", 200, "iam/\ninstance-id\nplacement/"},
		{"/latest/meta-data/placement/", 200, "availability-zone\nregion"},
		{"/latest/meta-data/iam/security-credentials/", 200, "role"},
		{"/latest/meta-data/iam/security-credentials/role", 200, `{"Code":"Success"}`},
		{"/latest/", 200, "dynamic\nmeta-data"},
		{"/latest/dynamic/instance-identity/document", 200, "{}"},
		{"/latest/user-data", 404, ""},
		{"/latest/meta-data/place", 404, ""},
		{"/2030-01-01/meta-data/instance-id", 404, ""},
		{"/latest/meta-data/broken", 500, ""},
	} {
		t.Run(tt.path, func(t *testing.T) {
			code, body := b.do(http.MethodGet, tt.path, token, tok)
			if code != 200 {
				body = ""
			}
			if diff := cmp.Diff([]any{tt.code, tt.want}, []any{code, body}); diff != "" {
				t.Error(diff)
			}
		})
	}
	if code, body := b.do(http.MethodGet, "/", token, tok); code != 200 || !strings.HasSuffix(body, "\nlatest") {
		t.Errorf("versions: %d %q", code, body)
	}
}

func TestTokens(t *testing.T) {
	b := newBench(t)
	good := b.token("60")
	const path = "/latest/meta-data/instance-id"
	for _, tt := range []struct {
		what   string
		change func()
		method string
		path   string
		header []string
		want   int
	}{
		{what: "with a token", path: path, header: []string{token, good}, want: 200},
		{what: "without one", path: path, want: 401},
		{what: "with an invalid one", path: path, header: []string{token, "AAAA"}, want: 401},
		{what: "with a changed one", path: path, header: []string{token, "B" + good[1:]}, want: 401},
		{what: "with another instance's", change: func() { b.from = "10.0.0.6" }, path: path, header: []string{token, good}, want: 401},
		{what: "with one that has ended", change: func() { b.now = b.now.Add(time.Minute) }, path: path, header: []string{token, good}, want: 401},
		{what: "without one where it is optional", change: func() { b.source.required = false }, path: path, want: 200},
		{what: "with a wrong one where it is optional", change: func() { b.source.required = false }, path: path, header: []string{token, "x"}, want: 401},
		{what: "service disabled", change: func() { b.source.disabled = true }, path: path, header: []string{token, good}, want: 403},
		{what: "unknown address", change: func() { b.from = "10.0.0.7" }, path: path, header: []string{token, good}, want: 404},
		{what: "not from a VPC", change: func() { b.from = "" }, path: path, header: []string{token, good}, want: 403},
		{what: "token through a proxy", method: "PUT", path: "/latest/api/token", header: []string{ttl, "60", "X-Forwarded-For", "1.2.3.4"}, want: 403},
		{what: "token without a life", method: "PUT", path: "/latest/api/token", want: 400},
		{what: "token for no time", method: "PUT", path: "/latest/api/token", header: []string{ttl, "0"}, want: 400},
		{what: "token for too long", method: "PUT", path: "/latest/api/token", header: []string{ttl, "21601"}, want: 400},
		{what: "token for the longest time", method: "PUT", path: "/latest/api/token", header: []string{ttl, "21600"}, want: 200},
		{what: "token fetched by GET", path: "/latest/api/token", header: []string{token, good}, want: 404},
		{what: "PUT elsewhere", method: "PUT", path: path, header: []string{ttl, "60"}, want: 405},
		{what: "POST", method: "POST", path: path, header: []string{token, good}, want: 405},
		{what: "HEAD", method: "HEAD", path: path, header: []string{token, good}, want: 200},
	} {
		t.Run(tt.what, func(t *testing.T) {
			now, src := b.now, *b.source
			defer func() { b.now, *b.source, b.from = now, src, "10.0.0.5" }()
			if tt.change != nil {
				tt.change()
			}
			if tt.method == "" {
				tt.method = http.MethodGet
			}
			if code, _ := b.do(tt.method, tt.path, tt.header...); code != tt.want {
				t.Errorf("status %d, want %d", code, tt.want)
			}
		})
	}
}

func FuzzTokenOfOthersIsRefused(f *testing.F) {
	f.Add("")
	f.Add("AAAA")
	f.Fuzz(func(t *testing.T, made string) {
		b := newBench(t)
		if code, _ := b.do(http.MethodGet, "/latest/meta-data/instance-id", token, made); code != 401 {
			t.Errorf("token %q: status %d", made, code)
		}
	})
}
