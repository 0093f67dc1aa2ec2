// SPDX-License-Identifier: Apache-2.0

package join

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"net/http"
)

// signalPath is the URL path of signals.
const signalPath = "/v1/signal"

// Signal is what a worker tells the CloudFormation stack that created it. The control plane passes it on, so that the
// role of a worker needs no right to the stack.
type Signal string

// The signals, as CloudFormation calls them.
const (
	SignalSuccess Signal = "SUCCESS"
	SignalFailure Signal = "FAILURE"
)

// boundText is what the proof of a signal is bound to. No certificate request looks like it, so that the proof of the
// one is none of the other.
func (s Signal) boundText() string { return "slipway-signal " + string(s) }

type signalRequest struct {
	Status Signal `json:"status"`
	// Proof is the query string of a signed GetCallerIdentity request that is bound to the status, see Signer.
	Proof string `json:"proof"`
}

// Refuse returns an error whose text a worker is told. Other errors stay on the control plane.
func Refuse(reason string) error { return refusal{http.StatusConflict, reason} }

func (s *Server) serveSignal(w http.ResponseWriter, r *http.Request) {
	from := newRequestCaller(r, s.Now())
	err := s.passSignal(r.Context(), from, http.MaxBytesReader(w, r.Body, 32<<10))
	if err == nil {
		w.WriteHeader(http.StatusNoContent)
		return
	}

	s.refuse(w, r, "signal", err)
}

// refuse tells a worker why its request is refused, or that it shall repeat one that has failed. It logs either.
func (s *Server) refuse(w http.ResponseWriter, r *http.Request, request string, err error) {
	if no, ok := errors.AsType[refusal](err); ok {
		s.Log.Info(
			"request refused",
			slog.String("request", request),
			slog.String("from", r.RemoteAddr),
			slog.String("reason", no.reason),
		)

		http.Error(w, no.reason, no.code)

		return
	}

	s.Log.Error(
		"request failed",
		slog.String("request", request),
		slog.String("from", r.RemoteAddr),
		slog.Any("error", err),
	)

	http.Error(w, "try again", http.StatusServiceUnavailable)
}

// passSignal checks who signals, and passes the signal on.
func (s *Server) passSignal(ctx context.Context, from requestCaller, body io.Reader) error {
	var req signalRequest
	if err := decodeRequest(body, &req); err != nil || req.Status != SignalSuccess && req.Status != SignalFailure {
		return refusal{http.StatusBadRequest, "body is not a JSON signal"}
	}

	machine, err := s.findProvedMachine(ctx, provedRequest{from, req.Status.boundText(), req.Proof}, &s.limits)
	if err != nil {
		return err
	}

	return s.PassSignal(ctx, machine, req.Status)
}

// SendSignal asks the control plane to signal the stack for this machine. Success is refused until its Node is Ready.
func (c Client) SendSignal(ctx context.Context, status Signal) error {
	proof, err := c.Sign.CreateProof(ctx, []byte(status.boundText()))
	if err != nil {
		return err
	}

	request := signalRequest{Status: status, Proof: proof}
	_, err = c.post(ctx, signalPath, "signal the stack", request, http.StatusNoContent)

	return err
}
