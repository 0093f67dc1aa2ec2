// SPDX-License-Identifier: Apache-2.0

package join

import (
	"context"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"sync"
	"time"
)

// heartbeatPath is the URL path of heartbeats.
const heartbeatPath = "/v1/heartbeat"

// heartbeatMemory is how long a node is remembered after its last heartbeat. Its report in the API is old
// enough then to show that its agent is silent.
const heartbeatMemory = 15 * time.Minute

// Heartbeats remembers when the agent of each worker was last heard of by this machine. A heartbeat is a
// request without a body whose client certificate is that of a node. It writes nothing to etcd, unlike a
// Lease for each worker. The zero value is ready to use. It is safe for concurrent use.
type Heartbeats struct {
	mu    sync.Mutex
	since time.Time            // of the first call
	last  map[string]time.Time // by node name
}

// Hear records that the agent of a node works.
func (h *Heartbeats) Hear(node string, now time.Time) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.last == nil {
		h.last = map[string]time.Time{}
	}

	h.last[node] = now
}

// ListeningSeconds returns for how long this machine has taken heartbeats. It has forgotten those before.
func (h *Heartbeats) ListeningSeconds(now time.Time) int {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.since.IsZero() {
		h.since = now
	}

	return int(now.Sub(h.since).Seconds())
}

// Seconds returns for each node how many seconds before now its agent was last heard of. It forgets nodes
// that have been silent for a long time.
func (h *Heartbeats) Seconds(now time.Time) map[string]int {
	h.mu.Lock()
	defer h.mu.Unlock()
	out := make(map[string]int, len(h.last))
	for node, at := range h.last {
		age := now.Sub(at)
		if age > heartbeatMemory {
			delete(h.last, node)
			continue
		}

		out[node] = max(0, int(age.Seconds()))
	}

	return out
}

// serveHeartbeat records the heartbeat of the node that the client's certificate names.
func (s *Server) serveHeartbeat(w http.ResponseWriter, r *http.Request) {
	node, ok := verifiedNode(r)
	if !ok {
		http.Error(w, "a heartbeat needs the client certificate of a node", http.StatusForbidden)
		return
	}

	s.Heartbeats.Hear(node, s.Now())
	w.WriteHeader(http.StatusNoContent)
}

// verifiedNode returns the name of the node whose certificate the client has, which TLS has verified.
func verifiedNode(r *http.Request) (string, bool) {
	if r.TLS == nil || len(r.TLS.VerifiedChains) == 0 {
		return "", false
	}

	subject := r.TLS.VerifiedChains[0][0].Subject
	name, isNode := strings.CutPrefix(subject.CommonName, NodeUser(""))

	return name, isNode && name != "" && slices.Contains(subject.Organization, nodesGroup)
}

// ClientCAs returns the authorities whose client certificates the endpoint verifies.
func (s *Server) ClientCAs() *x509.CertPool {
	pool := x509.NewCertPool()
	for _, c := range s.CA.Certs {
		pool.AddCert(c)
	}

	return pool
}

// ErrNoHeartbeats is the error of SendHeartbeat if the control plane's agents are older than heartbeats.
var ErrNoHeartbeats = errors.New("the control plane takes no heartbeats")

// SendHeartbeat tells the control plane that this machine's agent works. The HTTP client has the node's
// certificate.
func (c Client) SendHeartbeat(ctx context.Context) error {
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, c.URL+heartbeatPath, nil)
	if err != nil {
		return fmt.Errorf("send a heartbeat to %s: %w", c.URL, err)
	}

	resp, err := c.HTTP.Do(req)
	if err != nil {
		return fmt.Errorf("send a heartbeat to %s: %w", c.URL, err)
	}

	defer func() { _ = resp.Body.Close() }()
	answer, _ := io.ReadAll(io.LimitReader(resp.Body, 1<<10)) // the connection is used again only after it was read
	if resp.StatusCode == http.StatusNotFound {
		return fmt.Errorf("send a heartbeat to %s: %w", c.URL, ErrNoHeartbeats)
	}

	if resp.StatusCode != http.StatusNoContent {
		return fmt.Errorf(
			"send a heartbeat to %s: %s: %s",
			c.URL,
			resp.Status,
			strings.TrimSpace(string(answer)),
		)
	}

	return nil
}
