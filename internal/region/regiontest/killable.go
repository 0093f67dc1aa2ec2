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

// ErrKilled is the error of the calls of a killed client.
var ErrKilled = errors.New("the client was killed")

// KillableClient is an HTTP client that is killed at one of its calls, as by SIGKILL: from then on it sends
// no call and receives no answer. Calls that the region has received take effect.
type KillableClient struct {
	next          http.RoundTripper
	killAfterCall bool
	onKill        func()

	mu            sync.Mutex
	callsLeft     int // mutating calls until the fatal one
	mutatingCalls int
	killedAt      string
}

// NewKillableClient returns a client that is killed at its nth mutating call: before it sends the call, or,
// if after is true, after the call took effect and before the answer arrives. It then calls kill once, to
// stop the program under test; kill may be nil.
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

// AWSConfig returns a copy of cfg whose calls are made by the client.
func (m *KillableClient) AWSConfig(cfg aws.Config) aws.Config {
	cfg = cfg.Copy()
	cfg.HTTPClient = &http.Client{Transport: m}
	return cfg
}

// KilledAt returns the operation at which the client was killed, such as CreateVpc; empty if it was not
// killed.
func (m *KillableClient) KilledAt() string {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.killedAt
}

// MutatingCalls returns the number of mutating calls, including the fatal one.
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
	if server.IsMutating(op) {
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
		_ = resp.Body.Close()
	}

	return nil, ErrKilled
}

// killNow kills the client. The caller holds mu.
func (m *KillableClient) killNow(op string) {
	m.killedAt = op
	m.onKill()
}
