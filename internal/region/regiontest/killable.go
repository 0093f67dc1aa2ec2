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

// KillableClient is a client that is killed at one of its calls, as by SIGKILL: from then on no call leaves, and no answer that
// is still on its way arrives. Calls that were under way at that moment take effect.
type KillableClient struct {
	next          http.RoundTripper
	killAfterCall bool
	onKill        func()

	mu            sync.Mutex
	callsLeft     int // calls that change something until the fatal one
	mutatingCalls int // calls that change something
	killedAt      string
}

// NewKillableClient returns a client that is killed at its nth call that changes something: before the call leaves, or after it
// took effect and before its answer arrives. kill is called then, once, to stop what the client would do by itself; it
// may be nil.
func (r Region) NewKillableClient(nth int, after bool, kill func()) *KillableClient {
	if kill == nil {
		kill = func() {}
	}

	return &KillableClient{
		next:          r.Transport(),
		killAfterCall: after,
		onKill:        kill,
		callsLeft:     nth,
	}
}

// AWSConfig is cfg with the calls made by the mortal client.
func (m *KillableClient) AWSConfig(cfg aws.Config) aws.Config {
	cfg = cfg.Copy()
	cfg.HTTPClient = &http.Client{Transport: m}
	return cfg
}

// KilledAt is the operation at which the client was killed, such as CreateVpc; empty while it lives.
func (m *KillableClient) KilledAt() string {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.killedAt
}

// MutatingCalls counts the calls that change something, the fatal one among them.
func (m *KillableClient) MutatingCalls() int {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.mutatingCalls
}

// RoundTrip implements http.RoundTripper.
func (m *KillableClient) RoundTrip(r *http.Request) (*http.Response, error) {
	fatal := false
	m.mu.Lock()
	op := awsmiddleware.GetOperationName(r.Context())
	if server.Mutates(op) {
		m.callsLeft--
		m.mutatingCalls++
		fatal = m.callsLeft == 0
	}

	if fatal && !m.killAfterCall {
		m.killNow(op)
	}

	dead := m.killedAt != ""
	m.mu.Unlock()
	if dead {
		return nil, ErrKilled
	}

	resp, err := m.next.RoundTrip(r)
	m.mu.Lock()
	defer m.mu.Unlock()
	if fatal && m.killedAt == "" {
		m.killNow(op)
	}

	if m.killedAt == "" {
		return resp, err
	}

	if err == nil {
		resp.Body.Close() //nolint:errcheck // nobody reads it
	}

	return nil, ErrKilled
}

// killNow kills the client. The caller holds mu.
func (m *KillableClient) killNow(op string) {
	m.killedAt = op
	m.onKill()
}
