// SPDX-License-Identifier: Apache-2.0

package cli_test

import (
	"bytes"
	"context"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/rogpeppe/go-internal/testscript"
	"github.com/santhosh-tekuri/jsonschema/v6"

	"github.com/slipway-k8s/slipway/internal/cluster/health"
	"github.com/slipway-k8s/slipway/internal/infra/plan"
	"github.com/slipway-k8s/slipway/internal/region/regiontest"
)

// proxy stands between slipway and a region, and can hold calls back: that is how a script finds an apply half-way.
type proxy struct {
	URL string

	mu    sync.Mutex
	hold  string        // calls of this operation are held
	held  chan struct{} // closed when the first one is
	again chan struct{} // closed when they may go on
	back  int           // how many calls are held back or carried out
	conns int           // how many connections clients have
}

// newProxy returns a proxy before the region at target.
func newProxy(t *testing.T, target string) *proxy {
	t.Helper()
	to, err := url.Parse(target)
	if err != nil {
		t.Fatal(err)
	}
	p := &proxy{}
	pass := httputil.ReverseProxy{Rewrite: func(r *httputil.ProxyRequest) {
		r.SetURL(to)
		r.Out.Host = r.In.Host // it is signed
	}}
	front := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(r.Body)
		if err != nil {
			return // the client is gone
		}
		r.Body = io.NopCloser(bytes.NewReader(body))
		p.count(1)
		defer p.count(-1)
		if p.wait(r, body) {
			// The region completes a call whose client is killed meanwhile, and free waits for it.
			pass.ServeHTTP(w, r.WithContext(context.WithoutCancel(r.Context())))
		}
	}))
	front.Config.ConnState = func(_ net.Conn, state http.ConnState) { p.countConnections(state) }
	front.Start()
	t.Cleanup(front.Close)
	t.Cleanup(p.release)
	p.URL = front.URL
	return p
}

// wait holds the call back if it is to be, and says whether its client is still there.
func (p *proxy) wait(r *http.Request, body []byte) bool {
	p.mu.Lock()
	hold, held, again := p.hold, p.held, p.again
	is := hold != "" && (strings.Contains(string(body), "Action="+hold+"&") || strings.HasSuffix(r.Header.Get("X-Amz-Target"), "."+hold))
	if is {
		select {
		case <-held:
		default:
			close(held)
		}
	}
	p.mu.Unlock()
	if !is {
		return true
	}
	select {
	case <-again:
		return true
	case <-r.Context().Done():
		return false
	}
}

// countConnections follows the state of connections. That of a killed client is closed when all calls that it has sent were read.
func (p *proxy) countConnections(state http.ConnState) {
	p.mu.Lock()
	defer p.mu.Unlock()
	switch state {
	case http.StateNew:
		p.conns++
	case http.StateClosed, http.StateHijacked:
		p.conns--
	case http.StateActive, http.StateIdle:
	}
}

func (p *proxy) count(calls int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.back += calls
}

func (p *proxy) release() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.hold != "" {
		p.hold = ""
		close(p.again)
	}
}

func proxyOf(ts *testscript.TestScript) *proxy {
	p, ok := ts.Value("proxy").(*proxy)
	if !ok {
		ts.Fatalf("no proxy")
	}
	return p
}

// cmdHold holds back all calls of an operation from now on: hold CreateNatGateway. Without one, they go on.
func cmdHold(ts *testscript.TestScript, _ bool, args []string) {
	p := proxyOf(ts)
	p.release()
	if len(args) == 1 {
		p.mu.Lock()
		defer p.mu.Unlock()
		p.hold, p.held, p.again = args[0], make(chan struct{}), make(chan struct{})
	}
}

// cmdHeld waits until a call is held back: held. With gone it waits until none is any more and none is carried out, since
// all clients are gone: a call whose client's end is not seen yet would be carried out when calls may go on.
func cmdHeld(ts *testscript.TestScript, _ bool, args []string) {
	p := proxyOf(ts)
	if len(args) == 1 && args[0] == "gone" {
		for end := time.Now().Add(30 * time.Second); !p.free(); time.Sleep(time.Millisecond) {
			if time.Now().After(end) {
				ts.Fatalf("a call is held back whose client is not gone")
			}
		}
		return
	}
	p.mu.Lock()
	held := p.held
	p.mu.Unlock()
	select {
	case <-held:
	case <-time.After(30 * time.Second):
		ts.Fatalf("no call came to be held back")
	}
}

// free says that no call is held back, carried out, or still to be read.
func (p *proxy) free() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.back == 0 && p.conns == 0
}

// cmdSleep lets time pass, for leases that are to end.
func cmdSleep(ts *testscript.TestScript, _ bool, args []string) {
	d, err := time.ParseDuration(args[0])
	ts.Check(err)
	time.Sleep(d)
}

// cmdUntil waits until a file contains a text that a program in the background writes.
func cmdUntil(ts *testscript.TestScript, _ bool, args []string) {
	for end := time.Now().Add(time.Minute); ; time.Sleep(10 * time.Millisecond) {
		body, err := os.ReadFile(ts.MkAbs(args[0]))
		if err == nil && strings.Contains(string(body), args[1]) {
			return
		}
		if time.Now().After(end) {
			ts.Fatalf("%s does not contain %q:\n%s", args[0], args[1], body)
		}
	}
}

// cmdElsewhere makes AWS answer at another address, as another account's would; with back, at the first again.
func cmdElsewhere(ts *testscript.TestScript, _ bool, args []string) {
	p := proxyOf(ts)
	if len(args) > 0 {
		ts.Setenv("AWS_ENDPOINT_URL", p.URL)
		return
	}
	r, ok := ts.Value("region").(regiontest.Region)
	if !ok {
		ts.Fatalf("no region")
	}
	ts.Setenv("AWS_ENDPOINT_URL", r.URL)
}

// cmdFits checks that a JSON file fits the published schema of plans, and has no field that the schema does not name.
func cmdFits(ts *testscript.TestScript, neg bool, args []string) {
	checkFits(ts, neg, args[0], plan.Schema())
}

// cmdHealthFits is cmdFits for reports of validate.
func cmdHealthFits(ts *testscript.TestScript, neg bool, args []string) {
	checkFits(ts, neg, args[0], health.Schema())
}

func checkFits(ts *testscript.TestScript, neg bool, file string, schema []byte) {
	doc, err := jsonschema.UnmarshalJSON(bytes.NewReader(schema))
	ts.Check(err)
	root := doc.(map[string]any)
	root["additionalProperties"] = false
	for _, d := range root["$defs"].(map[string]any) {
		d.(map[string]any)["additionalProperties"] = false
	}
	c := jsonschema.NewCompiler()
	ts.Check(c.AddResource("plan.json", doc))
	s, err := c.Compile("plan.json")
	ts.Check(err)
	is, err := jsonschema.UnmarshalJSON(strings.NewReader(ts.ReadFile(file)))
	ts.Check(err)
	if err := s.Validate(is); (err != nil) != neg {
		ts.Fatalf("%s: %v", file, err)
	}
}
