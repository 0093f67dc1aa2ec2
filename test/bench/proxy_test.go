// SPDX-License-Identifier: Apache-2.0

package bench_test

import (
	"bytes"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"
)

// proxy forwards requests of a tool to an emulator. It counts each call, and delays the response as
// the distance to AWS would.
type proxy struct {
	url   string
	delay time.Duration

	mu          sync.Mutex
	calls       map[string]int
	firstCreate time.Time // when the first call came that makes something in AWS
}

func newProxy(t *testing.T, target string) *proxy {
	t.Helper()
	to, err := url.Parse(target)
	if err != nil {
		t.Fatal(err)
	}
	p := &proxy{calls: map[string]int{}}
	next := &httputil.ReverseProxy{
		Rewrite: func(r *httputil.ProxyRequest) {
			r.Out.URL.Scheme, r.Out.URL.Host = to.Scheme, to.Host
			r.Out.Host = r.In.Host // it is signed
		},
		Transport: &http.Transport{MaxIdleConnsPerHost: 200, DisableCompression: true},
	}
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		p.countCall(r)
		time.Sleep(p.delay)
		next.ServeHTTP(w, r)
	}))
	t.Cleanup(server.Close)
	p.url = server.URL
	return p
}

// countCall counts a call by its service and operation.
func (p *proxy) countCall(r *http.Request) {
	service, op := "s3", r.Method
	if _, scope, ok := strings.Cut(r.Header.Get("Authorization"), "Credential="); ok {
		if parts := strings.Split(scope, "/"); len(parts) > 3 { //nolint:mnd // key/date/region/service/aws4_request
			service = parts[3]
		}
	}
	if target := r.Header.Get("X-Amz-Target"); target != "" {
		_, op, _ = strings.Cut(target, ".")
	} else if service != "s3" {
		body, err := io.ReadAll(r.Body)
		if err == nil {
			r.Body = io.NopCloser(bytes.NewReader(body))
			if form, err := url.ParseQuery(string(body)); err == nil {
				op = form.Get("Action")
			}
		}
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.calls[service+":"+op]++
	if p.firstCreate.IsZero() && service != "s3" && createsResource(op) {
		p.firstCreate = time.Now()
	}
}

func createsResource(op string) bool {
	return slices.ContainsFunc([]string{"Create", "Allocate", "Run", "Put", "Import"}, func(p string) bool { return strings.HasPrefix(op, p) })
}

// reset sets the counts to zero, and delays each response by delay from now on.
func (p *proxy) reset(delay time.Duration) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.calls, p.firstCreate, p.delay = map[string]int{}, time.Time{}, delay
}

// callCounts returns the number of calls since reset: all calls, and those to S3.
func (p *proxy) callCounts() (all, s3 int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for op, n := range p.calls {
		all += n
		if strings.HasPrefix(op, "s3:") {
			s3 += n
		}
	}
	return all, s3
}

// callNames returns the calls since reset with their numbers, sorted.
func (p *proxy) callNames() []string {
	p.mu.Lock()
	defer p.mu.Unlock()
	var out []string
	for _, op := range slices.Sorted(maps.Keys(p.calls)) {
		out = append(out, fmt.Sprintf("%s %d", op, p.calls[op]))
	}
	return out
}

func (p *proxy) env() []string {
	return []string{
		"AWS_ENDPOINT_URL=" + p.url, "AWS_ENDPOINT_URL_S3=" + p.url, "S3_ENDPOINT=" + p.url, "AWS_REGION=us-east-1", "AWS_DEFAULT_REGION=us-east-1",
		"AWS_EC2_METADATA_DISABLED=true", "AWS_CONFIG_FILE=/dev/null", "AWS_SHARED_CREDENTIALS_FILE=/dev/null",
	}
}
