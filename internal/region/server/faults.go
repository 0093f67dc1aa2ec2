// SPDX-License-Identifier: Apache-2.0

package server

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/slipway-k8s/slipway/internal/region/fault"
	"github.com/slipway-k8s/slipway/internal/region/wire"
)

// errConnectionClosed is the end of a connection whose call does nothing.
var errConnectionClosed = errors.New("the connection is closed by an injected fault")

// faultWriter is the way back to the client, which a fault may cut after the call took effect.
type faultWriter struct {
	http.ResponseWriter
	dropped    bool // nothing is answered any more
	killClient bool // and the client's process ends
}

// WriteHeader implements http.ResponseWriter.
func (l *faultWriter) WriteHeader(status int) {
	if !l.dropped {
		l.ResponseWriter.WriteHeader(status)
	}
}

// Write implements http.ResponseWriter.
func (l *faultWriter) Write(b []byte) (int, error) {
	if l.dropped {
		return len(b), nil
	}

	return l.ResponseWriter.Write(b) //nolint:wrapcheck // it stands in for what it holds
}

// ReadFrom keeps the fast way of large objects.
func (l *faultWriter) ReadFrom(r io.Reader) (int64, error) {
	if l.dropped {
		return io.Copy(io.Discard, r)
	}

	return io.Copy(l.ResponseWriter, r)
}

// Unwrap lets http.ResponseController through.
func (l *faultWriter) Unwrap() http.ResponseWriter { return l.ResponseWriter }

// beforeOperation runs once a call's operation is known.
func (s *Server) beforeOperation(
	ctx context.Context,
	c apiCall,
	op string,
	back *faultWriter,
	r *http.Request,
) error {
	s.countCall(c.service + ":" + op)
	for _, rule := range s.cfg.Faults.RecordCall(fault.Call{Service: c.service, Action: op, Mutating: Mutates(op)}) {
		s.cfg.Log.InfoContext(
			ctx,
			"a fault is injected",
			slog.Int("rule", rule.ID),
			slog.String("effect", string(rule.Effect)),
			slog.String("service", c.service),
			slog.String("op", op),
		)
		if err := s.applyFault(ctx, c, rule, back, r); err != nil {
			return err
		}
	}

	if s.cfg.Before == nil {
		return nil
	}

	return s.cfg.Before(ctx, c.service, op)
}

// applyFault carries out what a rule says. An error ends the call without effect.
func (s *Server) applyFault(
	ctx context.Context,
	c apiCall,
	rule fault.Rule,
	back *faultWriter,
	r *http.Request,
) error {
	switch rule.Effect {
	case fault.EffectDelay:
		return fault.Sleep(ctx, time.Duration(rule.Delay))
	case fault.DropAnswer:
		back.dropped = true
	case fault.KillAfter:
		back.dropped = true
		back.killClient = true
	case fault.Kill:
		s.killClient(r)
		return errConnectionClosed
	case fault.Close:
		return errConnectionClosed
	case fault.Fail:
		return newFaultError(
			rule,
			wire.Error{
				Code:    "InternalError",
				Message: "An internal error has occurred",
				Status:  http.StatusInternalServerError,
			},
		)

	case fault.Throttle:
		return newFaultError(rule, newThrottleError(s.serviceOrDefault(c.service)))
	case fault.Provision: // is about no call
	}

	return nil
}

// newFaultError is the error of a rule, or the usual one. Another code than the usual is a refusal: status 400.
func newFaultError(rule fault.Rule, usual wire.Error) error {
	if rule.Code != "" && rule.Code != usual.Code {
		usual = wire.Error{Code: rule.Code, Message: "injected by an operator of the region"}
	}

	if rule.Message != "" {
		usual.Message = rule.Message
	}

	return &usual
}

// newThrottleError is how a service answers who calls too often.
func newThrottleError(s wire.Service) wire.Error {
	switch s.Protocol {
	case wire.EC2Query:
		return wire.Error{
			Code:    "RequestLimitExceeded",
			Message: "Request limit exceeded.",
			Status:  http.StatusServiceUnavailable,
		}

	case wire.S3Protocol:
		return wire.Error{
			Code:    "SlowDown",
			Message: "Please reduce your request rate.",
			Status:  http.StatusServiceUnavailable,
		}

	case wire.JSON:
		return wire.Error{
			Code:    "ThrottlingException",
			Message: "Rate exceeded",
			Status:  http.StatusBadRequest,
		}

	case wire.Query, wire.RESTProtocol:
	}

	return wire.Error{Code: "Throttling", Message: "Rate exceeded", Status: http.StatusBadRequest}
}

// abortConnection ends the connection where a fault says so. The panic is net/http's own way to end one without an answer.
func (s *Server) abortConnection(r *http.Request, back *faultWriter) {
	if back.killClient {
		s.killClient(r)
	}

	if back.dropped {
		panic(http.ErrAbortHandler)
	}
}

// killClient ends the process at the other end of r's connection.
func (s *Server) killClient(r *http.Request) {
	if s.cfg.Kill == nil {
		s.cfg.Log.Warn("a client is to be killed, but this region has no way to do it")
		return
	}

	if err := s.cfg.Kill(r); err != nil {
		s.cfg.Log.Error("a client could not be killed", slog.Any("error", err))
	}
}

// Mutates tells whether an operation changes something, by its name.
func Mutates(op string) bool {
	return !isReadOperation(op) &&
		!slices.ContainsFunc(
			[]string{
				"Decrypt",
				"Encrypt",
				"ReEncrypt",
				"GenerateDataKey",
				"GenerateRandom",
				"Simulate",
				"AssumeRole",
			},
			func(p string) bool { return strings.HasPrefix(op, p) },
		)
}
