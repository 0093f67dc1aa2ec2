// SPDX-License-Identifier: Apache-2.0

package join

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strings"
)

// The requests of a worker that have no certificate signing request are bound to a text: what the worker asks for.

// provedRequest is a request whose form was checked.
type provedRequest struct {
	// from is who sent it.
	from requestCaller
	// text is what the proof must be bound to.
	text string
	// proof is the query string of a signed GetCallerIdentity request, see Signer.
	proof string
}

// findProvedMachine returns the machine that sent a request. Only requests of the right form count for the limits.
func (s *Server) findProvedMachine(ctx context.Context, r provedRequest, limits *requestLimits) (Machine, error) {
	proof, err := checkProof(r.proof, csrHashHeader, s.Now())
	if err != nil {
		return Machine{}, refusal{http.StatusForbidden, err.Error()}
	}

	if !limits.take(r.from, s.Now()) {
		return Machine{}, refusal{http.StatusTooManyRequests, "too many requests"}
	}

	who, err := s.identifyCaller(ctx, certificateRequest{CSR: r.text, Proof: proof})
	if err != nil {
		return Machine{}, err
	}

	return s.findCallerMachine(ctx, who)
}

// decodeRequest decodes the body of a request without unknown fields.
func decodeRequest(body io.Reader, request any) error {
	dec := json.NewDecoder(body)
	dec.DisallowUnknownFields()

	return dec.Decode(request)
}

// post sends a request to the control plane, and returns the body of an answer with a status. The errors say what the
// worker tried.
func (c Client) post(ctx context.Context, path, what string, request any, status int) ([]byte, error) {
	fail := func(err error) ([]byte, error) { return nil, fmt.Errorf("%s through %s: %w", what, c.URL, err) }
	body, err := json.Marshal(request)
	if err != nil {
		return fail(err)
	}

	req, err := http.NewRequestWithContext(ctx, http.MethodPost, c.URL+path, bytes.NewReader(body))
	if err != nil {
		return fail(err)
	}

	req.Header.Set("Content-Type", "application/json")
	resp, err := c.HTTP.Do(req)
	if err != nil {
		return fail(err)
	}

	defer func() { _ = resp.Body.Close() }()
	answer, err := io.ReadAll(io.LimitReader(resp.Body, 4<<10)) // the connection is used again only after it was read
	if resp.StatusCode != status {
		return fail(fmt.Errorf("%s: %s", resp.Status, strings.TrimSpace(string(answer))))
	}

	if err != nil {
		return fail(err)
	}

	return answer, nil
}
