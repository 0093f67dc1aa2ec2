// SPDX-License-Identifier: Apache-2.0

package regiontest

import (
	"errors"
	"net/http"
	"sync"

	"github.com/aws/aws-sdk-go-v2/aws"
	awsmiddleware "github.com/aws/aws-sdk-go-v2/aws/middleware"

	"github.com/slipway-k8s/slipway/internal/region/server"
)

// ErrKilled is what a killed client's calls end with.
var ErrKilled = errors.New("the client was killed")

// Mortal is a client that is killed at one of its calls, as by SIGKILL: from then on no call leaves, and no answer that
// is still on its way arrives. Calls that were under way at that moment take effect.
type Mortal struct {
	next  http.RoundTripper
	after bool
	die   func()

	mu   sync.Mutex
	left int // calls that change something until the fatal one
	seen int // calls that change something
	call string
}

// Mortal returns a client that is killed at its nth call that changes something: before the call leaves, or after it
// took effect and before its answer arrives. kill is called then, once, to stop what the client would do by itself; it
// may be nil.
func (r Region) Mortal(nth int, after bool, kill func()) *Mortal {
	if kill == nil {
		kill = func() {}
	}
	return &Mortal{next: r.Transport(), after: after, die: kill, left: nth}
}

// Config is cfg with the calls made by the mortal client.
func (m *Mortal) Config(cfg aws.Config) aws.Config {
	cfg = cfg.Copy()
	cfg.HTTPClient = &http.Client{Transport: m}
	return cfg
}

// Killed is the operation at which the client was killed, such as CreateVpc; empty while it lives.
func (m *Mortal) Killed() string {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.call
}

// Changes counts the calls that change something, the fatal one among them.
func (m *Mortal) Changes() int {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.seen
}

// RoundTrip implements http.RoundTripper.
func (m *Mortal) RoundTrip(r *http.Request) (*http.Response, error) {
	fatal := false
	m.mu.Lock()
	op := awsmiddleware.GetOperationName(r.Context())
	if server.Mutates(op) {
		m.left--
		m.seen++
		fatal = m.left == 0
	}
	if fatal && !m.after {
		m.end(op)
	}
	dead := m.call != ""
	m.mu.Unlock()
	if dead {
		return nil, ErrKilled
	}
	resp, err := m.next.RoundTrip(r)
	m.mu.Lock()
	defer m.mu.Unlock()
	if fatal && m.call == "" {
		m.end(op)
	}
	if m.call == "" {
		return resp, err
	}
	if err == nil {
		resp.Body.Close() //nolint:errcheck,gosec // nobody reads it
	}
	return nil, ErrKilled
}

// end kills the client. The caller holds mu.
func (m *Mortal) end(op string) {
	m.call = op
	m.die()
}
